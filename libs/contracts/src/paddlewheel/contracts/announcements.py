"""Which facts an object's status has made true, and which of them the bus has confirmed.

A controller declares a fact in the same plan that makes it true, and publishes it once the status that
declares it is recorded. A crash between the two publishes again under the same id, which
the stream stores once; a dead bus leaves the fact pending in the API server until the bus is back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter


@dataclass(frozen=True)
class Announcement:
    """A fact that is true of the object, and whether the bus has confirmed it."""

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

    def event_id(self, uid: str) -> str:
        """The deterministic id by which the bus removes duplicates."""
        return f"{uid}/{self.fact}/{self.attempt}"


Announcements = tuple[Announcement, ...]
A = TypeVar("A", bound=Announcement)

_ANNOUNCEMENTS: TypeAdapter[Announcements] = TypeAdapter(Announcements)


def parse_announcements(raw: Sequence[Mapping[str, Any]] | None) -> Announcements:
    """From `status.announcements`."""
    return _ANNOUNCEMENTS.validate_python(raw or ())


def render_announcements(items: Announcements) -> list[dict[str, Any]]:
    """For `status.announcements`."""
    return [{"fact": a.fact, "attempt": a.attempt, "at": a.at, "announced": a.announced} for a in items]


def declare(items: Announcements, fact: str, at: str, *, attempt: int = 0) -> Announcements:
    """Add the fact unless it is declared already."""
    if any(a.fact == fact and a.attempt == attempt for a in items):
        return items
    return (*items, Announcement(fact, attempt, at))


def last_attempt(items: Announcements, fact: str) -> int:
    """Highest attempt declared for the fact, -1 when none."""
    return max((a.attempt for a in items if a.fact == fact), default=-1)


def pending(items: Announcements) -> Announcements:
    """Facts the bus has not confirmed, oldest first."""
    return tuple(a for a in items if not a.announced)


def confirm(items: Announcements, published: Collection[Announcement]) -> Announcements:
    """Mark those that were published."""
    done = {(a.fact, a.attempt) for a in published}
    return tuple(replace(a, announced=True) if (a.fact, a.attempt) in done else a for a in items)


def outstanding(items: Sequence[A]) -> tuple[A, ...]:
    """Those not confirmed, and the last attempt of each fact, after which the next one is numbered."""
    last = {a.fact: a for a in sorted(items, key=lambda a: a.attempt)}
    return tuple(a for a in items if not a.announced or last[a.fact] is a)
