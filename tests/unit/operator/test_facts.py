"""The fact table declares each fact once per attempt, in order, and renders it by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from paddlewheel.contracts.announcements import Announcement, Announcements
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobDeleted, JobGated
from paddlewheel.operator.domain.facts import PENDING_MAX, Fact, FactTable

AT = "2026-01-01T00:00:00Z"
REF = ObjectRef(namespace="ns", name="x", uid="u")


@dataclass(frozen=True)
class Case:
    """A toy case: whether an object is gated, how often it was gated, and whether it is gone."""

    is_gated: bool = False
    time: int = 0
    is_gone: bool = False


TABLE: FactTable[Case] = FactTable(
    Fact(JobAccepted, lambda _: True, lambda _, ref: JobAccepted(job=ref)),
    Fact(JobGated, lambda c: c.is_gated, lambda c, ref: JobGated(job=ref), lambda c: c.time),
    Fact(JobDeleted, lambda c: c.is_gone, lambda _, ref: JobDeleted(job=ref)),
)


def declared(*cases: Case, items: Announcements = ()) -> list[tuple[str, int]]:
    for case in cases:
        items = TABLE.declare(items, case, AT)
    return [(a.fact, a.attempt) for a in items]


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([Case()], [("JobAccepted", 0)]),
        ([Case(), Case()], [("JobAccepted", 0)]),
        ([Case(True)], [("JobAccepted", 0), ("JobGated", 0)]),
        ([Case(True), Case(True)], [("JobAccepted", 0), ("JobGated", 0)]),
        ([Case(True), Case(True, 1)], [("JobAccepted", 0), ("JobGated", 0), ("JobGated", 1)]),
        ([Case(True, 1), Case(True, 0)], [("JobAccepted", 0), ("JobGated", 1)]),
    ],
)
def test_a_fact_is_declared_once_per_attempt(cases: list[Case], expected: list[tuple[str, int]]) -> None:
    assert declared(*cases) == expected


def test_confirmed_older_attempts_are_dropped() -> None:
    items = TABLE.declare((), Case(True), AT)
    confirmed = tuple(replace(a, announced=True) for a in items)
    assert declared(Case(True, 1), items=confirmed) == [("JobAccepted", 0), ("JobGated", 1)]


def test_a_declared_fact_is_stamped_and_pending() -> None:
    assert TABLE.declare((), Case(), AT) == (Announcement("JobAccepted", 0, AT, False),)


def test_a_fact_is_rendered_by_its_name() -> None:
    assert TABLE.render(Announcement("JobGated", 0, AT), Case(), REF) == JobGated(job=REF)


def test_a_fact_of_another_version_is_not_rendered() -> None:
    assert TABLE.render(Announcement("JobDreamt", 0, AT), Case(), REF) is None


def test_a_facts_name_is_its_messages() -> None:
    assert [fact.name for fact in TABLE] == ["JobAccepted", "JobGated", "JobDeleted"]


def flapped(times: int, items: Announcements = ()) -> Announcements:
    for time in range(times):
        items = TABLE.declare(items, Case(True, time), AT)
    return items


def test_an_outbox_that_nobody_empties_keeps_the_newest_of_each_fact_and_the_order() -> None:
    items = flapped(10 * PENDING_MAX)
    attempts = [a.attempt for a in items if a.fact == "JobGated"]
    assert len(items) == PENDING_MAX
    assert items[0].fact == "JobAccepted"
    assert attempts == list(range(10 * PENDING_MAX))[-len(attempts) :]


def test_no_fact_loses_its_newest_attempt_however_long_the_others_are() -> None:
    items: Announcements = ()
    for time in range(2 * PENDING_MAX):
        gone = TABLE.declare(items, Case(is_gone=True), AT)
        assert {a.fact for a in gone} >= {"JobAccepted", "JobDeleted"}
        items = TABLE.declare(items, Case(True, time), AT)


def test_up_to_the_maximum_nothing_is_dropped_and_published_facts_do_not_count() -> None:
    assert len(flapped(PENDING_MAX - 1)) == PENDING_MAX
    accepted = tuple(replace(a, announced=True) for a in TABLE.declare((), Case(), AT))
    assert len(flapped(PENDING_MAX, accepted)) == PENDING_MAX + 1
