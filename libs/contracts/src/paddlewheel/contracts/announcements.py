"""The facts of an object in its status, each with its message, and whether the bus has stored it.

A controller declares a fact in the plan that makes it true, and publishes it after the status was written.
After a crash in between, the fact is published again with the same id, which the stream stores once. While
the bus is unreachable, the fact stays pending in the API server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, TypeAdapter

from paddlewheel.contracts.stamps import EPOCH, parse_stamp


@dataclass(frozen=True)
class Announcement:
    """A fact of the object with its message, and whether the bus has stored it."""

    fact: Annotated[str, Field(description="Message name, e.g. JobRunning.")]
    attempt: Annotated[
        int,
        Field(
            default=0,
            description="Counts repetitions of the fact, from 0.",
            json_schema_extra={"format": "int64"},
        ),
    ]
    at: Annotated[
        str, Field(description="When the fact became true.", json_schema_extra={"format": "date-time"})
    ]
    announced: Annotated[bool, Field(description="The bus has stored it.")] = False
    payload: Annotated[
        str,
        Field(
            description="The message as JSON, as it was when the fact became true. Facts of an older release"
            " have none."
        ),
    ] = ""

    def event_id(self, uid: str) -> str:
        """The deterministic id by which the bus removes duplicates."""
        return f"{uid}/{self.fact}/{self.attempt}"

    def with_payload(self, payload: str) -> Self:
        """The pending fact with its message. The message replaces the fields of a subclass."""
        return type(self)(self.fact, self.attempt, self.at, payload=payload)


Announcements = tuple[Announcement, ...]
A = TypeVar("A", bound=Announcement)

_ANNOUNCEMENTS: TypeAdapter[Announcements] = TypeAdapter(Announcements)


def parse_announcements(raw: Sequence[Mapping[str, Any]] | None) -> Announcements:
    """Read `status.announcements`."""
    return _ANNOUNCEMENTS.validate_python(raw or ())


def render_announcements(items: Announcements) -> list[dict[str, Any]]:
    """Write `status.announcements`."""
    return [
        {"fact": a.fact, "attempt": a.attempt, "at": a.at, "announced": a.announced}
        | ({"payload": a.payload} if a.payload else {})
        for a in items
    ]


def declare(items: Announcements, fact: str, at: str, *, attempt: int = 0) -> Announcements:
    """Add the fact unless it is declared already."""
    if any(a.fact == fact and a.attempt == attempt for a in items):
        return items
    return (*items, Announcement(fact, attempt, later(items, at)))


def later(items: Sequence[Announcement], at: str) -> str:
    """The time of the next fact: `at`, but not before the last fact.

    So the times of an object's facts are in the order of the facts, also after another replica, whose clock
    is behind, has taken over.
    """
    return max((*(a.at for a in items), at), key=lambda stamp: parse_stamp(stamp) or EPOCH)


def last_attempt(items: Announcements, fact: str) -> int:
    """Highest attempt declared for the fact, -1 when none."""
    return max((a.attempt for a in items if a.fact == fact), default=-1)


def pending(items: Announcements) -> Announcements:
    """Facts that the bus has not stored, oldest first."""
    return tuple(a for a in items if not a.announced)


def confirm(items: Announcements, published: Collection[Announcement]) -> Announcements:
    """Mark the published facts."""
    done = {(a.fact, a.attempt) for a in published}
    return tuple(replace(a, announced=True) if (a.fact, a.attempt) in done else a for a in items)


def outstanding(items: Sequence[A]) -> tuple[A, ...]:
    """Pending facts, and the last attempt of each fact, after which the next attempt is numbered."""
    last = {a.fact: a for a in sorted(items, key=lambda a: a.attempt)}
    return tuple(a for a in items if not a.announced or last[a.fact] is a)
