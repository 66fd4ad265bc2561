"""The facts of a kind as one table: the message, when it becomes true, and how it is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from paddlewheel.contracts.announcements import (
    Announcement,
    Announcements,
    declare,
    last_attempt,
    pending,
)
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef

C = TypeVar("C")

PENDING_MAX = 32
"""Maximum number of facts of one object that wait for the bus, in its status.

Only an object that flaps during an outage of the bus has more. Then repetitions of facts are dropped, the
oldest first. The newest attempt of each fact is kept. So every terminal fact is kept, because it becomes true
once.
"""


def _first(_: object) -> int:
    return 0


@dataclass(frozen=True)
class Fact(Generic[C]):
    """One row of the table. `C` is the service's input for deciding and rendering facts.

    Args:
        message: the contract model. Its name is the name of the fact.
        when: whether the fact is true now. A fact is recorded once per attempt.
        render: returns the message, made from the object at the time of publication. During an outage of the
            bus, this is later than the fact. The reference has the version of the object that was last
            recorded.
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

    def render(self, announcement: Announcement, case: C, ref: ObjectRef) -> WireModel | None:
        """The message. None for a fact that another version of the service declared."""
        fact = self._facts.get(announcement.fact)
        return None if fact is None else fact.render(case, ref)


def _declare(items: Announcements, name: str, attempt: int, at: str) -> Announcements:
    if any(a.fact == name and a.attempt >= attempt for a in items):
        return items
    kept = tuple(a for a in items if a.fact != name or not a.announced)
    return _bounded(declare(kept, name, at, attempt=attempt))


def _bounded(items: Announcements) -> Announcements:
    waiting = pending(items)
    newest = {a.fact: last_attempt(items, a.fact) for a in waiting}
    repeated = [a for a in waiting if a.attempt < newest[a.fact]]
    dropped = frozenset(repeated[: max(0, len(waiting) - PENDING_MAX)])
    return tuple(a for a in items if a not in dropped) if dropped else items
