"""The service's settings, read once from `SERVING_CONTROLLER_*`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from paddlewheel.operator.settings import OperatorSettings
from serving_controller.domain.model import Options


class Settings(OperatorSettings):
    """Settings beside those of every controller."""

    model_config = SettingsConfigDict(env_prefix="SERVING_CONTROLLER_", frozen=True, extra="ignore")

    domain: str = Field(default="example.com", pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    """Services are reached at `<name>.<namespace>.<domain>`."""
    gateway: str = Field(default="", pattern=r"^([-.a-z0-9]+/[-.a-z0-9]+)?$")
    """`namespace/name` of the Gateway that leads requests to services; "" means none."""
    figures: str = Field(default="", pattern=r"^(http://[^\s,]+(,\s*http://[^\s,]+)*)?$")
    """Prometheus endpoints of the gateway's proxies, separated by commas: `http://host:port/metrics`. A host
    name stands for all its addresses."""
    runtime_image: str = "paddlewheel/paddle-runtime:dev"
    """Serves models."""
    model_cache: str = Field(default="", pattern=r"^(/[-./_A-Za-z0-9]+)?$")
    """Folder of every node, of mode 1777, in which fetched models are kept; "" = each pod has its own."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "Always"
    """Of the users' own images, as the original had it; nodes without a registry need IfNotPresent."""
    startup_seconds: int = Field(default=600, ge=1)
    """Seconds that a pod may take until it answers."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """Seconds that a revision keeps its pods once it gets no requests."""
    poll_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two looks at the figures of a canary."""
    deletion_patience: float = Field(default=600.0, ge=0)
    """Seconds that a deleted service waits for the bus to take its last fact."""

    @property
    def options(self) -> Options:
        """What decisions depend on."""
        return Options(
            domain=self.domain,
            gateway=self.gateway,
            runtime_image=self.runtime_image,
            model_cache=self.model_cache,
            pull_policy=self.pull_policy,
            startup_seconds=self.startup_seconds,
            drain_seconds=self.drain_seconds,
            poll_seconds=self.poll_seconds,
            deletion_patience=self.deletion_patience,
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """URLs of the gateway's figures."""
        return tuple(url.strip() for url in self.figures.split(",") if url.strip())
