"""The service's settings, read once from `JOB_CONTROLLER_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from job_controller.core.model import AUTO, Options
from job_controller.core.progress_access import ProgressAccess
from paddlewheel.core.errors import Permanent
from paddlewheel.operator.settings import OperatorSettings

_ADDRESS = r"^(https?://[^\s/?#]+/?)?$"
"""The address of a service, or none."""
KEY_LENGTH = 32
"""Least number of bytes of the key for progress."""


class Settings(OperatorSettings):
    """Settings beside those every service has."""

    model_config = SettingsConfigDict(env_prefix="JOB_CONTROLLER_", frozen=True, extra="ignore")

    workers: int = Field(default=16, ge=1, le=256)
    """Jobs that are reconciled at the same time: a pass mostly waits for answers of the API server."""
    gate_image: str = ""
    """Image of the init container that makes pods wait until all addresses are known; "" means none."""
    gate_url: str = Field(default="", pattern=_ADDRESS)
    """This service's address for that container, which asks here. Set both or neither."""
    port_range_start: int = Field(default=35000, ge=1024, le=65535)
    port_range_end: int = Field(default=65000, ge=1024, le=65535)
    """Ports for jobs with `intranet: Host`."""
    elastic_server: str = ""
    """etcd endpoints for elastic jobs, separated by commas; "" means none."""
    deletion_patience: float = Field(default=600.0, ge=0)
    """Seconds that a deleted job waits for the bus to take its last facts; its pods are deleted meanwhile."""
    gate_recheck: float = Field(default=30.0, gt=0)
    """Seconds after which a gated job is reconciled again, in case a fact was missed."""
    gang_scheduling: Literal["Auto", "None", "Volcano", "Native"] = AUTO
    """The kind of PodGroups. Auto: by the job and by what is installed. Volcano: for every job, as the
    original operator did with `--scheduling=volcano`."""
    replicas_share: bool = False
    """True distributes jobs over the live replicas, each of which holds a Lease."""

    pods_port: int = Field(default=8081, ge=0, le=65535)
    """Where the gates of pods ask and programs report, apart from the probes; open if either URL is set."""
    progress_url: str = Field(default="", pattern=_ADDRESS)
    """This service's address for the pods of jobs; "" means that programs do not report their progress."""
    progress_key_file: Path | None = None
    """Holds the key that the tokens of jobs are made with."""
    progress_period: float = Field(default=10.0, gt=0)
    """Seconds between two writes of a job's progress, and between two facts about it."""

    @model_validator(mode="after")
    def _progress_is_whole(self) -> Settings:
        if bool(self.progress_url) != (self.progress_key_file is not None):
            raise ValueError("set progress_url and progress_key_file, or neither")
        return self

    @model_validator(mode="after")
    def _gate_is_whole(self) -> Settings:
        if bool(self.gate_image) != bool(self.gate_url):
            raise ValueError("set gate_image and gate_url, or neither")
        return self

    @model_validator(mode="after")
    def _range_is_usable(self) -> Settings:
        if self.port_range_end - self.port_range_start < 40:
            raise ValueError("port_range_end must be at least 40 above port_range_start")
        return self

    @property
    def options(self) -> Options:
        """The settings that decisions depend on."""
        return Options(
            gate_image=self.gate_image,
            gate_url=self.gate_url,
            port_range=(self.port_range_start, self.port_range_end),
            elastic_server=self.elastic_server,
            deletion_patience=self.deletion_patience,
            gate_recheck=self.gate_recheck,
        )

    def read_progress_access(self) -> ProgressAccess | None:
        """Read the key; None when programs do not report. Raises Permanent, which names the variable."""
        if self.progress_key_file is None:
            return None
        try:
            key = self.progress_key_file.read_bytes().strip()
        except OSError as error:
            message = f"JOB_CONTROLLER_PROGRESS_KEY_FILE: {error}"
            raise Permanent("InvalidSettings", message) from error
        if len(key) < KEY_LENGTH:
            message = f"JOB_CONTROLLER_PROGRESS_KEY_FILE: the key has {len(key)} bytes, give it {KEY_LENGTH}"
            raise Permanent("InvalidSettings", message)
        return ProgressAccess(self.progress_url, key)
