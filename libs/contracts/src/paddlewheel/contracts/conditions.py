"""Standard Kubernetes conditions as values; the transition time changes only with the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Condition:
    """A standard Kubernetes condition."""

    type: Annotated[str, Field(description="CamelCase, stable.")]
    status: Annotated[
        str,
        Field(
            description="True, False or Unknown.", json_schema_extra={"enum": ["True", "False", "Unknown"]}
        ),
    ]
    reason: Annotated[str, Field(description="CamelCase reason for the last transition.")] = ""
    message: Annotated[str, Field(description="What is wrong and how to correct it.")] = ""
    last_transition_time: Annotated[
        str,
        Field(description="When `status` last changed.", json_schema_extra={"format": "date-time"}),
    ] = ""
    observed_generation: Annotated[
        int,
        Field(description="Generation of the evaluated spec.", json_schema_extra={"format": "int64"}),
    ] = 0

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)


Conditions = tuple[Condition, ...]

RECONCILE_FAILED = "ReconcileFailed"
"""True after a bug of the controller, or for an object that it cannot read, until a pass has succeeded."""

_CONDITIONS: TypeAdapter[Conditions] = TypeAdapter(Conditions)


def find(conditions: Conditions, type_: str) -> Condition | None:
    """The condition of this type."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Conditions, type_: str) -> bool:
    """The condition of this type exists and its status is True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def explain(conditions: Conditions, order: Sequence[tuple[str, str]]) -> dict[str, str]:
    """`status.reason` and `status.message`, for the columns of `kubectl get`.

    Args:
        order: types with a status, "" for any. The first condition that has it explains the object's state,
            unless a pass has failed.
    """
    wanted = ((RECONCILE_FAILED, "True"), *order)
    found = ((find(conditions, type_), status) for type_, status in wanted)
    first = next((c for c, status in found if c is not None and status in ("", c.status)), None)
    return {"reason": first.reason, "message": first.message} if first else {"reason": "", "message": ""}


def parse_conditions(raw: Sequence[Mapping[str, Any]] | None) -> Conditions:
    """From `status.conditions`."""
    return _CONDITIONS.validate_python(raw or ())


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
    """Set the condition of a type; an unchanged status keeps its transition time."""
    old = find(conditions, new.type)
    since = old.last_transition_time if old and old.status == new.status else now
    stamped = Condition(new.type, new.status, new.reason, new.message, since, new.observed_generation)
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if c.type == new.type else c for c in conditions)
