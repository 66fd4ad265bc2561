"""The service's settings, read once from `TRIGGER_CONTROLLER_*`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from paddlewheel.core.settings import ServiceSettings


class Settings(ServiceSettings):
    """Settings beside those every service has."""

    model_config = SettingsConfigDict(env_prefix="TRIGGER_CONTROLLER_", frozen=True, extra="ignore")

    webhook_token_file: Path | None = None
    """Holds the bearer token that object stores must send; None lets everybody notify."""
    resync: float = Field(default=300.0, gt=0)
    """Seconds between looks at every trigger."""
