"""The trigger's facts: one table. A new fact is a message in `protos/` and a row here.

A trigger fires many times, also within one pass. So every fact has a number. A plan declares a fact with the
parts of its message; the reconciler records the message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paddlewheel.contracts.announcements import Announcement, last_attempt, later, outstanding, pending
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import TriggerAnnouncement
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.triggers_v1 import TriggerFailed, TriggerFired
from paddlewheel.operator.domain.facts import PENDING_MAX, Fact, FactTable

_NOTHING = TriggerAnnouncement("", 0, "")


@dataclass(frozen=True)
class Case:
    """The parts of the message of a firing or a failure. The default is neither."""

    entry: TriggerAnnouncement = _NOTHING


class _Table(FactTable[Case]):
    def render(self, announcement: Announcement, case: Case | None, ref: ObjectRef) -> WireModel | None:
        if case is not None and isinstance(announcement, TriggerAnnouncement):
            case = Case(announcement)
        return super().render(announcement, case, ref)


def _fired(case: Case, ref: ObjectRef) -> TriggerFired:
    entry, child = case.entry, case.entry.created
    created = child and ObjectRef(namespace=ref.namespace, name=child.name, uid=child.uid)
    return TriggerFired(
        trigger=ref,
        event_id=entry.event,
        event_type=entry.event_type,
        events=entry.events,
        kind=child.kind if child else "",
        created=created,
    )


def _failed(case: Case, ref: ObjectRef) -> TriggerFailed:
    entry = case.entry
    return TriggerFailed(
        trigger=ref,
        event_id=entry.event,
        event_type=entry.event_type,
        events=entry.events,
        reason=entry.reason,
        message=entry.message,
    )


FACTS = _Table(
    Fact(TriggerFired, lambda c: c.entry.created is not None, _fired),
    Fact(TriggerFailed, lambda c: c.entry.reason != "", _failed),
)


def declare(status: TriggerStatus, content: TriggerAnnouncement, at: str) -> TriggerStatus:
    """Add the fact that this content makes true, under the next number. `at` is RFC 3339 UTC."""
    facts = outstanding(status.announcements)
    for fact in FACTS:
        if fact.when(Case(content)):
            number = last_attempt(facts, fact.name) + 1
            facts = (*facts, replace(content, fact=fact.name, attempt=number, at=later(facts, at)))
    return status.model_copy(update={"announcements": facts})


def outbox_room(status: TriggerStatus) -> int:
    """How many more facts the outbox takes. Further events wait on the bus, gathered ones in the status."""
    return max(0, PENDING_MAX - len(pending(status.announcements)))
