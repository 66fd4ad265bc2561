"""The service's settings, read once from `BUS_AUTH_*`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from paddlewheel.bus.admin.services import DeclaredServices
from paddlewheel.bus.installer import TeamSettings
from paddlewheel.core.settings import ProcessSettings


class Settings(ProcessSettings):
    """Settings beside those every process has."""

    model_config = SettingsConfigDict(env_prefix="BUS_AUTH_", frozen=True, extra="ignore")

    nats_url: str = "nats://127.0.0.1:4222"
    nats_tls_dir: Path | None = None
    """Folder with ca.crt."""
    key_file: Path
    """Ed25519 key in PEM, which signs the rights of clients."""
    server_names: tuple[str, ...] = ()
    """JSON: DNS names of the servers. bus-auth makes their certificate and its own key, unless this is ()."""
    lifetime: int = Field(default=1800, ge=5, le=3000)
    """Seconds until a client is disconnected and must connect with a new token."""
    teams: tuple[TeamSettings, ...] = ()
    """JSON: the teams of subscribers, `[{"name": ..., "namespaces": [...]}]`."""
    services: DeclaredServices = ()
    """Declared services, the same as those of bus-installer."""
    kubeconfig: str | None = None
    """Path; None means KUBECONFIG, then the pod's service account."""
    pod_name: str = "bus-auth"
    pod_namespace: str = "paddle-system"
    """Namespace of the release, in which RBAC grants the roles of the bus."""
