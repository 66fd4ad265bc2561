"""The marks of events that triggers have handled, a limited number for each namespace.

A namespace has one entry for each beginning of a digest, and each entry keeps its newest marks. A namespace
with many events displaces only its own marks. The bucket has room for a dozen such namespaces.

An entry also has the days on which marks were added, before the first mark of each day. They show the age of
the marks that an entry forgets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

PREFIX_LENGTH = 2
"""Characters at the beginning of a digest. There are 32 characters, so a namespace has up to 1,024
entries."""
MOST = 256
"""Marks in one entry, at most. Each has 17 bytes."""

Marks = tuple[str, ...]
"""Digests and days, the newest last."""
_DAY = "@"
"""Before the number of a day. No digest has it."""


def key_of(namespace: str, digest: str) -> str:
    """The key of the entry that may contain the mark of an event."""
    return f"marks.{namespace}.{digest[:PREFIX_LENGTH]}"


def read(value: bytes | None) -> Marks:
    """Parse an entry: digests and days, the newest last."""
    return tuple((value or b"").decode().split())


def write(marks: Iterable[str]) -> bytes:
    """Render an entry."""
    return " ".join(marks).encode()


def added(marks: Marks, digests: Collection[str], day: int) -> Marks:
    """Add digests, and remove the oldest marks if there are too many. Idempotent.

    Args:
        day: the number of the present day.
    """
    new = [digest for digest in dict.fromkeys(digests) if digest not in marks]
    today = f"{_DAY}{day}"
    if new and marks and not _is_day(marks[0]):
        # A release without days wrote these marks.
        marks = (today, *marks)
    every = (*marks, *new) if not new or today in marks else (*marks, today, *new)
    kept = {mark for mark in every if not _is_day(mark)}
    for mark in every:
        if len(kept) <= MOST:
            break
        kept.discard(mark)
    return tuple(_with_days(every, kept))


def forgotten(before: Marks, after: Marks, since: int) -> int:
    """The number of marks, added after the day `since`, that an entry no longer has."""
    day, count = 0, 0
    for mark in before:
        if _is_day(mark):
            day = int(mark.removeprefix(_DAY))
        elif mark not in after:
            count += day > since
    return count


def _with_days(every: Marks, kept: Collection[str]) -> Iterable[str]:
    """The kept marks, with the days of these only."""
    day = ""
    for mark in every:
        if _is_day(mark):
            day = mark
        elif mark in kept:
            yield from (day, mark) if day else (mark,)
            day = ""


def _is_day(mark: str) -> bool:
    return mark.startswith(_DAY)
