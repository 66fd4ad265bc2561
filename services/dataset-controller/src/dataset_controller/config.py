"""The service's settings, read once from `DATASET_CONTROLLER_*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from dataset_controller.domain.paths import Places
from dataset_controller.domain.sampleset.model import (
    FREE_SPACE_RATIO,
    RESOURCES,
    BusFiles,
    RuntimeConfig,
)
from paddlewheel.contracts.places import CACHE_ROOTS, checked_root
from paddlewheel.operator.settings import OperatorSettings

Root = Annotated[str, AfterValidator(checked_root)]
"""A directory of the nodes that the operator lends to data sets."""


class Resources(BaseModel):
    """Requests and limits of a container."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: Mapping[str, str | int | float] = Field(default_factory=dict)
    limits: Mapping[str, str | int | float] = Field(default_factory=dict)


class Settings(OperatorSettings):
    """Settings beside those every service has."""

    model_config = SettingsConfigDict(
        env_prefix="DATASET_CONTROLLER_", frozen=True, extra="ignore", populate_by_name=True
    )

    workers: int = Field(default=8, ge=1, le=256)
    """Until a set is bound, its passes wait for some ten answers of the API server, one after the other."""

    runtime_image: str = Field(
        default="paddlewheel/cache-runtime:latest",
        min_length=1,
        validation_alias=AliasChoices("DATASET_CONTROLLER_RUNTIME_IMAGE", "RUNTIME_IMAGE"),
    )
    """Image of the runtime pods; the original's variable `RUNTIME_IMAGE` is read too."""
    runtime_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    runtime_nats_url: str = ""
    """Address of the bus for runtime pods, when it differs from this service's."""
    runtime_nats_authority: str = ""
    """ConfigMap of this namespace with ca.crt, for a bus with TLS."""
    runtime_nats_tokens: bool = False
    """Runtime pods show service-account tokens, for the server of the chart."""
    runtime_nats_credentials: str = ""
    """Secret of this namespace with nats.creds, for a server of your own."""
    runtime_service_account: str = ""
    """Service account of the runtime pods in this namespace; "" means the default one."""
    runtime_priority_class: str = "system-node-critical"
    """Priority class of the runtime pods: without them, no pod on their node can read the data."""
    runtime_node_selector: dict[str, str] = Field(default_factory=dict)
    """JSON object: labels of the nodes that runtime pods may use."""
    runtime_tolerations: tuple[dict[str, str | int], ...] = ()
    """JSON list: tolerations of the runtime pods, as in a pod; a set's own are added."""
    runtime_free_space_ratio: str = Field(default=FREE_SPACE_RATIO, pattern=r"^0(\.\d+)?$")
    """Share of a cache's disk that stays free, from 0 to below 1, unless a set has its own value."""
    runtime_resources: Resources = Field(default_factory=lambda: Resources(requests=RESOURCES["requests"]))
    """JSON object: requests and limits of the runtime pods, as in a container."""
    runtime_settings: dict[str, str] = Field(default_factory=dict)
    """JSON object: settings of the cache runtime without their prefix, e.g. {"CHUNK_FILES": "500"}."""

    local_sources: tuple[Root, ...] = ()
    """JSON list: `file://` sources may be these directories or below them; none: such sources are refused."""
    cache_roots: tuple[Root, ...] = Field(default=CACHE_ROOTS, min_length=1)
    """JSON list: caches may be below these directories; the first is where they are when a set names none."""

    @property
    def places(self) -> Places:
        """Directories of the nodes that data sets may use."""
        return Places(self.local_sources, self.cache_roots)

    @property
    def runtime(self) -> RuntimeConfig:
        """Settings of runtime pods."""
        nats_url = self.runtime_nats_url or self.nats_url
        return RuntimeConfig(
            self.runtime_image,
            nats_url,
            self.runtime_pull_policy,
            self.runtime_settings,
            bus=BusFiles(
                self.runtime_nats_authority, self.runtime_nats_tokens, self.runtime_nats_credentials
            ),
            places=self.places,
            resources=self.runtime_resources.model_dump(exclude_unset=True),
            service_account=self.runtime_service_account,
            priority_class=self.runtime_priority_class,
            node_selector=self.runtime_node_selector,
            tolerations=self.runtime_tolerations,
            free_space_ratio=self.runtime_free_space_ratio,
        )
