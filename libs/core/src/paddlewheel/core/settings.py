"""Settings that every service reads from its environment, parsed once and passed explicitly."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from paddlewheel.core.errors import Permanent

Profile = Literal["development", "production"]
"""Guarantees required of the bus: `production` rejects a server that may lose acknowledged messages."""


class ProcessSettings(BaseSettings):
    """What every process has; a subclass sets `model_config = SettingsConfigDict(env_prefix=...)`."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    http_port: int = Field(default=8080, ge=0, le=65535)
    """Port of /healthz, /readyz and /metrics; 0 selects a free one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ServiceSettings(ProcessSettings):
    """Base of the settings of a service that works on the bus."""

    nats_url: str = "nats://127.0.0.1:4222"
    nats_creds_file: Path | None = None
    nats_tls_dir: Path | None = None
    """Folder with ca.crt, and tls.crt with tls.key when the server requires client certificates."""
    nats_token_file: Path | None = None
    """Projected service-account token, where the server lets in by tokens instead of certificates."""
    nats_replicas: int = Field(default=1, ge=1, le=5)
    """Replicas of every stream."""
    nats_profile: Profile = "development"
    nats_monitor_url: str = ""
    """URL of the NATS server's HTTP monitor, used to check durability; "" disables the check."""
    kubeconfig: str | None = None
    """Path; None means KUBECONFIG, then the pod's service account."""
    namespace: str = ""
    """Namespace whose objects are reconciled; "" means all."""
    pod_name: str = Field(default_factory=socket.gethostname, min_length=1)
    """This replica's name in its Lease."""
    pod_namespace: str = Field(default="default", min_length=1)
    """Namespace of the service itself and its Leases."""
    workers: int = Field(default=4, ge=1, le=256)


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)


def load_settings(model: type[SettingsT]) -> SettingsT:
    """Read the environment.

    Raises:
        Permanent: a value is invalid; the message names each variable and its error.
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
