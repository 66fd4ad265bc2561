"""Facts as tables: when each is declared, under which attempt, and what it contains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import NOW, OWNER_UID, make_observed, make_observed_job, make_set

from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.samplejob import facts as job_facts
from dataset_controller.domain.samplejob.model import JobStatus
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.sampleset import facts as set_facts
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.status import with_facts
from paddlewheel.contracts.announcements import Announcement, confirm, pending
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.generated import datasets_v1
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import (
    CacheFigures,
    SampleJobDeleted,
    SampleJobFailed,
    SampleJobStarted,
    SampleJobSucceeded,
    SampleSetBound,
    SampleSetDegraded,
    SampleSetDeleted,
    SampleSetMounted,
    SampleSetReady,
    SampleSetSynced,
    SampleSetSyncFailed,
    SampleSetWarmed,
)
from paddlewheel.testkit.samplesets import MIB, make_report

REF = ObjectRef(namespace="default", name="x", uid="u")
Declared = list[tuple[str, int]]


def declared(status: SetStatus) -> Declared:
    return [(a.fact.removeprefix("SampleSet"), a.attempt) for a in status.announcements]


def recorded(seen: ObservedSet, status: SetStatus) -> ObservedSet:
    """The next observation: the status was written and its facts were confirmed."""
    confirmed = confirm(status.announcements, pending(status.announcements))
    own = replace(seen.sample_set, status=replace(status, announcements=confirmed))
    return replace(seen, sample_set=own)


def step(seen: ObservedSet, phase: SetPhase) -> ObservedSet:
    """A pass that reaches the phase, and one more that changes nothing."""
    status = with_facts(seen, replace(seen.status, phase=phase), NOW)
    after = recorded(seen, status)
    assert with_facts(after, after.status, NOW) == after.status
    return after


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ("Bound", [("Bound", 0)]),
        ("Bound Mount", [("Bound", 0), ("Mounted", 0)]),
        ("Bound Mount Syncing Mount", [("Bound", 0), ("Mounted", 0)]),
        ("Syncing SyncFailed", [("SyncFailed", 0)]),
        ("Syncing SyncFailed Mount Syncing SyncFailed", [("Mounted", 0), ("SyncFailed", 1)]),
        ("PartialReady", []),
        ("PartialReady Ready", [("Ready", 0)]),
        ("Ready PartialReady", [("Ready", 0), ("Degraded", 0)]),
        ("Ready PartialReady Ready", [("Degraded", 0), ("Ready", 1)]),
        ("Ready PartialReady Ready PartialReady", [("Ready", 1), ("Degraded", 1)]),
    ],
)
def test_a_phase_declares_its_fact_once_each_time_it_is_reached(phases: str, expected: Declared) -> None:
    seen = make_observed("")
    for phase in phases.split():
        seen = step(seen, SetPhase(phase))
    assert declared(seen.status) == expected


def test_a_pass_that_is_repeated_before_its_write_declares_the_same() -> None:
    seen = step(step(make_observed(""), SetPhase.READY), SetPhase.PARTIAL_READY)
    wanted = replace(seen.status, phase=SetPhase.READY)
    first, second = with_facts(seen, wanted, NOW), with_facts(seen, wanted, NOW)
    assert first == second
    assert declared(first)[-1] == ("Ready", 1)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("Synced", "True", "Synced"), [("Synced", 0)]),
        (Condition("Synced", "True", "NotNeeded"), []),
        (Condition("Synced", "False", "Syncing"), []),
        (Condition("Warmed", "True", "Warmed"), [("Warmed", 0)]),
        (Condition("Warmed", "False", "Cancelled"), []),
    ],
)
def test_a_run_that_has_succeeded_is_a_fact(condition: Condition, expected: Declared) -> None:
    seen = make_observed("PartialReady")
    status = with_facts(seen, replace(seen.status, conditions=(condition,)), NOW)
    assert declared(status) == expected
    after = recorded(seen, status)
    assert with_facts(after, after.status, NOW) == after.status


def test_a_removed_set_is_a_fact() -> None:
    seen = make_observed("Ready")
    assert declared(with_facts(seen, seen.status, NOW)) == []
    assert declared(with_facts(seen, seen.status, NOW, is_removed=True)) == [("Deleted", 0)]


def test_repeated_facts_do_not_pile_up() -> None:
    seen = make_observed("PartialReady")
    for _ in range(20):
        seen = step(step(seen, SetPhase.READY), SetPhase.PARTIAL_READY)
    assert declared(seen.status) == [("Ready", 19), ("Degraded", 19)]


@pytest.mark.parametrize(
    ("phase", "run", "expected"),
    [
        ("Pending", None, []),
        ("Pending", RunState(phase=RunPhase.RUNNING), [("Started", 1)]),
        ("Running", RunState(phase=RunPhase.SUCCEEDED), [("Started", 1), ("Succeeded", 1)]),
        ("Running", RunState(phase=RunPhase.FAILED), [("Started", 1), ("Failed", 1)]),
    ],
)
def test_facts_of_a_job_count_its_failures(phase: str, run: RunState | None, expected: Declared) -> None:
    seen = make_observed_job(phase, "r2")
    failed = Announcement("SampleJobFailed", 0, "2026-01-01T11:00:00.000Z")
    job = replace(seen.job, status=replace(seen.status, announcements=(failed,)))
    todo = plan_job(replace(seen, job=job, runs={"r2": run} if run else {}), NOW)
    assert todo.status
    names = [(a.fact.removeprefix("SampleJob"), a.attempt) for a in todo.status.announcements]
    assert names == [("Failed", 0), *expected]


def test_the_facts_of_a_failed_job_are_not_declared_again() -> None:
    seen = make_observed_job("Failed", "r1")
    recorded = tuple(
        Announcement(f"SampleJob{f}", 2, "2026-01-01T11:00:00.000Z") for f in ("Started", "Failed")
    )
    status = replace(seen.status, announcements=recorded)
    seen = replace(seen, job=replace(seen.job, status=status))
    assert job_facts.FACTS.declare(recorded, job_facts.Case(seen, status), "now") == recorded


def rendered(seen: ObservedSet, fact: str) -> WireModel | None:
    case = set_facts.Case(seen, seen.status)
    return set_facts.FACTS.render(Announcement(fact, 0, ""), case, REF)


def test_every_message_of_the_contract_has_its_row() -> None:
    messages = {
        name
        for name, found in vars(datasets_v1).items()
        if isinstance(found, type) and issubclass(found, WireModel) and name.startswith("Sample")
    }
    rows = {fact.name for fact in set_facts.FACTS} | {fact.name for fact in job_facts.FACTS}
    assert rows == messages


def test_a_fact_of_another_version_is_not_rendered() -> None:
    assert rendered(make_observed("Ready"), "SampleSetDreamt") is None


def test_an_unknown_phase_starts_the_path_anew() -> None:
    for phase in ("", "NoSuchPhase", "NotBound"):
        assert make_set(phase).status.phase is SetPhase.NOT_BOUND


def set_facts_of(seen: ObservedSet, status: SetStatus) -> list[WireModel]:
    return [fact.render(set_facts.Case(seen, status), REF) for fact in set_facts.FACTS]


def test_every_fact_of_a_set_is_whole() -> None:
    seen = make_observed(
        "Ready",
        ready=3,
        runs={
            "s1": RunState(files_done=3, bytes_done=4),
            "w1": RunState(files_done=5, bytes_done=6, cached_percent=7.5),
        },
    )
    status = SetStatus(
        sync_job="s1",
        warmup_job="w1",
        runtime={"specReplicas": 2},
        conditions=(
            Condition("Synced", "False", "FilesFailed", "a.png"),
            Condition("Ready", "False", "PartitionsNotReady", "1 of 2 partitions are ready"),
        ),
    )
    figures = CacheFigures(total_bytes=20 * MIB, total_files=10, cached_bytes=20 * MIB)
    assert set_facts_of(seen, status) == [
        SampleSetSynced(sample_set=REF, files=3, bytes=4),
        SampleSetWarmed(sample_set=REF, files=5, bytes=6, cached_percent=7.5),
        SampleSetBound(sample_set=REF, partitions=2),
        SampleSetMounted(sample_set=REF),
        SampleSetSyncFailed(sample_set=REF, reason="FilesFailed", message="a.png"),
        SampleSetReady(sample_set=REF, partitions=2, figures=figures),
        SampleSetDegraded(sample_set=REF, reason="PartitionsNotReady", message="1 of 2 partitions are ready"),
        SampleSetDeleted(sample_set=REF),
    ]


def test_the_facts_of_a_set_of_which_nothing_is_known_are_empty() -> None:
    assert set_facts_of(make_observed("Ready"), SetStatus()) == [
        SampleSetSynced(sample_set=REF),
        SampleSetWarmed(sample_set=REF),
        SampleSetBound(sample_set=REF),
        SampleSetMounted(sample_set=REF),
        SampleSetSyncFailed(sample_set=REF),
        SampleSetReady(sample_set=REF, figures=CacheFigures()),
        SampleSetDegraded(sample_set=REF),
        SampleSetDeleted(sample_set=REF),
    ]


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ({}, RunState(files_done=10, bytes_done=20 * MIB, cached_percent=50.0)),
        ({"cached_bytes": 30 * MIB}, RunState(files_done=10, bytes_done=20 * MIB, cached_percent=100.0)),
        ({"total_bytes": 1, "cached_bytes": 0}, RunState(files_done=10, bytes_done=1)),
        ({"total_bytes": 0}, RunState(files_done=10, cached_percent=100.0)),
        ({"total_files": 0}, RunState(files_done=1797)),
    ],
)
def test_a_run_that_the_bus_has_lost_has_the_figures_of_the_set(
    report: dict[str, Any], state: RunState
) -> None:
    seen = make_observed("Ready", reports=(make_report(OWNER_UID, 0, NOW, **report),))
    case = set_facts.Case(seen, SetStatus(cache={"totalFiles": "1,797"}))
    assert case.run("r1") == state


def test_every_fact_of_a_job_is_whole() -> None:
    seen = replace(
        make_observed_job(),
        runs={"r1": RunState(files_done=7, bytes_done=70, cached_percent=99.5)},
    )
    failed = Condition("Complete", "False", "FilesFailed", "a.png")
    case = job_facts.Case(seen, JobStatus(run_id="r1", conditions=(failed,)))
    assert [fact.render(case, REF) for fact in job_facts.FACTS] == [
        SampleJobStarted(sample_job=REF, sample_set="digits", type="warmup", run_id="r1"),
        SampleJobSucceeded(
            sample_job=REF,
            sample_set="digits",
            type="warmup",
            run_id="r1",
            files=7,
            bytes=70,
            cached_percent=99.5,
        ),
        SampleJobFailed(
            sample_job=REF,
            sample_set="digits",
            type="warmup",
            run_id="r1",
            reason="FilesFailed",
            message="a.png",
        ),
        SampleJobDeleted(sample_job=REF, sample_set="digits", type="warmup", run_id="r1"),
    ]


def test_the_facts_of_a_job_whose_run_is_lost_have_what_its_status_has() -> None:
    progress = {"filesDone": 7, "bytesDone": 70, "cachedPercent": 99.5}
    seen = make_observed_job(sampleSetRef=None)
    case = job_facts.Case(seen, JobStatus(run_id="r1", progress=progress))
    assert [fact.render(case, REF) for fact in job_facts.FACTS] == [
        SampleJobStarted(sample_job=REF, type="warmup", run_id="r1"),
        SampleJobSucceeded(
            sample_job=REF, type="warmup", run_id="r1", files=7, bytes=70, cached_percent=99.5
        ),
        SampleJobFailed(sample_job=REF, type="warmup", run_id="r1"),
        SampleJobDeleted(sample_job=REF, type="warmup", run_id="r1"),
    ]
    assert job_facts.Case(seen, JobStatus()).state == RunState()
