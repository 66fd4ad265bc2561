"""SampleJobs of one set at the same time: which run side by side, which wait, for whom, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.unit.dataset_controller.builders import (
    NOW,
    OWNER_UID,
    SYNCED,
    ago,
    condition,
    make_observed_job,
    make_other_job,
    make_set,
)
from tests.unit.dataset_controller.conftest import JOB, SET, DataHarness

from dataset_controller.domain.actions import CancelRun, ForgetRun, WriteRun
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.samplejob import uses
from dataset_controller.domain.samplejob.model import JobPlan, ObservedJob, SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.samplejob.plan import RUN_AGAIN, plan
from dataset_controller.domain.samplejob.policies import turns
from dataset_controller.domain.samplejob.request import read_request
from dataset_controller.domain.samplejob.uses import Uses, conflict, uses_of
from dataset_controller.domain.sampleset.model import SampleSet
from dataset_controller.reconciler import SampleJobKind
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.contracts.crds import SampleJobSpec
from paddlewheel.contracts.crds.samplejob import CANCELLED_RUNS
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec, RunState
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.core.clock import SystemClock
from paddlewheel.kube import ports
from paddlewheel.testkit.samplesets import make_sample_job, make_secret

WARM: dict[str, Any] = {"type": "warmup"}
CLEAR: dict[str, Any] = {"type": "clear"}
ACCEPTED = {**condition("Accepted", "True", "Accepted"), "observedGeneration": 1}
IN_LINE = [ACCEPTED, condition("Started", "False", "WaitingForTurn")]


def warm(*paths: str, **options: Any) -> dict[str, Any]:
    return {"type": "warmup", "warmupOptions": {"paths": list(paths), **options}}


def sync(destination: str = "", **options: Any) -> dict[str, Any]:
    return {"type": "sync", "syncOptions": {"destination": destination, **options}}


def remove(*paths: str) -> dict[str, Any]:
    return {"type": "rmr", "rmrOptions": {"paths": list(paths)}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (WARM, WARM, False),
        (WARM, sync(), True),
        (WARM, sync("new"), True),
        (warm("train"), sync("train/0"), True),
        (warm("train/0"), sync("train"), True),
        (warm("train"), sync("./train/"), True),
        (warm("train"), sync("train2"), False),
        (warm("train"), sync("val"), False),
        (warm("train", file="list.txt"), sync("val"), True),
        (WARM, sync(dry=True), False),
        (WARM, CLEAR, True),
        (CLEAR, CLEAR, True),
        (CLEAR, sync(), False),
        (CLEAR, remove("a"), False),
        (remove("a"), remove("b"), False),
        (remove("a", "b"), remove("b/c"), True),
        (sync(), sync("a"), True),
        (sync("a"), sync("b"), False),
        (sync("../x"), warm("a"), True),
        ({"type": "shred"}, WARM, True),
    ],
)
def test_operations_conflict_when_one_changes_what_the_other_uses(
    one: dict[str, Any], other: dict[str, Any], expected: bool
) -> None:
    both = [uses_of(SampleJobSpec.model_validate(spec)) for spec in (one, other)]
    assert conflict(*both) is conflict(*reversed(both)) is expected


def test_paths_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding whose turn it is holds up everything else: each path is looked at a few times at most."""
    looked_at: list[str] = []

    def counted(path: str) -> Iterator[str]:
        looked_at.append(path)
        return with_parents(path)

    with_parents = uses._with_parents
    monkeypatch.setattr(uses, "_with_parents", counted)
    many = [remove(*(f"{side}/{i}" for i in range(4096))) for side in ("a", "b")]
    one, other = (uses_of(SampleJobSpec.model_validate(spec)) for spec in many)
    assert not conflict(one, other)
    assert 0 < len(looked_at) <= 2 * (4096 + 4096)


def test_what_jobs_that_have_ended_or_wait_for_others_have_used_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Uses] = []

    def counted(some: Uses, others: Uses) -> bool:
        compared.append(others)
        return conflict(some, others)

    monkeypatch.setattr(turns, "conflict", counted)
    done = [make_other_job("a", "Succeeded"), make_other_job("b", "Failed"), make_other_job("c")]
    assert waits_for(rival_of(*done)) == ""
    assert compared == []
    assert waits_for(rival_of(*done, make_other_job("d", "Running"))) == "waits for SampleJob d"
    assert len(compared) == 1


def test_a_job_knows_what_it_uses_once_per_version() -> None:
    job = make_other_job("a", **remove("x"))
    assert job.uses is job.uses
    assert job.uses == uses_of(job.spec)


def rival_of(*others: SampleJob, created: str = ago(50), **spec: Any) -> ObservedJob:
    """A job that was created 50 s ago, beside others."""
    seen = make_observed_job(meta={"creationTimestamp": created}, **{**CLEAR, **spec})
    return replace(seen, others={other.key.name: other for other in others})


def waits_for(seen: ObservedJob) -> str:
    """The message of its condition, "" when it begins."""
    status = plan(seen, NOW).status
    assert status is not None
    if status.phase is JobPhase.PENDING:
        return ""
    started = status.condition("Started")
    assert started is not None
    assert (status.phase, started.reason) == (JobPhase.NEW, "WaitingForTurn")
    return started.message


def line(name: str, seconds: float, priority: int = 0, **spec: Any) -> SampleJob:
    """A job that waits for its turn."""
    return make_other_job(name, created=ago(seconds), conditions=IN_LINE, priority=priority, **spec)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([make_other_job("b", "Running"), make_other_job("a", "Pending")], "SampleJob a, SampleJob b"),
        ([make_other_job("a", "Running", meta={"deletionTimestamp": ago(1)})], "SampleJob a"),
        ([make_other_job("a", "Succeeded"), make_other_job("b", "Failed"), make_other_job("c")], ""),
        ([make_other_job("a", "Running", of="mnist")], ""),
        ([make_other_job("a", "Running", **remove("x"))], ""),
        ([line("a", 60)], "SampleJob a, which is before it"),
        ([line("a", 40)], ""),
        ([line("a", 40, 5), line("b", 70)], "SampleJob b, which is before it"),
        ([line("a", 40, 5)], "SampleJob a, which is before it with priority 5"),
        ([line("a", 60, -1)], ""),
        ([line("a", 60, **remove("x"))], ""),
    ],
    ids=[
        "runs",
        "is being cancelled",
        "does not run",
        "of another set",
        "no conflict",
        "older",
        "younger",
        "the last one before it",
        "higher priority",
        "lower priority",
        "in line without a conflict",
    ],
)
def test_a_job_waits_for(others: list[SampleJob], expected: str) -> None:
    assert waits_for(rival_of(*others)) == (f"waits for {expected}" if expected else "")


@pytest.mark.parametrize(
    "conditions",
    [
        [ACCEPTED, condition("Started", "False", "WaitingForJobs")],
        [condition("Accepted", "False", "InvalidSpec"), IN_LINE[1]],
    ],
    ids=["waits for a job", "refused"],
)
def test_who_waits_for_something_else_keeps_nobody_waiting(conditions: list[Any]) -> None:
    assert waits_for(rival_of(make_other_job("a", created=ago(60), conditions=conditions))) == ""


def test_who_waits_for_the_set_keeps_nobody_waiting() -> None:
    seen = rival_of(line("a", 60), secretRef={"name": "source"}, **sync())
    assert waits_for(seen) == "waits for SampleJob a, which is before it"
    assert waits_for(replace(seen, sample_set=make_set("Mount", status={"conditions": SYNCED}))) == ""


def test_of_a_run_whose_job_asks_for_other_work_since_nothing_is_known() -> None:
    run = make_other_job("a", "Running", conditions=[ACCEPTED], **remove("x"))
    assert waits_for(rival_of(run)) == ""
    other_work = replace(run, status=replace(run.status, type="sync"))
    assert waits_for(rival_of(other_work)) == "waits for SampleJob a"


def test_a_run_whose_job_got_another_priority_or_time_to_live_conflicts_with_no_more_than_before() -> None:
    terms: dict[str, Any] = {"priority": 3, "ttlSecondsAfterFinished": 60}
    run = make_other_job("a", "Running", conditions=[ACCEPTED], **remove("x"), **terms)
    assert waits_for(rival_of(replace(run, generation=2))) == ""


def test_a_job_whose_run_was_just_decided_on_counts_as_running() -> None:
    seen = replace(rival_of(make_other_job("a"), make_other_job("b")), starting=frozenset(["b"]))
    assert waits_for(seen) == "waits for SampleJob b"
    assert plan(seen, NOW).requeue_after == 15.0


@pytest.mark.parametrize(
    ("spec", "run", "expected"),
    [
        (remove("x"), "sync", "the set's own first sync"),
        (remove("x"), "warmup", "the set's own warmup"),
        (CLEAR, "warmup", "the set's own warmup"),
        (WARM, "warmup", ""),
    ],
)
def test_a_job_waits_for_the_sets_own_runs(spec: dict[str, Any], run: str, expected: str) -> None:
    phase = "Syncing" if run == "sync" else "PartialReady"
    own = make_set(phase, status={"jobsName": {"warmupJobName": "w"}})
    running = {"w": RunState(phase=RunPhase.RUNNING if run == "warmup" else RunPhase.SUCCEEDED)}
    seen = replace(rival_of(**spec), sample_set=own, runs=running)
    assert waits_for(seen) == (f"waits for {expected}" if expected else "")


SOON: dict[str, Any] = {"spec": {"warmup": {}}, "status": {"runtimeStatus": {"readyReplicas": 1}}}
SYNCED_SOON: dict[str, Any] = {**SOON, "status": {**SOON["status"], "conditions": SYNCED}}
ASKED = {"jobsName": {"warmupJobName": "w"}}


WARMED = {"type": "Warmed", "status": "True", "reason": "Warmed"}
EDITED: dict[str, Any] = {
    "conditions": [*SYNCED, WARMED],
    "jobsName": {"warmupJobName": "w", "warmupDigest": "of what was asked for before"},
}


@pytest.mark.parametrize(
    ("phase", "own", "expected"),
    [
        ("Mount", {}, "the set's own first sync"),
        ("Mount", {"spec": {"noSync": True}}, ""),
        ("Mount", {"status": {"conditions": SYNCED}}, ""),
        ("Mount", SYNCED_SOON, "the set's own warmup"),
        ("SyncFailed", SOON, ""),
        ("PartialReady", SYNCED_SOON, "the set's own warmup"),
        ("PartialReady", {**SYNCED_SOON, "status": {"conditions": SYNCED}}, ""),
        ("Ready", {**SOON, "status": {**SOON["status"], **EDITED}}, "the set's own warmup"),
        ("Ready", {**SOON, "status": EDITED}, ""),
        ("PartialReady", {"spec": {"warmup": {}}, "status": ASKED}, "the set's own warmup"),
        ("PartialReady", {"status": ASKED}, ""),
        (
            "Ready",
            {**SOON, "status": {**ASKED, "conditions": [condition("Warmed", "True", "Warmed")]}},
            "",
        ),
        (
            "Ready",
            {**SOON, "status": {**ASKED, "conditions": [condition("Warmed", "False", "Cancelled")]}},
            "",
        ),
    ],
    ids=[
        "sync to come",
        "no sync",
        "synced",
        "synced and warmup to come",
        "sync failed",
        "warmup to come",
        "a partition is away",
        "warmup was edited",
        "warmup was edited while a partition is away",
        "warmup was asked for",
        "warmup is wanted no more",
        "warmed",
        "cancelled",
    ],
)
def test_a_job_waits_for_what_the_set_is_about_to_run(phase: str, own: dict[str, Any], expected: str) -> None:
    seen = replace(rival_of(**remove("x")), sample_set=make_set(phase, **own))
    assert waits_for(seen) == (f"waits for {expected}" if expected else "")


# --- terminate and those that wait


def terminating(seconds: float, *, since: float = 10) -> SampleJob:
    """It began to cancel the others so many seconds ago, and was done with that a second ago."""
    done = condition("OthersCancelled", "True", "Cancelled", 1)
    job = make_other_job("end", created=ago(seconds), terminate=True, conditions=[done])
    return replace(job, status=replace(job.status, cancels_since=ago(since)))


@pytest.mark.parametrize(
    ("other", "is_cancelled"),
    [
        (terminating(40), True),
        (terminating(60), False),
        (make_other_job("end", created=ago(40), terminate=True), False),
        (replace(terminating(40), spec=SampleJobSpec()), False),
    ],
    ids=["younger", "older", "not yet", "without terminate"],
)
def test_a_job_that_waits_is_cancelled_by_a_younger_one_that_ends_the_others(
    other: SampleJob, is_cancelled: bool
) -> None:
    status = plan(rival_of(other), NOW).status
    assert status is not None
    assert (status.phase is JobPhase.FAILED) is is_cancelled
    complete = status.condition("Complete")
    if complete is not None:
        assert (complete.reason, complete.message) == ("Cancelled", ENDED_BY)


def started_again(seen: ObservedJob, seconds: float) -> ObservedJob:
    """The job had failed long ago, and was edited so many seconds ago."""
    fact = {"fact": "SampleJobFailed", "attempt": 0, "at": "2026-01-01T11:59:15.000Z", "announced": True}
    restarted = condition("Started", "False", "WaitingForTurn", seconds)
    status = {"announcements": [fact], "conditions": [restarted]}
    return replace(seen, job=parse_job({**dict(seen.obj), "status": status}))


@pytest.mark.parametrize(("seconds", "is_cancelled"), [(11, True), (10, False), (5, False)])
def test_only_who_waits_when_a_job_begins_to_end_the_others_is_cancelled(
    seconds: float, is_cancelled: bool
) -> None:
    status = plan(started_again(rival_of(terminating(40, since=10)), seconds), NOW).status
    assert status is not None
    assert (status.phase is JobPhase.FAILED) is is_cancelled


def test_who_runs_after_the_job_that_ends_the_others_is_not_cancelled_by_it() -> None:
    for after in (["end"], ["between"]):
        between = make_other_job("between", created=ago(45), after=["end"])
        status = plan(rival_of(terminating(40), between, after=after), NOW).status
        assert status is not None
        started = status.condition("Started")
        assert started is not None
        assert (status.phase, started.reason) == (JobPhase.NEW, "WaitingForJobs")


def test_a_job_that_ends_the_others_ends_runs_that_no_agent_has_taken_yet() -> None:
    asked = [make_other_job("a", "Pending"), make_other_job("b", "Running")]
    done = [make_other_job("c", "Pending"), make_other_job("d", "Succeeded"), make_other_job("e", "Failed")]
    elsewhere = make_other_job("f", "Pending", of="mnist")
    seen = rival_of(*asked, *done, elsewhere, make_other_job("g"), terminate=True)
    seen = replace(seen, runs={"run-of-c": RunState(phase=RunPhase.SUCCEEDED)})
    todo = plan(recorded(seen), NOW)
    assert todo.actions == tuple(CancelRun(RunKey(OWNER_UID, run)) for run in ("run-of-a", "run-of-b"))
    assert todo.status is not None
    assert todo.status.phase is JobPhase.NEW


def test_no_run_is_cancelled_before_those_who_wait_for_it_can_see_that_they_are_ended_too() -> None:
    """It may end at once, and they would begin."""
    seen = rival_of(make_other_job("a", "Running"), terminate=True)
    first = plan(seen, NOW)
    assert (first.actions, first.requeue_after) == ((), 0.0)
    assert first.status is not None
    assert first.status.cancels_since
    assert plan(recorded(seen), NOW).actions == (CancelRun(RunKey(OWNER_UID, "run-of-a")),)


def recorded(seen: ObservedJob) -> ObservedJob:
    """With the status that it gets now."""
    status = plan(seen, NOW).status
    assert status is not None
    return replace(seen, job=replace(seen.job, status=status))


SYNCING = make_set("Syncing", status={"jobsName": {"syncJobName": "first"}})
WARMS_ONCE_MOUNTED = make_set(
    "Mount", spec={"warmup": {}, "noSync": True}, status={"runtimeStatus": {"readyReplicas": 1}}
)
WARMING = make_set("Ready", spec={"warmup": {}}, status={"jobsName": {"warmupJobName": "warms"}})


@pytest.mark.parametrize(
    ("own", "spec", "run", "name"),
    [(SYNCING, remove("x"), "first", "first sync"), (WARMING, CLEAR, "warms", "warmup")],
)
def test_a_job_that_ends_the_others_ends_the_runs_of_the_set_that_no_agent_has_taken_yet(
    own: SampleSet, spec: dict[str, Any], run: str, name: str
) -> None:
    seen = replace(rival_of(terminate=True, **spec), sample_set=own)
    todo = plan(recorded(seen), NOW)
    assert todo.actions == (CancelRun(RunKey(OWNER_UID, run)),)
    late = replace(seen, job=replace(seen.job, status=replace(seen.status, cancels_since=ago(60))))
    status = plan(late, NOW).status
    assert status is not None
    done, started = status.condition("OthersCancelled"), status.condition("Started")
    assert done is not None
    assert started is not None
    assert done.message == f"cancelled, but not ended 60 s later: the set's own {name}"
    assert (status.phase, started.message) == (JobPhase.NEW, f"waits for the set's own {name}")
    ended = plan(replace(seen, runs={run: RunState(phase=RunPhase.CANCELLED)}), NOW)
    assert ended.actions == ()


@pytest.mark.parametrize(("own", "name"), [(make_set("Mount"), "first sync"), (WARMS_ONCE_MOUNTED, "warmup")])
def test_a_job_that_ends_the_others_waits_for_what_the_set_is_about_to_run(own: SampleSet, name: str) -> None:
    todo = plan(replace(rival_of(terminate=True, **remove("x")), sample_set=own), NOW)
    assert todo.status is not None
    started = todo.status.condition("Started")
    assert started is not None
    assert (todo.status.phase, todo.actions) == (JobPhase.NEW, ())
    assert started.message == f"waits for the set's own {name}"
    ready = make_set("Ready", status={"conditions": SYNCED})
    other = plan(replace(rival_of(terminate=True, **remove("x")), sample_set=ready), NOW)
    assert other.status is not None
    assert other.status.phase is JobPhase.PENDING


def ready_to_start(*others: SampleJob, starting: str = "", cancelled: str = "", **spec: Any) -> ObservedJob:
    """A job that has ended the others a while ago, and waited for the set since, which is done by now."""
    done, own = condition("OthersCancelled", "True", "Cancelled", 900), make_set("Ready")
    seen = rival_of(*others, terminate=True, **spec)
    status = parse_job({**dict(seen.obj), "status": {"conditions": [done]}}).status
    status = replace(status, cancels_since=ago(900), cancelled_runs=(cancelled,) if cancelled else ())
    seen = replace(seen, job=replace(seen.job, status=status), sample_set=own)
    return replace(seen, starting=frozenset(filter(None, [starting])))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (ready_to_start(make_other_job("b", "Running", **WARM)), "SampleJob b"),
        (ready_to_start(make_other_job("b", "Pending", **WARM)), "SampleJob b"),
        (ready_to_start(make_other_job("b", **WARM), starting="b"), "SampleJob b"),
        (ready_to_start(make_other_job("b", "Running", **WARM), cancelled="run-of-b"), ""),
        (ready_to_start(make_other_job("b", "Running", **remove("x"))), ""),
        (ready_to_start(line("b", 60, 10, **WARM)), ""),
    ],
    ids=["runs", "is requested", "begins", "is cancelled", "no conflict", "in line"],
)
def test_a_job_that_ends_the_others_waits_for_those_that_began_while_it_waited_for_the_set(
    seen: ObservedJob, expected: str
) -> None:
    """One with a higher priority may run before it, beside the set's own warmup."""
    assert waits_for(seen) == (f"waits for {expected}" if expected else "")


def test_a_job_that_ends_the_others_does_not_wait_longer_for_those_that_do_not_end() -> None:
    """The pass in which their time is over records some of them."""
    seen = rival_of(make_other_job("a", "Running", **WARM), terminate=True)
    late = replace(seen, job=replace(seen.job, status=replace(seen.status, cancels_since=ago(60))))
    assert waits_for(late) == ""


def ending(job: SampleJob, *runs: str) -> SampleJob:
    """With the ids of the runs that it ends."""
    return replace(job, status=replace(job.status, cancelled_runs=runs))


def begun(phase: str, *others: SampleJob, **spec: Any) -> ObservedJob:
    """A job with a run, beside others."""
    new = rival_of(*others, **spec)
    obj = {**dict(new.obj), "status": {"phase": phase, "jobName": OWN_RUN}}
    return replace(new, job=parse_job(obj))


OWN_RUN = read_request(rival_of()).run_id("job-uid", 0)
RUNNING = RunState(phase=RunPhase.RUNNING)
ENDED_BY = f"SampleJob end, which has spec.terminate, has cancelled it; {RUN_AGAIN}"


def test_a_run_that_was_cancelled_is_cancelled_in_each_pass_before_it_is_written_again() -> None:
    """The bus may have been away, or have lost the cancel with all the rest."""
    seen = begun("Running", ending(terminating(40), OWN_RUN))
    run = seen.status.run_id
    todo = plan(replace(seen, runs={run: RUNNING}), NOW)
    assert todo.actions[0] == CancelRun(RunKey(OWNER_UID, run))
    assert [type(action) for action in todo.actions] == [CancelRun, WriteRun]
    unknown = plan(replace(seen, are_records_known=False), NOW)
    assert unknown.actions == (CancelRun(RunKey(OWNER_UID, run)),)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_run_that_was_cancelled_and_that_the_bus_does_not_have_is_never_written_again(phase: str) -> None:
    seen = begun(phase, ending(terminating(40), OWN_RUN))
    todo = plan(seen, NOW)
    assert todo.actions == (ForgetRun(RunKey(OWNER_UID, seen.status.run_id)),)
    assert todo.status is not None
    complete = todo.status.condition("Complete")
    assert complete is not None
    assert (todo.status.phase, complete.reason, complete.message) == ("Failed", "Cancelled", ENDED_BY)
    assert bool(todo.status.started) is (phase == "Running")
    assert todo.status.run_id == seen.status.run_id


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Succeeded", "Failed"])
def test_a_run_that_began_beside_or_after_the_job_that_ended_the_others_goes_on(phase: str) -> None:
    """Whatever clocks say: those of replicas differ, and a stamp has whole seconds."""
    other = make_other_job("end", phase, created=ago(70), terminate=True)
    other = replace(other, status=replace(other.status, cancels_since=ago(-20)))
    for runs in ({}, {"r0": RUNNING}):
        seen = replace(begun("Pending", ending(other, "run-of-a")), runs=runs)
        assert [type(action) for action in plan(seen, NOW).actions] == [WriteRun]


def test_a_job_that_ends_the_others_cancels_those_that_go_on_before_its_own_run() -> None:
    """One of them has failed meanwhile, untaken by agents; its record may yet be on the bus."""
    others = [make_other_job("a", "Running"), make_other_job("b", "Pending"), make_other_job("f", "Failed")]
    ends = ("run-of-a", "run-of-c", "run-of-f")
    for phase, runs, expected in (
        ("Pending", {"run-of-c": RunState(phase=RunPhase.CANCELLED)}, ["run-of-a", "run-of-f"]),
        ("Running", {run: RunState(phase=RunPhase.CANCELLED) for run in ends}, []),
        ("Running", {"run-of-f": RUNNING}, ["run-of-a", "run-of-c", "run-of-f"]),
    ):
        seen = begun(phase, *others, terminate=True)
        seen = replace(seen, job=ending(seen.job, *ends), runs=runs)
        actions = plan(seen, NOW).actions
        assert actions[:-1] == tuple(CancelRun(RunKey(OWNER_UID, run)) for run in expected)
        assert isinstance(actions[-1], WriteRun)


def test_a_job_that_ends_the_others_cancels_them_while_it_waits_for_its_turn_until_it_has_ended() -> None:
    done = condition("OthersCancelled", "True", "Cancelled", 1)
    for own in (SYNCING, make_set("Bound")):
        waits = parse_job({**dict(rival_of(terminate=True).obj), "status": {"conditions": [done]}})
        seen = replace(rival_of(terminate=True), job=ending(waits, "first"), sample_set=own)
        assert plan(seen, NOW).actions == (CancelRun(RunKey(OWNER_UID, "first")),)
    for phase in ("Succeeded", "Failed"):
        ended = begun(phase, terminate=True)
        assert plan(replace(ended, job=ending(ended.job, "first")), NOW).actions == ()


def test_a_job_records_the_runs_that_it_ends_also_those_that_come_while_it_waits() -> None:
    seen = rival_of(make_other_job("b", "Pending"), make_other_job("a", "Running"), terminate=True)
    first = plan(seen, NOW).status
    assert first is not None
    assert first.cancelled_runs == ("run-of-a", "run-of-b")
    late = replace(seen, job=replace(seen.job, status=first), others={"z": make_other_job("z", "Pending")})
    second = plan(late, NOW).status
    assert second is not None
    assert second.cancelled_runs == ("run-of-a", "run-of-b", "run-of-z")
    assert (
        parse_job({**dict(seen.obj), "status": second.render()}).status.cancelled_runs
        == second.cancelled_runs
    )
    many = replace(seen, runs={f"r{i}": RUNNING for i in range(CANCELLED_RUNS + 1)})
    most = plan(many, NOW).status
    assert most is not None
    assert len(most.cancelled_runs) == CANCELLED_RUNS


def test_a_run_whose_end_was_told_is_not_cancelled_when_the_bus_has_forgotten_it() -> None:
    """Nor is a later one with the same id: those of the set's warmups are made from what is asked for."""
    cancelled = {"run-of-a": RunState(phase=RunPhase.CANCELLED)}
    for own in (replace(begun("Running"), runs=cancelled), begun("Succeeded"), begun("Failed")):
        seen = replace(own, job=ending(own.job, "run-of-a"), others={"a": make_other_job("a", "Failed")})
        status = plan(seen, NOW).status
        assert status is not None
        assert status.cancelled_runs == ()
        later = replace(seen, job=replace(seen.job, status=status), runs={})
        assert not any(isinstance(action, CancelRun) for action in plan(later, NOW).actions)


def test_a_run_whose_end_was_told_counts_until_those_who_would_write_it_again_know() -> None:
    """The bus may lose it before they do."""
    for own, other, run in (
        (make_set("Ready"), make_other_job("a", "Running"), "run-of-a"),
        (SYNCING, make_other_job("a"), "first"),
        (WARMING, make_other_job("a"), "warms"),
    ):
        for phase in ("Running", "Succeeded"):
            seen = replace(
                begun(phase, other), sample_set=own, runs={run: RunState(phase=RunPhase.CANCELLED)}
            )
            status = plan(replace(seen, job=ending(seen.job, run, "gone")), NOW).status
            assert status is not None
            assert status.cancelled_runs == ((run, "gone") if phase == "Running" else (run,))


def test_what_has_ended_makes_room_for_other_runs_to_end() -> None:
    ids = [f"r{i:03}" for i in range(CANCELLED_RUNS + 1)]
    seen = rival_of(terminate=True)
    seen = replace(seen, job=ending(seen.job, *ids[:-1]), runs=dict.fromkeys(ids, RUNNING))
    late = replace(seen, job=replace(seen.job, status=replace(seen.status, cancels_since=ago(60))))
    status = plan(late, NOW).status
    assert status is not None
    done = status.condition("OthersCancelled")
    assert done is not None
    untold, told = done.message.split("; ")
    assert untold == f"not cancelled, for a job ends at most {CANCELLED_RUNS} at a time: run {ids[-1]}"
    assert told.startswith(f"cancelled, but not ended 60 s later: run {ids[0]}, run {ids[1]}, ")
    assert ids[-1] not in told
    seen = replace(seen, runs={**seen.runs, ids[0]: RunState(phase=RunPhase.CANCELLED)})
    status = plan(seen, NOW).status
    assert status is not None
    assert status.cancelled_runs == tuple(ids[1:])


def test_a_job_that_goes_on_without_the_end_of_others_names_them() -> None:
    seen = rival_of(make_other_job("a", "Running"), terminate=True)
    seen = replace(seen, runs={"r9": RUNNING})
    seen = replace(seen, job=replace(seen.job, status=replace(seen.status, cancels_since=ago(60))))
    status = plan(seen, NOW).status
    assert status is not None
    done = status.condition("OthersCancelled")
    assert done is not None
    assert done.message == "cancelled, but not ended 60 s later: run r9, SampleJob a"


def test_a_job_that_ends_the_others_waits_for_the_id_of_a_run_that_was_just_decided_on() -> None:
    seen = replace(rival_of(make_other_job("a"), terminate=True), starting=frozenset(["a"]))
    todo = plan(seen, NOW)
    assert todo.status is not None
    assert (todo.status.phase, todo.actions, todo.requeue_after) == (JobPhase.NEW, (), 1.0)
    requested = replace(seen, others={"a": make_other_job("a", "Pending")})
    assert plan(recorded(requested), NOW).actions == (CancelRun(RunKey(OWNER_UID, "run-of-a")),)
    for others, starting in (({}, {"a"}), ({"a": make_other_job("a", of="mnist")}, {"a"}), (seen.others, {})):
        status = plan(replace(seen, others=others, starting=frozenset(starting)), NOW).status
        assert status is not None
        assert status.phase is JobPhase.PENDING


# --- in the service


def path_of(run: RunSpec) -> list[str]:
    assert run.warmup is not None
    return list(run.warmup.paths)


async def state_of(data: DataHarness, name: str) -> tuple[str, str]:
    status = await data.status(Key("default", name), ports.SAMPLE_JOBS)
    return status.get("phase", ""), status.get("message", "")


async def test_warmups_run_side_by_side_each_is_cancelled_alone_and_others_wait_for_both(
    data: DataHarness,
) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING, "remove": RunPhase.RUNNING}
    for name in ("first", "second"):
        await data.create_job(make_sample_job(name, **warm(name)))
        await data.expect_job("Running", name)
    await data.create_job(make_sample_job(**CLEAR))
    assert await state_of(data, "job") == ("Pending", "waits for SampleJob first, SampleJob second")
    await data.expect_condition("Started", "WaitingForTurn", JOB, ports.SAMPLE_JOBS)
    # One that waits, and one that runs, are cancelled without a trace in the others.
    await data.create_job(make_sample_job("late", **remove("first")))
    assert await state_of(data, "late") == ("Pending", "waits for SampleJob first")
    await data.delete(Key("default", "late"), ports.SAMPLE_JOBS)
    await data.drive()
    assert not await data.exists(Key("default", "late"), ports.SAMPLE_JOBS)
    first, second = data.runtime.runs("warmup")
    await data.delete(Key("default", "first"), ports.SAMPLE_JOBS)
    await data.drive()
    assert not await data.exists(Key("default", "first"), ports.SAMPLE_JOBS)
    await data.expect_job("Running", "second")
    assert await state_of(data, "job") == ("Pending", "waits for SampleJob second")
    assert not any(first.run_id in key for key in await data.records())
    assert any(second.run_id in key for key in await data.records())
    assert not any(key.endswith(".cancel") for key in await data.records())
    await data.runtime.end(second, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Succeeded", "second")
    await data.expect_job("Succeeded")
    assert not data.runtime.runs("remove")


async def test_the_line_goes_by_priority_and_then_by_age(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"remove": RunPhase.RUNNING}
    await data.create_job(make_sample_job("runs", **remove("a")))
    for name, priority in (("old", 0), ("young", 0), ("urgent", 5), ("later", 9)):
        await data.clock.advance(2)
        job = make_sample_job(name, priority=priority, **remove("a/b", name))
        job["metadata"]["creationTimestamp"] = data.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        await data.create_job(job)
    await data.patch(Key("default", "later"), {"spec": {"priority": -1}}, ports.SAMPLE_JOBS)
    await data.drive()
    assert await state_of(data, "urgent") == ("Pending", "waits for SampleJob runs")
    before = "waits for SampleJob urgent, which is before it with priority 5"
    assert await state_of(data, "old") == ("Pending", before)
    for _ in range(5):
        await data.runtime.end(data.runtime.runs("remove")[-1], RunPhase.SUCCEEDED)
        await data.drive()
    done = [run.remove.paths[-1] for run in data.runtime.runs("remove") if run.remove]
    assert done == ["a", "urgent", "old", "young", "later"]


async def test_of_jobs_created_in_one_second_the_first_one_runs_first(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"remove": RunPhase.RUNNING}
    for name in ("m-runs", "z", "a"):
        await data.create_job(make_sample_job(name, **remove("x")))
    assert await state_of(data, "a") == ("Pending", "waits for SampleJob z, which is before it")


async def test_a_run_that_moves_to_another_set_keeps_nobody_of_the_first_waiting(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job("first", **CLEAR))
    await data.create_job(make_sample_job("second", **CLEAR))
    await data.create_job(make_sample_job("third", **WARM))
    moved = {"spec": {"sampleSetRef": {"name": "mnist"}}}
    await data.patch(Key("default", "second"), moved, ports.SAMPLE_JOBS)
    await data.drive()
    assert await state_of(data, "third") == ("Pending", "waits for SampleJob first")


async def test_a_warmup_does_not_overtake_a_clear_that_waits(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING, "clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job("first", **WARM))
    await data.create_job(make_sample_job("second", **CLEAR))
    await data.create_job(make_sample_job("third", **WARM))
    assert await state_of(data, "third") == ("Pending", "waits for SampleJob second, which is before it")
    await data.delete(Key("default", "second"), ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Running", "third")


async def test_who_waits_for_a_job_that_leaves_the_line_runs(data: DataHarness) -> None:
    """The other is refused, without an edit: its Secret has gone."""
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING, "remove": RunPhase.RUNNING}
    await data.create(make_secret("keys"), ports.SECRETS)
    await data.create_job(make_sample_job("runs", **remove("a")))
    await data.create_job(make_sample_job("copies", secretRef={"name": "keys"}, priority=1, **sync()))
    await data.create_job(make_sample_job("waits", **remove("b")))
    assert await state_of(data, "waits") == (
        "Pending",
        "waits for SampleJob copies, which is before it with priority 1",
    )
    await data.delete(Key("default", "keys"), ports.SECRETS)
    await data.clock.advance(31)
    labels = {"metadata": {"labels": {"touched": "yes"}}}
    await data.patch(Key("default", "copies"), labels, ports.SAMPLE_JOBS)
    await data.drive()
    assert (await data.expect_job("Pending", "copies"))["reason"] == "SecretNotFound"
    await data.expect_job("Running", "waits")


async def test_a_job_that_others_waited_for_is_deleted_when_they_have_begun(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING, "remove": RunPhase.RUNNING}
    await data.create_job(make_sample_job("warms", **warm("x")))
    await data.create_job(make_sample_job("first", ttlSecondsAfterFinished=0, **remove("a")))
    await data.create_job(make_sample_job("second", after=["first"], **remove("x")))
    await data.runtime.end(data.runtime.runs("remove")[0], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Succeeded", "first")
    assert await state_of(data, "second") == ("Pending", "waits for SampleJob warms")
    await data.runtime.end(data.runtime.runs("warmup")[0], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Running", "second")
    assert not await data.exists(Key("default", "first"), ports.SAMPLE_JOBS)


async def test_terminate_cancels_those_that_wait_too(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("a-runs", **WARM))
    await data.create_job(make_sample_job("b-waits", **CLEAR))
    await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
    await data.expect_job("Succeeded", "c-ends")
    for name in ("a-runs", "b-waits"):
        assert (await data.expect_job("Failed", name))["reason"] == "Cancelled"
    assert not data.runtime.runs("clear")


async def test_of_jobs_created_in_one_second_terminate_cancels_those_before_it_whatever_their_names(
    data: DataHarness,
) -> None:
    """Time stamps of the API server have whole seconds. Also after a restart, when all are listed by name."""
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING, "clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job("m-runs", **WARM))
    await data.create(make_sample_job("z-waits", **CLEAR), ports.SAMPLE_JOBS)
    await data.create(make_sample_job("k-ends", terminate=True, **remove("x")), ports.SAMPLE_JOBS)
    await data.create(make_sample_job("a-younger", **CLEAR), ports.SAMPLE_JOBS)
    await data.create(make_sample_job("y-younger", **CLEAR), ports.SAMPLE_JOBS)
    await data.drive()
    await data.restart()
    await data.drive()
    for name in ("m-runs", "z-waits"):
        assert (await data.expect_job("Failed", name))["reason"] == "Cancelled"
    await data.expect_job("Succeeded", "k-ends")
    await data.expect_job("Running", "a-younger")
    assert await state_of(data, "y-younger") == ("Pending", "waits for SampleJob a-younger")


async def test_a_job_that_ends_the_others_does_not_run_beside_one_that_overtook_it(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    uid = await data.start_set(warmup={}, noSync=True)
    await data.expect_phase("Mount")
    await data.create_job(make_sample_job("ends", terminate=True, **remove("x")))
    assert await state_of(data, "ends") == ("Pending", "waits for the set's own warmup")
    await data.runtime.report(uid, 1, mounted=True)
    await data.drive()
    [own] = data.runtime.runs("warmup")
    await data.create_job(make_sample_job("overtakes", priority=10, **WARM))
    await data.expect_job("Running", "overtakes")
    await data.runtime.end(own, RunPhase.SUCCEEDED)
    await data.wait(20)
    await data.expect_phase("Ready")
    assert await state_of(data, "ends") == ("Pending", "waits for SampleJob overtakes")
    await data.runtime.end(data.runtime.runs("warmup")[-1], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Succeeded", "overtakes")
    await data.expect_job("Succeeded", "ends")


async def test_a_cancel_that_the_bus_did_not_take_is_made_up_for(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("a-runs", **WARM))
    await data.expect_job("Running", "a-runs")
    await data.wait(2)
    with data.bus_down():
        await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
        await data.wait(90)
        begun = await data.expect_job("Pending", "c-ends")
        assert begun["jobName"], "it goes on without the bus"
        done = await data.condition(Key("default", "c-ends"), "OthersCancelled", ports.SAMPLE_JOBS)
        assert done["message"] == "cancelled, but not ended 60 s later: SampleJob a-runs"
    await data.wait(40)
    ended = await data.expect_job("Failed", "a-runs")
    told = f"the run was cancelled; {RUN_AGAIN}"
    assert (ended["reason"], ended["message"]) == ("Cancelled", told), "its agents were told"
    await data.expect_job("Succeeded", "c-ends")


async def test_terminate_cancels_the_first_sync_that_no_agent_has_taken(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING}
    await data.start_set()
    await data.expect_phase("Syncing")
    [first] = data.runtime.runs("sync")
    bucket = data.bus.key_value(RUNS_BUCKET)
    await bucket.delete(RunKey(first.set_uid, first.run_id).state)
    data.runtime.script = {}
    await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
    await data.wait(20)
    await data.expect_phase("SyncFailed")
    assert RunKey(first.set_uid, first.run_id).cancel in await data.records()
    await data.expect_job("Succeeded", "c-ends")


async def test_a_run_that_no_agent_had_taken_when_the_bus_went_is_cancelled_before_the_one_that_ends_it(
    data: DataHarness,
) -> None:
    await data.ready_set()
    data.runtime.away = True
    await data.create_job(make_sample_job("a-waits", **WARM))
    run = (await data.expect_job("Pending", "a-waits"))["jobName"]
    await data.wait(2)
    with data.bus_down():
        await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
        await data.wait(90)
        assert (await data.expect_job("Failed", "a-waits"))["reason"] == "Cancelled"
    await data.wait(20)
    await data.runtime.come_back()
    await data.wait(20)
    await data.expect_job("Succeeded", "c-ends")
    assert not data.runtime.runs("warmup")
    assert not any(run in key for key in await data.records()), "nothing of it stays on the bus"


async def test_terminate_cancels_the_first_sync_that_no_agent_took_before_the_bus_went(
    data: DataHarness,
) -> None:
    data.runtime.away = True
    uid = await data.start_set()
    first = (await data.expect_phase("Syncing"))["jobsName"]["syncJobName"]
    with data.bus_down():
        await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
        await data.wait(90)
        assert await state_of(data, "c-ends") == ("Pending", "waits for the set's own first sync")
    await data.wait(20)
    assert RunKey(uid, first).cancel in await data.records()
    await data.runtime.come_back()
    await data.wait(20)
    await data.expect_phase("SyncFailed")
    await data.expect_job("Succeeded", "c-ends")
    assert not data.runtime.runs("sync")


async def test_a_warmup_of_the_set_that_was_cancelled_stays_so_when_the_job_that_ended_it_is_done(
    data: DataHarness,
) -> None:
    """The bus has lost the run and its cancel before an agent heard of them, and the set writes it again."""
    data.runtime.away = True
    uid = await data.start_set(warmup={}, noSync=True)
    await data.runtime.report(uid, 1, mounted=True)
    await data.drive()
    own = (await data.expect_phase("PartialReady"))["jobsName"]["warmupJobName"]
    await data.create_job(make_sample_job("c-ends", terminate=True, **WARM))
    await data.wait(70)
    assert (await data.expect_job("Pending", "c-ends"))["jobName"], "it has waited for the set long enough"
    bucket = data.bus.key_value(RUNS_BUCKET)
    for key in (RunKey(uid, own).cancel, RunKey(uid, own).spec):
        await bucket.delete(key)
    await data.runtime.come_back()
    await data.drive()
    await data.expect_job("Succeeded", "c-ends")
    await data.wait(20)
    await data.expect_condition("Warmed", "Cancelled")
    assert own not in [run.run_id for run in data.runtime.runs("warmup")]


async def test_a_cancelled_run_that_the_bus_loses_is_not_begun_again(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("a-runs", **WARM))
    run = (await data.expect_job("Running", "a-runs"))["jobName"]
    await data.wait(2)
    with data.bus_down():
        await data.create_job(make_sample_job("c-ends", terminate=True, **remove("x")))
        await data.wait(90)
    bucket = data.bus.key_value(RUNS_BUCKET)
    for entry in await bucket.entries(">"):
        if run in entry.key:
            await bucket.delete(entry.key)
    await data.wait(40)
    assert (await data.expect_job("Failed", "a-runs"))["reason"] == "Cancelled"
    await data.expect_job("Succeeded", "c-ends")
    assert len(data.runtime.runs("warmup")) == 1


def test_of_two_jobs_that_begin_at_the_same_moment_one_waits() -> None:
    """The second decides while the first is being recorded; a first that is not recorded decides anew."""
    first, second = rival_of(make_other_job("b")), make_observed_job(meta={"name": "b"}, **CLEAR)
    second = replace(second, others={"job": make_other_job("job", **CLEAR)})
    kind = SampleJobKind(Mock(), Mock(), SystemClock())
    assert started_by(kind.plan(first, NOW))
    assert not started_by(kind.plan(second, NOW))
    kind.forget(JOB, "job-uid")
    assert started_by(kind.plan(second, NOW))
    assert not started_by(kind.plan(first, NOW))


def started_by(todo: JobPlan) -> bool:
    return todo.status is not None and todo.status.phase is JobPhase.PENDING


async def test_jobs_of_a_set_fall_to_the_replica_of_the_set(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())
    asked: list[Key] = []
    monkeypatch.setattr(data.replica.operator, "owns", asked.append)
    owns = data.replica.owns
    assert not owns[ports.SAMPLE_SETS](SET)
    assert not owns[ports.SAMPLE_JOBS](JOB)
    assert asked == [SET, SET]
    assert owns[ports.SAMPLE_JOBS](Key("default", "gone")), "every replica forgets what is gone"
