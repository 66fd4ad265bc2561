"""What every service reads from its environment, parsed once and passed on explicitly."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from paddlewheel.core.errors import Permanent

Profile = Literal["development", "production"]
"""What the bus must guarantee: `production` refuses a server that may lose acknowledged messages."""


class ServiceSettings(BaseSettings):
    """Base of a service's settings; a subclass sets `model_config = SettingsConfigDict(env_prefix=...)`."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    nats_url: str = "nats://127.0.0.1:4222"
    nats_creds_file: Path | None = None
    nats_tls_dir: Path | None = None
    """Folder with ca.crt, and tls.crt with tls.key when the server asks who calls."""
    nats_replicas: int = Field(default=1, ge=1, le=5)
    """Copies of every stream."""
    nats_profile: Profile = "development"
    nats_monitor_url: str = ""
    """The NATS server's HTTP monitor, where its durability is read; "" means it is not checked."""
    http_port: int = Field(default=8080, ge=0, le=65535)
    """Port of /healthz, /readyz and /metrics; 0 takes a free one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kubeconfig: str | None = None
    """Path; None means KUBECONFIG, then the pod's service account."""
    namespace: str = ""
    """Namespace whose objects are served; "" means all."""
    pod_name: str = Field(default_factory=socket.gethostname, min_length=1)
    """This replica's name in its Lease."""
    pod_namespace: str = "default"
    """Namespace of the service itself, where its Leases live."""
    workers: int = Field(default=4, ge=1, le=256)


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def load_settings(model: type[SettingsT]) -> SettingsT:
    """Read the environment.

    Raises:
        Permanent: a value is not usable; the message names each variable and what is wrong with it.
    """
    try:
        return model()
    except ValidationError as error:
        prefix = model.model_config.get("env_prefix", "")
        faults = (_fault(prefix, item) for item in error.errors(include_url=False))
        raise Permanent("InvalidSettings", "; ".join(faults)) from error


def _fault(prefix: str, item: Any) -> str:
    """`NAME=value: what is wrong`, with the name of the variable to mend."""
    variable = prefix + "_".join(str(part) for part in item["loc"])
    return f"set {variable.upper()}, now {item.get('input')!r}: {item['msg']}"
