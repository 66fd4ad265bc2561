"""What both kinds keep in their status besides their own fields: conditions, facts told, generation.

A fact is declared in the same plan that makes it true; `paddlewheel.contracts.announcements` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dataset_controller.domain.actions import Notice
from dataset_controller.domain.names import Cond, Reason
from dataset_controller.domain.text import stamp
from paddlewheel.contracts.announcements import (
    Announcements,
    declare,
    last_attempt,
    parse_announcements,
    pending,
    render_announcements,
)
from paddlewheel.contracts.conditions import (
    Condition,
    Conditions,
    parse_conditions,
    render_conditions,
    set_condition,
)

MESSAGE_MAX = 1024


@dataclass(frozen=True)
class Journal:
    """Conditions and announcements of one object as of one generation."""

    conditions: Conditions = ()
    announcements: Announcements = ()
    observed_generation: int = 0

    def condition(self, type_: str) -> Condition | None:
        """The condition of the type, None when it was never set."""
        return next((c for c in self.conditions if c.type == type_), None)

    def holds(self, type_: str) -> bool:
        """The condition stands and is True."""
        found = self.condition(type_)
        return found is not None and found.status == "True"

    def attempt(self, fact: str) -> int:
        """Highest attempt declared for the fact, -1 when none."""
        return last_attempt(self.announcements, fact)

    def note(self, type_: str, status: bool, reason: str, message: str, now: datetime) -> Journal:
        """Set a condition; its transition time moves only with its status."""
        new = Condition(
            type_, str(status), reason, message[:MESSAGE_MAX], observed_generation=self.observed_generation
        )
        return replace(self, conditions=set_condition(self.conditions, new, stamp(now)))

    def declare(self, fact: str, now: datetime, attempt: int = 0) -> Journal:
        """Make the fact known once; older attempts that the bus has confirmed are dropped."""
        if attempt <= self.attempt(fact):
            return self
        kept = tuple(a for a in self.announcements if a.fact != fact or not a.announced)
        return replace(self, announcements=declare(kept, fact, stamp(now), attempt=attempt))

    def with_announcements(self, announcements: Announcements) -> Journal:
        """The same with other announcements."""
        return replace(self, announcements=announcements)

    @property
    def pending(self) -> Announcements:
        """Facts that the bus has not confirmed, oldest first."""
        return pending(self.announcements)

    def render(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "conditions": render_conditions(self.conditions),
            "announcements": render_announcements(self.announcements),
            "observedGeneration": self.observed_generation,
        }


def parse_journal(status: Mapping[str, Any], generation: int) -> Journal:
    """From `status`, ready to be written for `generation`."""
    return Journal(
        parse_conditions(status.get("conditions")),
        parse_announcements(status.get("announcements")),
        generation,
    )


def notices_of(before: Journal, after: Journal) -> tuple[Notice, ...]:
    """A Warning for each refusal that is new or says something new."""
    old = before.condition(Cond.ACCEPTED)
    new = after.condition(Cond.ACCEPTED)
    if new is None or new.status == "True":
        return ()
    if old and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return ()
    return (Notice("Warning", new.reason, new.message),)


def after_effects(journal: Journal, failure: tuple[str, str] | None, now: datetime) -> Journal:
    """Record whether the children could be written; silent as long as they always could.

    Args:
        failure: reason and message of what the API server refused.
    """
    if failure is not None:
        return journal.note(Cond.RECONCILED, False, *failure, now)
    if journal.condition(Cond.RECONCILED) is None:
        return journal
    return journal.note(Cond.RECONCILED, True, Reason.ACCEPTED, "", now)
