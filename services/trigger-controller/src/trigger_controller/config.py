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
    """Settings beside those every controller has."""

    model_config = SettingsConfigDict(env_prefix="TRIGGER_CONTROLLER_", frozen=True, extra="ignore")

    replicas_share: bool = False
    """Replicas share the messages, not the triggers: any replica may get an event for any trigger."""
    webhook_tokens_dir: Path | None = None
    """Holds a file for each source, with the bearer tokens that its store may send; None receives nothing."""
    webhook_tls_dir: Path | None = None
    """Holds tls.crt and tls.key of the webhook; None receives over plain HTTP."""
    sources: Annotated[dict[SourceName, tuple[str, ...]], NoDecode] = Field(default_factory=dict)
    """Namespaces whose Triggers may follow a source, by its name, as JSON; `*` means all. Others may not."""
    webhook_port: int = Field(default=8081, ge=0, le=65535)
    """Of the webhook, which has it for itself."""

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
    """Of two grants under one name JSON's readers keep the last, silently."""
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{', '.join(twice)}: named twice; join the namespaces under one name")
    return dict(pairs)
