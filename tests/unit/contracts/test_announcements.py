"""The outbox in an object's status."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.announcements import Announcement, Announcements, outstanding


def fact(name: str, attempt: int, *, announced: bool) -> Announcement:
    return Announcement(name, attempt, "2026-01-31T12:00:00.000Z", announced)


A0, A1, A2 = (fact("A", n, announced=True) for n in range(3))
B0 = fact("B", 0, announced=True)
PENDING = fact("A", 3, announced=False)


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ((), ()),
        ((A0, A1, B0, A2), (B0, A2)),
        ((A0, A2, PENDING, B0), (PENDING, B0)),
        ((PENDING, A0), (PENDING,)),
    ],
)
def test_confirmed_facts_are_done_with_but_for_the_last_of_each(
    items: Announcements, kept: Announcements
) -> None:
    assert outstanding(items) == kept
