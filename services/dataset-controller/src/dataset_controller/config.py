"""The service's settings, read once from `DATASET_CONTROLLER_*`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from dataset_controller.domain.paths import Places
from dataset_controller.domain.sampleset.model import RESOURCES, RuntimeConfig
from paddlewheel.contracts.places import CACHE_ROOTS, checked_root
from paddlewheel.operator.settings import OperatorSettings

Root = Annotated[str, AfterValidator(checked_root)]
"""A directory of the nodes that the operator lends to data sets."""


class Resources(BaseModel):
    """Of a container."""

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
    runtime_nats_tls_dir: Path | None = None
    """Folder with ca.crt, tls.crt and tls.key of the runtime pods; copied into each set's runtime Secret."""
    runtime_nats_tokens: bool = False
    """Runtime pods show service-account tokens; only ca.crt is taken from `runtime_nats_tls_dir`."""
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
            has_bus_certificate=self.runtime_nats_tls_dir is not None,
            has_bus_token=self.runtime_nats_tokens,
            places=self.places,
            resources=self.runtime_resources.model_dump(exclude_unset=True),
        )
