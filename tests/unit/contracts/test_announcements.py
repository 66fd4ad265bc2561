"""The outbox in an object's status."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.announcements import (
    Announcement,
    Announcements,
    declare,
    later,
    outstanding,
    parse_announcements,
    render_announcements,
)
from paddlewheel.contracts.crds.trigger import TriggerAnnouncement


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


@pytest.mark.parametrize(
    ("times", "at", "expected"),
    [
        ((), "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.000Z"),
        (("2026-01-31T12:00:00.000Z",), "2026-01-31T12:00:01.000Z", "2026-01-31T12:00:01.000Z"),
        (("2026-01-31T12:00:00.000Z",), "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.000Z"),
        # The clock was set back, or another replica's is behind.
        (
            ("2026-01-31T12:00:00.500Z", "2026-01-31T11:00:00Z"),
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.500Z",
        ),
        # A time without milliseconds sorts by its value, not by its letters.
        (("2026-01-31T12:00:00Z",), "2026-01-31T12:00:00.001Z", "2026-01-31T12:00:00.001Z"),
        (("t",), "2026-01-31T12:00:00.001Z", "2026-01-31T12:00:00.001Z"),
    ],
)
def test_the_time_of_a_fact_is_not_before_that_of_the_facts_before_it(
    times: tuple[str, ...], at: str, expected: str
) -> None:
    items = tuple(Announcement("A", number, time) for number, time in enumerate(times))
    assert later(items, at) == expected
    assert declare(items, "B", at)[-1].at == expected


def test_a_recorded_message_is_kept_through_the_status_and_replaces_the_parts() -> None:
    parts = TriggerAnnouncement("TriggerFired", 3, "2026-01-31T12:00:00.000Z", event="e-1", events=2)
    recorded = parts.with_payload('{"eventId":"e-1"}')
    assert recorded == TriggerAnnouncement("TriggerFired", 3, parts.at, payload='{"eventId":"e-1"}')
    common = fact("A", 0, announced=False).with_payload("{}")
    assert parse_announcements(render_announcements((common,))) == (common,)
    assert "payload" not in render_announcements((A0,))[0]
