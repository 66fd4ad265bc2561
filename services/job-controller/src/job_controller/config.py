"""The service's settings, read once from `JOB_CONTROLLER_*`."""

from __future__ import annotations

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from job_controller.domain.model import Options
from paddlewheel.operator.settings import OperatorSettings


class Settings(OperatorSettings):
    """Settings beside those every service has."""

    model_config = SettingsConfigDict(env_prefix="JOB_CONTROLLER_", frozen=True, extra="ignore")

    gate_image: str = ""
    """Image of the init container that makes pods wait until all addresses are known; "" means none."""
    port_range_start: int = Field(default=35000, ge=1024, le=65535)
    port_range_end: int = Field(default=65000, ge=1024, le=65535)
    """Ports for jobs with `intranet: Host`."""
    elastic_server: str = ""
    """etcd endpoints for elastic jobs, separated by commas; "" means none."""
    deletion_patience: float = Field(default=600.0, ge=0)
    """Seconds that a deleted job waits for the bus to take its last facts; its pods are deleted meanwhile."""
    gate_recheck: float = Field(default=30.0, gt=0)
    """Seconds after which a gated job is reconciled again, in case a fact was missed."""
    replicas_share: bool = False
    """True distributes jobs over the live replicas, each of which holds a Lease."""

    @model_validator(mode="after")
    def _range_is_usable(self) -> Settings:
        if self.port_range_end - self.port_range_start < 40:
            raise ValueError("port_range_end must be at least 40 above port_range_start")
        return self

    @property
    def options(self) -> Options:
        """What decisions depend on."""
        return Options(
            gate_image=self.gate_image,
            port_range=(self.port_range_start, self.port_range_end),
            elastic_server=self.elastic_server,
            deletion_patience=self.deletion_patience,
            gate_recheck=self.gate_recheck,
        )
