"""What the status of both kinds contains: generation, conditions, announcements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from dataset_controller.domain.limits import MESSAGE_MAX
from paddlewheel.contracts.announcements import (
    Announcements,
    last_attempt,
    parse_announcements,
    render_announcements,
)
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.conditions import (
    Condition,
    Conditions,
    explain,
    find,
    is_true,
    parse_conditions,
    render_conditions,
    set_condition,
)
from paddlewheel.contracts.stamps import seconds_stamp


@dataclass(frozen=True, kw_only=True)
class ObjectStatus:
    """Base of `SetStatus` and `JobStatus`."""

    observed_generation: int = 0
    conditions: Conditions = ()
    announcements: Announcements = ()

    def condition(self, type_: str) -> Condition | None:
        """None when it was never set."""
        return find(self.conditions, type_)

    def reason_of(self, type_: str) -> str:
        """Of the condition; "" when it was never set."""
        found = self.condition(type_)
        return found.reason if found else ""

    def holds(self, type_: str) -> bool:
        """The condition is True."""
        return is_true(self.conditions, type_)

    def attempt(self, fact: type[WireModel]) -> int:
        """Highest attempt declared of the fact, -1 when none."""
        return last_attempt(self.announcements, fact.__name__)

    def with_condition(self, type_: str, is_met: bool, reason: str, message: str, now: datetime) -> Self:
        """Set a condition; its transition time changes only with its status."""
        new = Condition(
            type_, str(is_met), reason, message[:MESSAGE_MAX], observed_generation=self.observed_generation
        )
        return replace(self, conditions=set_condition(self.conditions, new, seconds_stamp(now)))

    def with_condition_of(self, other: Self, type_: str) -> Self:
        """As the other status has it, if it has it."""
        found = other.condition(type_)
        rest = self.without_conditions(type_)
        return rest if found is None else replace(rest, conditions=(*rest.conditions, found))

    def without_conditions(self, *types: str) -> Self:
        """As if they had never been set."""
        return replace(self, conditions=tuple(c for c in self.conditions if c.type not in types))

    def _render_common(self, explained_by: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {
            **explain(self.conditions, explained_by),
            "conditions": render_conditions(self.conditions),
            "announcements": render_announcements(self.announcements),
            "observedGeneration": self.observed_generation,
        }


def parse_common(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `ObjectStatus` from `status`."""
    return {
        "observed_generation": int(raw.get("observedGeneration") or 0),
        "conditions": parse_conditions(raw.get("conditions")),
        "announcements": parse_announcements(raw.get("announcements")),
    }
