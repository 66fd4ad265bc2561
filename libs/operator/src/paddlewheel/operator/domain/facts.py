"""The facts of a kind as one table: the message, when it becomes true, and how it is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from paddlewheel.contracts.announcements import Announcement, Announcements, declare, pending
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.wire import from_json, to_json

A = TypeVar("A", bound=Announcement)
C = TypeVar("C")

PENDING_MAX = 256
"""Maximum number of facts of one object that wait for the bus, in its status: about 100 kB.

Only an object that flaps for an hour or more during an outage of the bus has more. Then repetitions of facts
are dropped, the oldest first, and counted. The newest attempt of each fact is kept. So every terminal fact is
kept, because it becomes true once.
"""


def _first(_: object) -> int:
    return 0


@dataclass(frozen=True)
class Fact(Generic[C]):
    """One row of the table. `C` is the service's input for deciding and rendering facts.

    Args:
        message: the contract model. Its name is the name of the fact.
        when: whether the fact is true now. A fact is recorded once per attempt.
        render: returns the message, when the fact is recorded. The reference has the version of the object
            that the decision was made for.
        attempt: number of the occurrence, for a fact that can become true several times.
    """

    message: type[WireModel]
    when: Callable[[C], bool]
    render: Callable[[C, ObjectRef], WireModel]
    attempt: Callable[[C], int] = _first

    @property
    def name(self) -> str:
        """The name of the fact, for example `JobRunning`."""
        return self.message.__name__


class FactTable(Generic[C]):
    """All facts of one kind. Facts that become true at the same time are published in this order."""

    def __init__(self, *facts: Fact[C]) -> None:
        self._facts = {fact.name: fact for fact in facts}

    def __iter__(self) -> Iterator[Fact[C]]:
        return iter(self._facts.values())

    def declare(self, items: Announcements, case: C, at: str) -> Announcements:
        """Add the facts that have become true. `at` is a time in RFC 3339, UTC.

        To keep the list short, older attempts of a fact are dropped once they are confirmed, or when more
        than `PENDING_MAX` facts wait.
        """
        for fact in self:
            if fact.when(case):
                items = _declare(items, fact.name, fact.attempt(case), at)
        return items

    def record(self, items: tuple[A, ...], case: C, ref: ObjectRef) -> tuple[A, ...]:
        """Add the message to each pending fact that has none.

        These are the facts that this pass has declared, and facts that an older release has recorded without
        a message: they get the message that the older release would publish now.
        """
        return tuple(a if a.announced or a.payload else self._with_payload(a, case, ref) for a in items)

    def _with_payload(self, announcement: A, case: C, ref: ObjectRef) -> A:
        message = self.render(announcement, case, ref)
        return announcement if message is None else announcement.with_payload(to_json(message).decode())

    def render(self, announcement: Announcement, case: C | None, ref: ObjectRef) -> WireModel | None:
        """The message: the recorded one, or one made from the case if none is recorded.

        None for a fact that another version of the service declared, or without a case if none is recorded.
        Raises Permanent for a recorded message that cannot be read.
        """
        fact = self._facts.get(announcement.fact)
        if fact is None:
            return None
        if announcement.payload:
            return from_json(fact.message, announcement.payload.encode())
        return None if case is None else fact.render(case, ref)


def has_expired(
    expires_at: datetime | None, deleted_at: datetime, items: Announcements, last: type[WireModel]
) -> bool:
    """True when the controller has deleted the object at the end of its time to live.

    The controller does this only after all facts are published. So when another fact than the last one waits,
    a user has deleted the object.
    """
    is_due = expires_at is not None and deleted_at >= expires_at
    return is_due and all(fact.fact == last.__name__ for fact in pending(items))


def _declare(items: Announcements, name: str, attempt: int, at: str) -> Announcements:
    if any(a.fact == name and a.attempt >= attempt for a in items):
        return items
    kept = tuple(a for a in items if a.fact != name or not a.announced)
    return bounded(declare(kept, name, at, attempt=attempt))


def bounded(items: tuple[A, ...]) -> tuple[A, ...]:
    """Without the oldest repetitions, when more than `PENDING_MAX` facts wait."""
    waiting = pending(items)
    if len(waiting) <= PENDING_MAX:
        return items
    newest: dict[str, int] = {}
    for a in waiting:
        newest[a.fact] = max(a.attempt, newest.get(a.fact, a.attempt))
    repeated = [a for a in waiting if a.attempt < newest[a.fact]]
    dropped = frozenset(repeated[: len(waiting) - PENDING_MAX])
    return tuple(a for a in items if a not in dropped)
