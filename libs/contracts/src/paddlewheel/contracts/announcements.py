"""The facts in an object's status: an outbox of messages, and whether the bus has stored each of them.

A controller records a fact in the status, and publishes it after the status is written. If the controller
crashes in between, it publishes the fact again with the same id, and the stream stores the fact once. While
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
    """A fact about the object with its message, and whether the bus has stored it."""

    fact: Annotated[str, Field(description="Message name, e.g. JobRunning.")]
    attempt: Annotated[
        int,
        Field(
            default=0,
            description="Number of times that the fact was true before; 0 for the first time.",
            json_schema_extra={"format": "int64"},
        ),
    ]
    at: Annotated[
        str, Field(description="When the fact became true.", json_schema_extra={"format": "date-time"})
    ]
    announced: Annotated[bool, Field(description="Whether the bus has stored the fact.")] = False
    payload: Annotated[
        str,
        Field(
            description="Message of the fact as JSON, with the values of the time when the fact became true."
            " Absent in facts that an older release recorded."
        ),
    ] = ""

    def event_id(self, uid: str) -> str:
        """The deterministic id by which the bus removes duplicates."""
        return f"{uid}/{self.fact}/{self.attempt}"

    def with_payload(self, payload: str) -> Self:
        """The pending fact with its message, which replaces the values that a subclass has."""
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
    """Add the fact, unless `items` contains it already."""
    if any(a.fact == fact and a.attempt == attempt for a in items):
        return items
    return (*items, Announcement(fact, attempt, later(items, at)))


def later(items: Sequence[Announcement], at: str) -> str:
    """The time of the next fact: `at`, or the time of the last fact if that is later.

    An object's facts are ordered by their times, even if another replica with a slower clock takes over.
    """
    return max((*(a.at for a in items), at), key=lambda stamp: parse_stamp(stamp) or EPOCH)


def last_attempt(items: Announcements, fact: str) -> int:
    """The highest attempt of the fact in `items`; -1 if there is none."""
    return max((a.attempt for a in items if a.fact == fact), default=-1)


def pending(items: Announcements) -> Announcements:
    """The facts that the bus has not stored yet, the oldest first."""
    return tuple(a for a in items if not a.announced)


def confirm(items: Announcements, published: Collection[Announcement]) -> Announcements:
    """Mark the published facts as stored by the bus."""
    done = {(a.fact, a.attempt) for a in published}
    return tuple(replace(a, announced=True) if (a.fact, a.attempt) in done else a for a in items)


def outstanding(items: Sequence[A]) -> tuple[A, ...]:
    """The pending facts, and the last attempt of each fact, from which the next attempt gets its number."""
    last = {a.fact: a for a in sorted(items, key=lambda a: a.attempt)}
    return tuple(a for a in items if not a.announced or last[a.fact] is a)
