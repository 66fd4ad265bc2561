"""The service's settings, read once from `TRIGGER_CONTROLLER_*`."""

from __future__ import annotations

from pathlib import Path

from pydantic import field_validator
from pydantic_settings import SettingsConfigDict

from paddlewheel.operator.settings import OperatorSettings


class Settings(OperatorSettings):
    """Settings beside those every controller has."""

    model_config = SettingsConfigDict(env_prefix="TRIGGER_CONTROLLER_", frozen=True, extra="ignore")

    replicas_share: bool = False
    """Replicas share the messages, not the triggers: any replica may get an event for any trigger."""
    webhook_token_file: Path | None = None
    """Holds the bearer token that object stores must send; None lets everybody notify."""

    @field_validator("replicas_share")
    @classmethod
    def _is_not_set(cls, value: bool) -> bool:
        if value:
            raise ValueError("replicas of this service share messages, not triggers: leave it unset")
        return value
