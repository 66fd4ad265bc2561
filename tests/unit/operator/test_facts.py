"""A kind's facts as one table: declared once per attempt, in order, rendered by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from paddlewheel.contracts.announcements import Announcement, Announcements
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobDeleted, JobGated
from paddlewheel.operator.domain.facts import Fact, FactTable

AT = "2026-01-01T00:00:00Z"
REF = ObjectRef(namespace="ns", name="x", uid="u")


@dataclass(frozen=True)
class Case:
    """A toy: whether it is gated, and for which time."""

    is_gated: bool = False
    time: int = 0


TABLE: FactTable[Case] = FactTable(
    Fact(JobAccepted, lambda _: True, lambda _, ref: JobAccepted(job=ref)),
    Fact(JobGated, lambda c: c.is_gated, lambda c, ref: JobGated(job=ref), lambda c: c.time),
    Fact(JobDeleted, lambda _: False, lambda _, ref: JobDeleted(job=ref)),
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
