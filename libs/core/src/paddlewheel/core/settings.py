"""Settings that every service reads once from its environment, and passes on explicitly."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from paddlewheel.core.errors import Permanent

Profile = Literal["development", "production"]
"""Required guarantees of the bus. `production` rejects a server that may lose acknowledged messages."""


class ProcessSettings(BaseSettings):
    """Settings of every process. A subclass sets `model_config = SettingsConfigDict(env_prefix=...)`."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    http_port: int = Field(default=8080, ge=0, le=65535)
    """Port of /healthz, /readyz and /metrics. 0 selects a free port."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ServiceSettings(ProcessSettings):
    """Settings of every service that uses the bus."""

    nats_url: str = "nats://127.0.0.1:4222"
    nats_creds_file: Path | None = None
    """NATS credentials file, or a file with the seed of an nkey, for a server of your own."""
    nats_tls_dir: Path | None = None
    """Directory with ca.crt."""
    nats_token_file: Path | None = None
    """File with a projected service account token, for the server of the chart."""
    nats_replicas: int = Field(default=1, ge=1, le=5)
    """Number of replicas of every stream."""
    nats_profile: Profile = "development"
    nats_monitor_url: str = ""
    """URL of the NATS server's HTTP monitor, which the durability check reads. "" disables the check."""
    kubeconfig: str | None = None
    """Path of a kubeconfig file. None means KUBECONFIG, then the service account of the pod."""
    namespace: str = ""
    """Namespace whose objects are reconciled. "" means all namespaces."""
    pod_name: str = Field(default_factory=socket.gethostname, min_length=1)
    """Name of this replica in its Lease."""
    pod_namespace: str = Field(default="default", min_length=1)
    """Namespace of the service and of its Leases."""
    workers: int = Field(default=4, ge=1, le=256)


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)


def load_settings(model: type[SettingsT]) -> SettingsT:
    """Read the settings from the environment.

    Raises:
        Permanent: a value is invalid. The message names each such variable and its error.
    """
    try:
        return model()
    except ValidationError as error:
        prefix = model.model_config.get("env_prefix", "")
        faults = (_fault(prefix, item) for item in error.errors(include_url=False))
        raise Permanent("InvalidSettings", "; ".join(faults)) from error


def _fault(prefix: str, item: Any) -> str:
    """Describe one invalid value, with the name of the variable to fix."""
    variable = prefix + "_".join(str(part) for part in item["loc"])
    return f"set {variable.upper()}, now {item.get('input')!r}: {item['msg']}"
