"""Standard Kubernetes conditions as values; the transition time moves only with the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Condition:
    """One condition. `status` is True, False or Unknown; times are RFC 3339 UTC."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


Conditions = tuple[Condition, ...]


def find(conditions: Conditions, type_: str) -> Condition | None:
    """The condition of this type."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Conditions, type_: str) -> bool:
    """The condition of this type exists and its status is True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def parse_conditions(raw: Sequence[Mapping[str, Any]] | None) -> Conditions:
    """From `status.conditions`."""
    return tuple(
        Condition(
            str(c["type"]),
            str(c["status"]),
            str(c.get("reason", "")),
            str(c.get("message", "")),
            str(c.get("lastTransitionTime", "")),
            int(c.get("observedGeneration", 0)),
        )
        for c in raw or ()
    )


def render_conditions(conditions: Conditions) -> list[dict[str, Any]]:
    """For `status.conditions`."""
    return [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "lastTransitionTime": c.last_transition_time,
            "observedGeneration": c.observed_generation,
        }
        for c in conditions
    ]


def set_condition(conditions: Conditions, new: Condition, now: str) -> Conditions:
    """Put `new` in place of its type; an unchanged status keeps its transition time."""
    old = find(conditions, new.type)
    since = old.last_transition_time if old and old.status == new.status else now
    stamped = Condition(new.type, new.status, new.reason, new.message, since, new.observed_generation)
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if c.type == new.type else c for c in conditions)
