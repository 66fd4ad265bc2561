"""The service's settings, read once from `TRIGGER_CONTROLLER_*`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from paddlewheel.contracts.crds.trigger import SOURCE, SOURCE_LENGTH
from paddlewheel.operator.settings import OperatorSettings

SourceName = Annotated[str, StringConstraints(pattern=SOURCE, max_length=SOURCE_LENGTH)]


class Settings(OperatorSettings):
    """The settings of this service, besides the settings of all controllers."""

    model_config = SettingsConfigDict(env_prefix="TRIGGER_CONTROLLER_", frozen=True, extra="ignore")

    replicas_share: bool = False
    """Must be false: replicas share the messages, not the triggers, so any replica may get an event for any
    trigger."""
    webhook_tokens_dir: Path | None = None
    """Folder with a file for each source, which contains the bearer tokens of its store; None = no
    webhook."""
    webhook_tls_dir: Path | None = None
    """Folder with tls.crt and tls.key of the webhook; None = plain HTTP."""
    sources: Annotated[dict[SourceName, tuple[str, ...]], NoDecode] = Field(default_factory=dict)
    """Name of a source to the namespaces whose Triggers may follow it, as JSON; `*` means all namespaces."""
    webhook_port: int = Field(default=8081, ge=0, le=65535)
    """Port of the webhook, and of nothing else."""

    @field_validator("sources", mode="before")
    @classmethod
    def _decode(cls, value: Any) -> Any:
        return json.loads(value, object_pairs_hook=_once) if isinstance(value, str) else value

    @field_validator("replicas_share")
    @classmethod
    def _is_not_set(cls, value: bool) -> bool:
        if value:
            raise ValueError("replicas of this service share messages, not triggers: leave it unset")
        return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that appears twice, of which a JSON parser would keep only the last value."""
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{', '.join(twice)}: named twice; join the namespaces under one name")
    return dict(pairs)
