"""A kind's facts as one table: which message, when it becomes true, how it is rendered."""

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
"""Facts of one object that may wait for the bus, in its status. More come only from an object that flaps
while the bus is away; then repetitions of facts are dropped, the oldest first. The newest attempt of each
fact stays, and so does every terminal fact, for it becomes true once."""


def _first(_: object) -> int:
    return 0


@dataclass(frozen=True)
class Fact(Generic[C]):
    """One row. `C` is what the service decides and renders facts from.

    Args:
        message: contract model; its name is the fact's name.
        when: whether the fact is true now. A fact is recorded once per attempt.
        render: the message's content, from the object at the time of the publication, which an outage of the
            bus makes later than the fact; the reference names the object as last recorded.
        attempt: number of the occurrence, for facts that can become true again.
    """

    message: type[WireModel]
    when: Callable[[C], bool]
    render: Callable[[C, ObjectRef], WireModel]
    attempt: Callable[[C], int] = _first

    @property
    def name(self) -> str:
        """`JobRunning`."""
        return self.message.__name__


class FactTable(Generic[C]):
    """All facts of one kind, in the order in which they are published when several become true at once."""

    def __init__(self, *facts: Fact[C]) -> None:
        self._facts = {fact.name: fact for fact in facts}

    def __iter__(self) -> Iterator[Fact[C]]:
        return iter(self._facts.values())

    def declare(self, items: Announcements, case: C, at: str) -> Announcements:
        """Add what has become true. `at` is RFC 3339 UTC.

        Older attempts of a fact are dropped once they are confirmed, or when too many facts wait
        (`PENDING_MAX`), so that the list stays short.
        """
        for fact in self:
            if fact.when(case):
                items = _declare(items, fact.name, fact.attempt(case), at)
        return items

    def render(self, announcement: Announcement, case: C, ref: ObjectRef) -> WireModel | None:
        """The message, None for a fact that another version of the service declared."""
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
