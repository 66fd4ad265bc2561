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

_CONDITIONS: TypeAdapter[Conditions] = TypeAdapter(Conditions)


def find(conditions: Conditions, type_: str) -> Condition | None:
    """The condition of this type."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Conditions, type_: str) -> bool:
    """The condition of this type exists and its status is True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


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
