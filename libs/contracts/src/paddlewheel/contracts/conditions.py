"""Standard Kubernetes conditions. The transition time changes only when the status does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Condition:
    """A standard Kubernetes condition."""

    type: Annotated[str, Field(description="Type of the condition, in CamelCase.")]
    status: Annotated[
        str,
        Field(
            description="Status of the condition: True, False or Unknown.",
            json_schema_extra={"enum": ["True", "False", "Unknown"]},
        ),
    ]
    reason: Annotated[str, Field(description="Why the condition has this status, as one CamelCase word.")] = (
        ""
    )
    message: Annotated[str, Field(description="Details for people: what is wrong, and what to do.")] = ""
    last_transition_time: Annotated[
        str,
        Field(description="When the status last changed.", json_schema_extra={"format": "date-time"}),
    ] = ""
    observed_generation: Annotated[
        int,
        Field(
            description="The metadata.generation that the condition was computed from.",
            json_schema_extra={"format": "int64"},
        ),
    ] = 0

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)


Conditions = tuple[Condition, ...]

RECONCILE_FAILED = "ReconcileFailed"
"""True when the last reconciliation failed, because of a bug or because the object cannot be read."""

_CONDITIONS: TypeAdapter[Conditions] = TypeAdapter(Conditions)


def find(conditions: Conditions, type_: str) -> Condition | None:
    """The condition of this type; None if there is none."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Conditions, type_: str) -> bool:
    """Whether there is a condition of this type with the status True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def explain(conditions: Conditions, order: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values of `status.reason` and `status.message`, which `kubectl get` shows.

    They are those of the first condition that matches.

    Args:
        order: types of conditions, each with the status to match; "" matches any status. ReconcileFailed=True
            precedes all of them.
    """
    wanted = ((RECONCILE_FAILED, "True"), *order)
    found = ((find(conditions, type_), status) for type_, status in wanted)
    first = next((c for c, status in found if c is not None and status in ("", c.status)), None)
    return {"reason": first.reason, "message": first.message} if first else {"reason": "", "message": ""}


def parse_conditions(raw: Sequence[Mapping[str, Any]] | None) -> Conditions:
    """Parse `status.conditions`."""
    return _CONDITIONS.validate_python(raw or ())


def render_conditions(conditions: Conditions) -> list[dict[str, Any]]:
    """Render `status.conditions`."""
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
    """Add a condition, or replace that of the same type.

    If its status is the same, the transition time is kept.
    """
    old = find(conditions, new.type)
    since = old.last_transition_time if old and old.status == new.status else now
    stamped = Condition(new.type, new.status, new.reason, new.message, since, new.observed_generation)
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if c.type == new.type else c for c in conditions)
