"""Whole plans of SampleJobs: one observation, one moment, everything that is to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    NOW,
    OWNER_UID,
    ago,
    make_observed_job,
    make_other_job,
    make_set,
)

from dataset_controller.domain.actions import CancelRun, ForgetRun, WriteRun
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.limits import MESSAGE_MAX
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.runs import digest, run_id
from dataset_controller.domain.samplejob.credentials import run_keys
from dataset_controller.domain.samplejob.model import JobPlan, JobStatus, ObservedJob
from dataset_controller.domain.samplejob.plan import RUN_AGAIN, plan
from dataset_controller.domain.samplejob.request import BUILDERS, read_request
from dataset_controller.domain.sampleset.model import CacheMark, SampleSet, SyncOrigin
from dataset_controller.domain.sources import Credentials, RunKeys
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    RunSpec,
    RunState,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.operator.domain.plan import KubernetesEvent
from paddlewheel.testkit.samplesets import absent_secret, make_secret

AT, EARLIER = "2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z"
SOURCE = "s3://bucket.s3.example.com/digits"
WARMUP = WarmupOperation(strategy="sequence", threads=50)
CACHE = f"/var/lib/paddlewheel/cache/default/{OWNER_UID}"
SYNC: dict[str, Any] = {"type": "sync", "secretRef": {"name": "source"}}
RUN = RunKey(OWNER_UID, "r1")
WARM_RUN = run_id("job-uid", "0", digest(WARMUP))
"""Of a job that was not edited since."""


def condition(type_: str, is_met: bool, reason: str, message: str = "", since: str = AT) -> Condition:
    return Condition(type_, str(is_met), reason, message, since, 1)


ACCEPTED = condition("Accepted", True, "Accepted")
STARTED = condition("Started", True, "Running")


def status_of(phase: JobPhase, *conditions: Condition, **fields: Any) -> JobStatus:
    return JobStatus(observed_generation=1, phase=phase, conditions=conditions, **fields)


def fact(name: str, attempt: int = 0) -> Announcement:
    return Announcement(f"SampleJob{name}", attempt, "2026-01-01T12:00:00.000Z")


def recorded(seen: ObservedJob, **fields: Any) -> ObservedJob:
    """With other fields in its status."""
    return replace(seen, job=replace(seen.job, status=replace(seen.job.status, **fields)))


def normal(reason: str, message: str) -> tuple[KubernetesEvent, ...]:
    return (KubernetesEvent("Normal", reason, message),)


def with_remedy(why: str) -> str:
    return f"{why}; {RUN_AGAIN}" if why else RUN_AGAIN


def warning(reason: str, message: str) -> tuple[KubernetesEvent, ...]:
    return (KubernetesEvent("Warning", reason, message),)


# --- beginning


@pytest.mark.parametrize(
    ("spec", "operation", "remark"),
    [
        ({"type": "warmup"}, WARMUP, ""),
        (
            {"type": "warmup", "warmupOptions": {"paths": ["a"], "threads": 2}},
            WarmupOperation(paths=["a"], strategy="sequence", threads=2),
            "",
        ),
        ({"type": "rmr", "rmrOptions": {"paths": ["a"]}}, RemoveOperation(paths=["a"]), ""),
        ({"type": "clear"}, ClearOperation(), ""),
        (
            {"type": "clear", "clearOptions": {"paths": [CACHE]}},
            ClearOperation(paths=[CACHE]),
            "",
        ),
        (SYNC, SyncOperation(source=SOURCE, threads=10), ""),
        (
            {**SYNC, "syncOptions": {"source": "minio://host/b", "manager": "m", "http-port": 1}},
            SyncOperation(source="minio://host/b", threads=10),
            "without effect: manager, http-port (the runtime distributes the work itself)",
        ),
        (
            {**SYNC, "syncOptions": {"source": "gs://b/d", "manager": "m"}},
            SyncOperation(source="gs://b/d", threads=10),
            "without effect: manager (the runtime distributes the work itself); without effect: the keys in"
            " Secret default/source: the client of Google Cloud Storage takes the role of the node, which"
            " must be allowed to read the bucket",
        ),
        ({"type": "warmup", "syncOptions": {"manager": "m"}}, WARMUP, ""),
    ],
)
def test_a_job_begins_with_a_run_that_is_named_after_its_operation(
    spec: dict[str, Any], operation: WireModel, remark: str
) -> None:
    run, seen = run_id("job-uid", "0", digest(operation)), make_observed_job(**spec)
    assert plan(seen, NOW) == JobPlan(
        status_of(
            JobPhase.PENDING,
            replace(ACCEPTED, message=remark),
            condition("Started", False, "RunRequested"),
            run_id=run,
            set_name="digits",
            set_uid=OWNER_UID,
            type=spec["type"],
            request_digest=seen.job.request_digest,
        ),
        events=normal("RunRequested", f"requested {spec['type']} as run {run}"),
        requeue_after=0.0,
    )


def test_a_job_that_begins_again_has_another_run_and_nothing_of_the_last_one() -> None:
    failed = Announcement("SampleJobFailed", 1, EARLIER, True)
    seen = recorded(
        make_observed_job(),
        run_id="r1",
        progress={"filesDone": 7},
        started=EARLIER,
        completed=EARLIER,
        announcements=(failed,),
    )
    found = plan(seen, NOW).status
    assert found == status_of(
        JobPhase.PENDING,
        ACCEPTED,
        condition("Started", False, "RunRequested"),
        run_id=run_id("job-uid", "2", digest(WARMUP)),
        set_name="digits",
        set_uid=OWNER_UID,
        type="warmup",
        request_digest=seen.job.request_digest,
        announcements=(failed,),
    )


def test_a_job_whose_secret_is_absent_names_it() -> None:
    message = absent_secret("spec.secretRef", "vault/source")
    reference = {"name": "source", "namespace": "vault"}
    todo = plan(replace(make_observed_job(type="sync", secretRef=reference), secret=None), NOW)
    refused = condition("Accepted", False, "SecretNotFound", message)
    assert todo.status == status_of(JobPhase.NEW, refused)


def test_the_finalizer_is_added_beside_those_of_others() -> None:
    todo = plan(make_observed_job(meta={"finalizers": ["other"]}), NOW)
    assert todo.metadata == {"finalizers": ["other", "paddlepaddle.org/samplejob-job"]}
    assert plan(make_observed_job(), NOW).metadata is None


def test_a_job_waits_until_its_set_can_take_it() -> None:
    waiting = condition("Started", False, "WaitingForSampleSet", "SampleSet digits is in phase 'Mount'")
    assert plan(make_observed_job(set_phase="Mount"), NOW) == JobPlan(
        status_of(JobPhase.NEW, ACCEPTED, waiting)
    )


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"type": "shred"},
            "UnknownOperation",
            "spec.type: 'shred' is not one of sync, warmup, rmr, clear",
        ),
        (
            {"terminate": "perhaps"},
            "InvalidSpec",
            "spec.terminate: Input should be a valid boolean, unable to interpret input",
        ),
        (
            {"sampleSetRef": None},
            "SampleSetNotFound",
            "spec.sampleSetRef.name: name a SampleSet in this namespace",
        ),
        (
            {"type": "sync"},
            "SecretNotFound",
            "spec.secretRef.name: name the Secret with the source's keys (an empty one for a public source)",
        ),
        (
            {**SYNC, "syncOptions": {"source": "x://y"}},
            "InvalidSource",
            "spec.syncOptions.source: unknown store 'x'; known are ",
        ),
        (
            {**SYNC, "syncOptions": {"threads": -1}},
            "InvalidSpec",
            "spec.syncOptions.threads: -1 is not a whole number from 1 to 1024",
        ),
        (
            {"warmupOptions": {"file": ".."}},
            "InvalidSpec",
            "spec.warmupOptions.file: '..' leaves the data set; write it without '..'",
        ),
        ({"type": "rmr"}, "InvalidSpec", "spec.rmrOptions.paths: name at least one path to remove"),
        (
            {"type": "clear", "clearOptions": {"paths": ["a"]}},
            "InvalidSpec",
            "spec.clearOptions.paths[0]: 'a' is not absolute; start it with '/'",
        ),
    ],
)
def test_a_bad_job_says_what_to_correct_and_is_checked_again(
    spec: dict[str, Any], reason: str, message: str
) -> None:
    todo = plan(make_observed_job(**spec), NOW)
    [event] = todo.events
    assert event.message.startswith(message)
    refused = condition("Accepted", False, reason, event.message)
    expected = JobPlan(
        status_of(JobPhase.NEW, refused), events=warning(reason, event.message), requeue_after=5.0
    )
    assert todo == expected
    again = recorded(make_observed_job(**spec), conditions=(refused,))
    assert plan(again, NOW) == replace(expected, events=())


@pytest.mark.parametrize(
    ("sample_set", "spec", "reason", "message"),
    [
        (
            None,
            {},
            "SampleSetNotFound",
            "SampleSet default/digits does not exist; create it or correct sampleSetRef",
        ),
        (
            make_set("Ready", spec={"partitions": -1}),
            {},
            "InvalidSpec",
            "the SampleSet's spec.partitions: -1 is not from 1 to 1000",
        ),
        (
            make_set("Ready", spec={"source": None, "noSync": True}),
            SYNC,
            "InvalidSource",
            "spec.syncOptions.source: name a source; the SampleSet has none",
        ),
    ],
)
def test_a_job_of_a_bad_set_says_what_to_correct(
    sample_set: Any, spec: dict[str, Any], reason: str, message: str
) -> None:
    todo = plan(replace(make_observed_job(**spec), sample_set=sample_set), NOW)
    assert todo.status == status_of(JobPhase.NEW, condition("Accepted", False, reason, message))


# --- ending other runs first

BUSY = {f"r{i}": RunState(phase=phase) for i, phase in enumerate(RunPhase)}


def test_a_job_cancels_what_runs_on_its_set_and_waits() -> None:
    seen = recorded(replace(make_observed_job(terminate=True), runs=BUSY), run_id="r0")
    cancelling = condition("OthersCancelled", False, "CancellingOthers")
    assert plan(seen, NOW) == JobPlan(
        status_of(JobPhase.NEW, ACCEPTED, cancelling, run_id="r0", cancels_since=AT, cancelled_runs=("r1",)),
        requeue_after=0.0,
    )
    begun = recorded(seen, conditions=(cancelling,), cancels_since=AT, cancelled_runs=("r1",))
    todo = plan(begun, NOW)
    assert (todo.actions, todo.requeue_after) == ((CancelRun(RunKey(OWNER_UID, "r1")),), 15.0)
    later = recorded(seen, conditions=(cancelling,), cancels_since=ago(59), cancelled_runs=("r1",))
    assert plan(later, NOW).requeue_after == 1.0


LATE = "cancelled, but not ended 60 s later: run r0, run r1"


@pytest.mark.parametrize(
    ("runs", "seconds", "message"), [({}, 0, ""), (BUSY, 60, LATE), ({"r4": BUSY["r4"]}, 1, "")]
)
def test_a_job_waits_for_cancelled_runs_only_while_there_are_some_and_not_forever(
    runs: dict[str, RunState], seconds: float, message: str
) -> None:
    since = condition("OthersCancelled", False, "CancellingOthers", since=ago(seconds))
    seen = replace(make_observed_job(terminate=True), runs=runs)
    ends = ("r0", "r1") if message else ()
    seen = recorded(seen, conditions=(since,), cancels_since=ago(seconds), cancelled_runs=ends)
    todo = plan(seen, NOW)
    assert todo.status is not None
    assert todo.status.phase is JobPhase.PENDING
    assert len(todo.actions) == (2 if message else 0), "those that have not ended are cancelled once more"
    assert todo.status.condition("OthersCancelled") == condition(
        "OthersCancelled", True, "Cancelled", message
    )
    assert todo.status.cancels_since == (ago(seconds) if seconds else AT), "not the end of the waiting"
    done = recorded(seen, conditions=todo.status.conditions)
    assert plan(replace(done, runs=BUSY), NOW) == plan(replace(done, runs={}), NOW)


@pytest.mark.parametrize("spec", [{"terminate": True}, {}])
def test_until_runs_are_known_a_job_neither_ends_others_nor_begins(spec: dict[str, Any]) -> None:
    todo = plan(replace(make_observed_job(**spec), are_records_known=False), NOW)
    message = "waits for the bus: which runs there are is not known yet"
    waits = condition("Started", False, "WaitingForTurn", message)
    assert todo == JobPlan(status_of(JobPhase.NEW, ACCEPTED, waits), requeue_after=2.0)


GOING = make_set("Ready", meta={"deletionTimestamp": ago(1)})


def test_no_job_begins_on_a_set_that_is_being_deleted() -> None:
    specs: list[dict[str, Any]] = [{}, {"terminate": True}]
    for spec in specs:
        todo = plan(replace(make_observed_job(**spec), sample_set=GOING, runs=BUSY), NOW)
        waits = condition("Started", False, "WaitingForSampleSet", "SampleSet digits is being deleted")
        assert todo == JobPlan(status_of(JobPhase.NEW, ACCEPTED, waits))


# --- following a run


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_no_record_comes_back_to_a_set_that_is_being_deleted(phase: str) -> None:
    seen = begun(phase)
    assert [type(action) for action in plan(seen, NOW).actions] == [WriteRun]
    assert plan(replace(seen, sample_set=GOING), NOW).actions == ()


def begun(phase: str, **spec: Any) -> ObservedJob:
    """A job with the run that it asks for."""
    new = make_observed_job(**spec)
    return make_observed_job(phase, read_request(new).run_id("job-uid", 0), **spec)


def record(operation: dict[str, Any], partitions: int = 1, run: str = WARM_RUN) -> WriteRun:
    return WriteRun(
        RunSpec(
            run_id=run,
            set_namespace="default",
            set_name="digits",
            set_uid=OWNER_UID,
            partitions=partitions,
            requested_at=NOW,
            **operation,
        )
    )


@pytest.mark.parametrize(
    ("spec", "operation"),
    [
        ({}, {"warmup": WARMUP}),
        ({"type": "clear"}, {"clear": ClearOperation()}),
        ({"type": "rmr", "rmrOptions": {"paths": ["a"]}}, {"remove": RemoveOperation(paths=["a"])}),
        (SYNC, {"sync": SyncOperation(source=SOURCE, threads=10)}),
        (
            {"type": "sync", "syncOptions": {"source": "s3://AK:SK@b"}},
            {"sync": SyncOperation(source="s3://b", threads=10)},
        ),
    ],
)
def test_a_run_that_no_agent_has_taken_is_requested_with_a_share_for_each_partition(
    spec: dict[str, Any], operation: dict[str, Any]
) -> None:
    """Whichever are ready: others do the work of those that are not."""
    runtime = {"runtimeStatus": {"readyReplicas": 2}}
    own = make_set("Ready", spec={"partitions": 3}, status=runtime)
    seen = replace(begun("Pending", **spec), sample_set=own)
    run = seen.status.run_id
    if (sync := operation.get("sync")) is not None:
        operation = {"sync": sync.model_copy(update={"secret": f"job-{run}"})}
    assert plan(seen, NOW) == JobPlan(
        status_of(JobPhase.PENDING, run_id=run), (record(operation, 3, run),), requeue_after=15.0
    )


@pytest.mark.parametrize(
    ("options", "operation"),
    [({}, ClearOperation()), ({"clearOptions": {"paths": ["/a"]}}, ClearOperation(paths=["/a"]))],
)
def test_an_operation_without_a_builder_takes_its_options_as_they_are(
    options: dict[str, Any], operation: ClearOperation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(BUILDERS, "clear")
    seen = begun("Pending", type="clear", **options)
    assert plan(seen, NOW).actions == (record({"clear": operation}, run=seen.status.run_id),)


def test_a_public_source_needs_no_keys_in_the_run() -> None:
    seen = replace(begun("Pending", **SYNC), secret=make_secret("source", values={}))
    operation = {"sync": SyncOperation(source=SOURCE, threads=10)}
    assert plan(seen, NOW).actions == (record(operation, run=seen.status.run_id),)


NO_PATHS = "spec.rmrOptions.paths: name at least one path to remove"


def test_a_job_edited_into_a_bad_one_leaves_its_run_alone_and_says_why_it_cannot_be_written() -> None:
    seen = make_observed_job("Pending", "r1", type="rmr")
    refused = condition("Accepted", False, "InvalidSpec", NO_PATHS)
    expected = JobPlan(
        status_of(JobPhase.PENDING, refused, run_id="r1"),
        events=warning("InvalidSpec", NO_PATHS),
        requeue_after=5.0,
    )
    assert plan(seen, NOW) == expected
    assert plan(recorded(seen, conditions=(refused,)), NOW) == replace(expected, events=())
    unknown = plan(replace(seen, are_records_known=False), NOW)
    assert unknown == JobPlan(status_of(JobPhase.PENDING, run_id="r1"), requeue_after=15.0)
    still = plan(replace(recorded(seen, conditions=(refused,)), are_records_known=False), NOW)
    assert still == replace(unknown, status=expected.status), "a restart of the service changes nothing"
    taken = plan(replace(seen, runs={"r1": STATE}), NOW)
    assert taken.status is not None
    assert (taken.status.phase, taken.status.condition("Accepted")) == (JobPhase.RUNNING, None)


@pytest.mark.parametrize(
    "state", [{}, {WARM_RUN: RunState(phase=RunPhase.RUNNING)}], ids=["written", "taken"]
)
def test_a_run_that_could_not_be_written_is_accepted_once_it_can_or_an_agent_has_it(
    state: dict[str, RunState],
) -> None:
    refused = condition("Accepted", False, "InvalidSpec", "the SampleSet's spec.partitions: ...", EARLIER)
    seen = recorded(make_observed_job("Pending", WARM_RUN), conditions=(refused,))
    todo = plan(replace(seen, runs=state), NOW)
    assert todo.status is not None
    assert todo.status.condition("Accepted") == ACCEPTED
    assert [type(action) for action in todo.actions] == [WriteRun]


EDITS: dict[str, dict[str, Any]] = {
    "options": {"warmupOptions": {"threads": 2}},
    "type": {"type": "clear"},
    "set": {"sampleSetRef": {"name": "mnist"}},
}


def edited(phase: str, edit: dict[str, Any], **fields: Any) -> ObservedJob:
    """A warmup of digits whose spec was edited since it was requested."""
    seen = replace(make_observed_job(phase, WARM_RUN, **edit), **fields)
    return recorded(seen, set_name="digits", type="warmup")


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_run_goes_on_as_it_was_requested_whatever_the_spec_says_by_now(edit: dict[str, Any]) -> None:
    seen = edited("Running", edit, runs={WARM_RUN: STATE})
    assert (seen.job.set_name, seen.job.type) == ("digits", "warmup")
    todo = plan(seen, NOW)
    assert todo.actions == ()
    assert todo.status is not None
    assert (todo.status.phase, todo.status.progress) == (JobPhase.RUNNING, PROGRESS)
    done = plan(replace(seen, runs={WARM_RUN: STATE.model_copy(update={"phase": RunPhase.SUCCEEDED})}), NOW)
    assert done.status is not None
    assert (done.status.phase, done.status.set_name, done.status.type) == ("Succeeded", "digits", "warmup")


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_job_whose_run_nobody_has_asks_for_another_run(edit: dict[str, Any]) -> None:
    status = plan(edited("Pending", edit), NOW).status
    assert status is not None
    assert (status.phase, status.run_id, status.set_name, status.type) == (JobPhase.NEW, "", "", "")
    assert status.condition("Started") == condition("Started", False, "OptionsChanged")
    lost = plan(edited("Running", edit), NOW)
    assert lost.actions == ()
    assert lost.status is not None
    assert (lost.status.phase, lost.status.announcements[-1]) == (JobPhase.FAILED, fact("Failed"))
    unknown = plan(edited("Pending", edit, are_records_known=False), NOW)
    assert unknown.actions == ()
    assert unknown.status is not None
    assert (unknown.status.phase, unknown.status.run_id) == (JobPhase.PENDING, WARM_RUN)


STATE = RunState(
    phase=RunPhase.RUNNING,
    files_done=1,
    files_total=2,
    bytes_done=3,
    bytes_total=4,
    cached_percent=99.125,
    listed=True,
)
PROGRESS = {
    "filesDone": 1,
    "filesTotal": 2,
    "bytesDone": 3,
    "bytesTotal": 4,
    "percent": "50%",
    "cachedPercent": 99.12,
    "listed": True,
}


def running(**state: Any) -> ObservedJob:
    """A job whose run was last seen an hour ago, by the status, and is seen now as in `state`."""
    seen = make_observed_job("Running", WARM_RUN)
    seen = replace(seen, runs={WARM_RUN: STATE.model_copy(update=state)})
    return recorded(seen, started=EARLIER, progress={"filesDone": 0})


def test_a_run_that_an_agent_has_taken_has_started() -> None:
    seen = replace(make_observed_job("Pending", WARM_RUN), runs={WARM_RUN: STATE}, progress_due=False)
    status = status_of(
        JobPhase.RUNNING,
        STARTED,
        run_id=WARM_RUN,
        progress=PROGRESS,
        started=AT,
        announcements=(fact("Started"),),
    )
    assert plan(seen, NOW) == JobPlan(status, (record({"warmup": WARMUP}),), requeue_after=15.0)


def test_a_job_says_what_its_run_waits_for() -> None:
    status = plan(running(reason="PartitionAway", message="partition 1: away"), NOW).status
    assert status is not None
    found = status.condition("Started")
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "PartitionAway", "partition 1: away")


@pytest.mark.parametrize(
    ("is_due", "progress", "again"), [(True, PROGRESS, 15.0), (False, {"filesDone": 0}, 2.0)]
)
def test_progress_is_recorded_at_a_bounded_rate(is_due: bool, progress: dict[str, Any], again: float) -> None:
    todo = plan(replace(running(), progress_due=is_due), NOW)
    status = status_of(
        JobPhase.RUNNING,
        STARTED,
        run_id=WARM_RUN,
        progress=progress,
        started=EARLIER,
        announcements=(fact("Started"),),
    )
    assert todo == JobPlan(status, (record({"warmup": WARMUP}),), requeue_after=again)


def test_a_job_whose_run_succeeded_has_succeeded() -> None:
    todo = plan(replace(running(phase=RunPhase.SUCCEEDED), progress_due=False), NOW)
    assert todo == JobPlan(
        status_of(
            JobPhase.SUCCEEDED,
            STARTED,
            condition("Complete", True, "Completed"),
            run_id=WARM_RUN,
            request_digest=running().job.request_digest,
            progress=PROGRESS,
            started=EARLIER,
            completed=AT,
            announcements=(fact("Started"), fact("Succeeded")),
        ),
        events=normal("Completed", "1 files, 3 bytes"),
        requeue_after=60.0,
    )


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        ({"phase": RunPhase.FAILED, "reason": "FilesFailed", "message": "a.png"}, "FilesFailed", "a.png"),
        ({"phase": RunPhase.FAILED}, "RunFailed", ""),
        ({"phase": RunPhase.CANCELLED, "reason": "Why"}, "Cancelled", "the run was cancelled"),
        ({"phase": RunPhase.CANCELLED, "message": "by hand"}, "Cancelled", "by hand"),
    ],
)
def test_a_job_whose_run_did_not_succeed_has_failed(state: dict[str, Any], reason: str, message: str) -> None:
    message = with_remedy(message)
    assert plan(running(**state), NOW) == JobPlan(
        status_of(
            JobPhase.FAILED,
            STARTED,
            condition("Complete", False, reason, message),
            run_id=WARM_RUN,
            request_digest=running().job.request_digest,
            progress=PROGRESS,
            started=EARLIER,
            completed=AT,
            announcements=(fact("Started"), fact("Failed")),
        ),
        events=warning(reason, message),
        requeue_after=60.0,
    )


def test_a_job_whose_set_is_gone_has_failed() -> None:
    todo = plan(replace(running(), sample_set=None), NOW)
    assert todo.status is not None
    gone = with_remedy("SampleSet digits is gone")
    assert todo.status.condition("Complete") == condition("Complete", False, "SampleSetNotFound", gone)
    assert (todo.status.phase, todo.status.progress["filesDone"]) == (JobPhase.FAILED, 0)
    assert (todo.actions, todo.events) == ((), warning("SampleSetNotFound", gone))


def test_a_run_is_not_carried_over_to_another_set_of_the_same_name() -> None:
    seen = recorded(replace(running(), runs={}), set_name="digits", set_uid=OWNER_UID)
    assert [type(action) for action in plan(seen, NOW).actions] == [WriteRun]
    assert seen.sample_set is not None
    todo = plan(replace(seen, sample_set=replace(seen.sample_set, uid="uid-2")), NOW)
    gone = with_remedy("SampleSet digits of this run is gone; another one has its name now")
    assert todo.status is not None
    assert todo.status.condition("Complete") == condition("Complete", False, "SampleSetNotFound", gone)
    assert (todo.status.phase, todo.status.set_uid) == (JobPhase.FAILED, OWNER_UID)
    assert (todo.actions, todo.events) == ((), warning("SampleSetNotFound", gone))


# --- after the end


def ended(phase: str, *, run: str = "r1", generation: int = 1, **spec: Any) -> ObservedJob:
    seen = make_observed_job(phase, run, **spec)
    seen = replace(seen, job=replace(seen.job, generation=generation), recorded=(RUN,))
    return recorded(
        seen,
        observed_generation=1,
        conditions=(STARTED, condition("OthersCancelled", True, "x"), condition("Complete", False, "y")),
        progress=PROGRESS,
        started=EARLIER,
        completed=EARLIER,
        announcements=(fact("Started"), fact("Failed")),
    )


def test_an_edit_of_a_job_that_has_succeeded_is_answered_once() -> None:
    seen = ended("Succeeded")
    assert plan(seen, NOW) == JobPlan(seen.status, (ForgetRun(RUN),))
    edited = ended("Succeeded", generation=2)
    assert plan(edited, NOW) == JobPlan(
        replace(seen.status, observed_generation=2),
        (ForgetRun(RUN),),
        events=warning("EditsIgnored", "the job has succeeded; a new run needs a new SampleJob"),
    )


MIRROR: dict[str, Any] = {**SYNC, "syncOptions": {"delete-dst": True}}


def edited_after_failing(generation: int = 2, **edit: Any) -> ObservedJob:
    """A mirror of the set's source that has failed in generation 1, when it was not edited yet."""
    seen = ended("Failed", generation=generation, **{**MIRROR, **edit})
    return recorded(seen, request_digest=ended("Failed", **MIRROR).job.request_digest)


def with_source(seen: ObservedJob, uri: str) -> ObservedJob:
    return replace(seen, sample_set=make_set("Ready", spec={"source": {"uri": uri}}))


@pytest.mark.parametrize("source", [SOURCE, "s3://bucket.s3.example.com/tiny"], ids=["same", "other"])
@pytest.mark.parametrize(
    ("generation", "edit"),
    [
        (1, {}),
        (1, {"syncOptions": {"delete-dst": True, "threads": 2}}),
        (2, {"ttlSecondsAfterFinished": None}),
        (2, {"priority": 9}),
        (2, {"terminate": True}),
    ],
    ids=["unedited", "edited before its end", "time to live", "priority", "terminate"],
)
def test_a_failed_job_rests_whatever_its_set_or_a_new_release_makes_of_its_request(
    source: str, generation: int, edit: dict[str, Any]
) -> None:
    seen = with_source(edited_after_failing(generation, **edit), source)
    rests = replace(seen.status, observed_generation=generation)
    assert plan(seen, NOW) == JobPlan(rests, (ForgetRun(RUN),))


@pytest.mark.parametrize(
    "edit",
    [
        {"syncOptions": {"delete-dst": True, "threads": 2}},
        {"type": "warmup"},
        {"sampleSetRef": {"name": "mnist"}},
        {"secretRef": {"name": "corrected"}},
        {"after": ["first"]},
        {"type": "rmr"},
    ],
    ids=["options", "type", "set", "secret", "after", "to an invalid one"],
)
def test_a_failed_job_starts_again_when_what_it_asks_for_is_edited(edit: dict[str, Any]) -> None:
    todo = plan(edited_after_failing(**edit), NOW)
    started = replace(condition("Started", False, "OptionsChanged"), observed_generation=2)
    status = status_of(JobPhase.NEW, started, announcements=(fact("Started"), fact("Failed")))
    assert todo == JobPlan(replace(status, observed_generation=2), (ForgetRun(RUN),), requeue_after=0.0)


def test_what_a_job_asked_for_under_an_older_release_is_known_while_nobody_has_edited_it() -> None:
    seen = recorded(edited_after_failing(generation=1), request_digest="")
    known = replace(seen.status, request_digest=seen.job.request_digest)
    assert plan(seen, NOW) == JobPlan(known, (ForgetRun(RUN),))


def test_what_was_edited_while_the_run_went_on_starts_nothing_later() -> None:
    went_on = running(phase=RunPhase.FAILED)
    edited = make_observed_job("Running", "r1", **{**MIRROR, "secretRef": {"name": "corrected"}}).job
    status = plan(replace(went_on, job=replace(edited, status=went_on.status)), NOW).status
    assert status is not None
    assert status.request_digest == edited.request_digest


def test_a_job_that_was_edited_after_it_failed_under_an_older_release_is_created_anew() -> None:
    """Nobody knows what it asked for then."""
    seen = recorded(edited_after_failing(syncOptions={"threads": 2}), request_digest="")
    assert plan(seen, NOW) == JobPlan(replace(seen.status, observed_generation=2), (ForgetRun(RUN),))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", RUN_AGAIN),
        ("a.png", f"a.png; {RUN_AGAIN}"),
        ("x" * MESSAGE_MAX, f"{'x' * (MESSAGE_MAX - len(RUN_AGAIN) - 2)}; {RUN_AGAIN}"),
    ],
)
def test_a_failed_job_says_how_it_is_run_again(told: str, said: str) -> None:
    status = plan(running(phase=RunPhase.FAILED, message=told), NOW).status
    assert status is not None
    complete = status.condition("Complete")
    assert complete is not None
    assert complete.message == said


def test_a_job_whose_run_the_bus_has_lost_keeps_its_progress() -> None:
    """The set learns from it that files were copied."""
    seen = make_observed_job("Running", "r1", type="sync", secretRef={"name": "source"})
    todo = plan(recorded(seen, progress={**PROGRESS, "etaSeconds": 5}), NOW)
    assert todo.status is not None
    assert (todo.status.phase, todo.status.progress) == (JobPhase.FAILED, PROGRESS)


# --- time to live


def outlived(
    phase: str, seconds: float, ttl: int | None, *, is_noted: bool = True, **spec: Any
) -> ObservedJob:
    """A job that has ended `seconds` ago, whose set was warmed an hour ago."""
    run = run_id("job-uid", "0", digest(WARMUP))
    seen = recorded(ended(phase, run=run, ttlSecondsAfterFinished=ttl, **spec), completed=ago(seconds))
    return replace(seen, sample_set=make_warm_set(is_noted=is_noted))


def make_warm_set(*, is_noted: bool = False, **meta: str) -> SampleSet:
    """A set that was warmed an hour ago, and may have taken note of the job."""
    own = make_set("Ready", spec={"warmup": {}}, meta=meta)
    warmed = Condition("Warmed", "True", "Warmed", "", EARLIER)
    mark = CacheMark("2026-01-01T12:00:00.000Z", "job") if is_noted else CacheMark(EARLIER)
    return replace(own, status=replace(own.status, conditions=(warmed,), cache_mark=mark))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    ("seconds", "ttl", "again", "is_deleted"),
    [
        (99, None, None, False),
        (0, 30, 30.0, False),
        (29, 30, 1.0, False),
        (30, 30, None, True),
        (0, 0, None, True),
    ],
)
def test_a_job_that_has_ended_is_deleted_when_its_time_is_over(
    phase: str, seconds: float, ttl: int | None, again: float | None, is_deleted: bool
) -> None:
    todo = plan(outlived(phase, seconds, ttl), NOW)
    assert todo.requeue_after == again
    assert todo.actions == (ForgetRun(RUN),)
    [event] = normal("TTLExpired", f"deleted {ttl} s after its end")
    assert todo.expiry == (event if is_deleted else None)


@pytest.mark.parametrize(("seconds", "is_deleted"), [(0, False), (59, False), (60, True)])
def test_a_job_waits_a_minute_for_its_set_to_note_what_it_did_to_the_cache(
    seconds: float, is_deleted: bool
) -> None:
    """The set knows that its cache was emptied from the job alone."""
    todo = plan(outlived("Succeeded", seconds, 0, is_noted=False, type="clear"), NOW)
    assert (todo.expiry is not None) is is_deleted
    assert todo.requeue_after == (None if is_deleted else 2.0)


@pytest.mark.parametrize("overwrites", [True, False])
def test_a_job_waits_for_its_set_to_note_that_it_has_removed_what_a_failed_sync_had_left(
    overwrites: bool,
) -> None:
    seen = outlived("Succeeded", 0, 0, type="sync", syncOptions={"delete-dst": True})
    assert seen.sample_set is not None
    synced = Condition("Synced", "True", "Synced", "", EARLIER)
    origin = SyncOrigin("s3://bucket/v2", overwrites=overwrites)
    status = replace(seen.sample_set.status, conditions=(synced,), sync_origin=origin)
    todo = plan(replace(seen, sample_set=replace(seen.sample_set, status=status)), NOW)
    assert (todo.expiry is not None) is not overwrites


def test_a_job_is_not_deleted_while_another_has_still_to_see_that_it_succeeded() -> None:
    seen = outlived("Succeeded", 99, 0)
    for phase, is_deleted in (("", False), ("Running", True)):
        todo = plan(replace(seen, others={"b": make_other_job("b", phase, after=["job"])}), NOW)
        assert (todo.expiry is not None) is is_deleted


@pytest.mark.parametrize(("ttl", "again"), [(None, 60.0), (7, 7.0), (90, 60.0)])
def test_a_job_that_ends_is_looked_at_again_when_its_time_is_over(ttl: int | None, again: float) -> None:
    seen = replace(
        make_observed_job("Running", "r1", ttlSecondsAfterFinished=ttl),
        runs={"r1": STATE.model_copy(update={"phase": RunPhase.SUCCEEDED})},
    )
    assert plan(seen, NOW).requeue_after == again


# --- deletion


def going(seconds: float, phase: str = "Running", type: str = "warmup", **fields: Any) -> ObservedJob:  # noqa: A002
    meta = {"deletionTimestamp": ago(seconds), "finalizers": ["other", "paddlepaddle.org/samplejob-job"]}
    return replace(make_observed_job(phase, "r1", meta=meta, type=type), **fields)


def test_until_runs_are_known_a_deleted_job_is_taken_to_run_but_not_forever() -> None:
    """Its run would go on without a record, and nobody would cancel it."""
    todo = plan(going(1, are_records_known=False), NOW)
    assert (todo.actions, todo.release, todo.requeue_after) == ((), None, 2.0)
    status = plan(going(601, are_records_known=False), NOW).status
    assert status is not None
    assert status.phase is JobPhase.FAILED


RELEASED = JobPlan(
    status_of(JobPhase.FAILED, run_id="r1", announcements=(fact("Started"), fact("Failed"), fact("Deleted"))),
    actions=(ForgetRun(RUN),),
    release={"finalizers": ["other"]},
    requeue_after=2.0,
)
OLD = RunKey("uid-of-the-set-before", "r1")


def test_a_deleted_job_cancels_its_run_first() -> None:
    seen = going(29, runs={"r1": STATE}, recorded=(OLD, RUN))
    assert plan(seen, NOW) == JobPlan(
        status_of(JobPhase.RUNNING, run_id="r1"), (CancelRun(OLD), CancelRun(RUN)), requeue_after=2.0
    )


@pytest.mark.parametrize(
    ("seen", "changes"),
    [
        (going(1, "Failed"), {}),
        (going(1, "Failed", runs={"r1": STATE.model_copy(update={"phase": RunPhase.CANCELLED})}), {}),
        (going(30, "Failed", runs={"r1": STATE}), {}),
        (going(600, "Failed", recorded=(OLD, RUN)), {"actions": (ForgetRun(OLD), ForgetRun(RUN))}),
        (going(601, "Failed"), {"release_anyway": True}),
        (going(1, "Failed", sample_set=None), {"actions": ()}),
        (going(1, "Failed", sample_set=None, recorded=(OLD,)), {"actions": (ForgetRun(OLD),)}),
        (
            going(1, "Pending"),
            {"status": status_of(JobPhase.PENDING, run_id="r1", announcements=(fact("Deleted"),))},
        ),
    ],
    ids=[
        "lost",
        "ended",
        "too slow",
        "bus away",
        "bus away for long",
        "no set",
        "only an old set",
        "not taken",
    ],
)
def test_a_deleted_job_removes_its_records_and_goes(seen: ObservedJob, changes: dict[str, Any]) -> None:
    assert plan(seen, NOW) == replace(RELEASED, **changes)


NOT_ENDED = (JobPhase.FAILED, "Cancelled", "the job was deleted while its run went on")


@pytest.mark.parametrize(
    ("seen", "end", "progress"),
    [
        (going(30, runs={"r1": STATE}), NOT_ENDED, PROGRESS),
        (going(30, "Pending", runs={"r1": STATE}), NOT_ENDED, PROGRESS),
        (recorded(going(1), progress={**PROGRESS, "etaSeconds": 5}), NOT_ENDED, PROGRESS),
        (recorded(going(1, sample_set=None), progress=PROGRESS), NOT_ENDED, PROGRESS),
        (
            going(1, runs={"r1": STATE.model_copy(update={"phase": RunPhase.CANCELLED})}),
            (JobPhase.FAILED, "Cancelled", "the run was cancelled"),
            PROGRESS,
        ),
        (
            going(1, runs={"r1": STATE.model_copy(update={"phase": RunPhase.SUCCEEDED})}),
            (JobPhase.SUCCEEDED, "Completed", ""),
            PROGRESS,
        ),
    ],
    ids=["too slow", "just taken", "lost", "no set", "cancelled", "succeeded"],
)
def test_a_deleted_job_records_the_end_of_its_run_before_it_goes(
    seen: ObservedJob, end: tuple[JobPhase, str, str], progress: dict[str, Any]
) -> None:
    todo = plan(seen, NOW)
    assert (todo.actions, todo.release, todo.requeue_after) == ((), None, 0.0)
    assert todo.status is not None
    complete = todo.status.condition("Complete")
    assert complete is not None
    assert (todo.status.phase, complete.reason, complete.message) == end
    assert todo.status.progress == progress


WARM = make_warm_set()
UNSERVED = replace(WARM, status=WARM.status.with_condition("Accepted", False, "NamespaceNotServed", "", NOW))


@pytest.mark.parametrize(
    ("seconds", "fields", "is_kept"),
    [
        (59, {}, True),
        (60, {}, False),
        (60, {"service_age": 1.0}, True),
        (59, {"sample_set": make_warm_set(is_noted=True)}, False),
        (59, {"sample_set": None}, False),
        (59, {"sample_set": make_warm_set(deletionTimestamp=AT)}, False),
        (59, {"sample_set": make_warm_set(uid="another")}, False),
        (59, {"sample_set": replace(WARM, spec=make_set("Ready").spec)}, False),
        (59, {"sample_set": UNSERVED}, False),
    ],
    ids=["waits", "enough", "restart", "noted", "no set", "deleted set", "another", "not warmed", "unserved"],
)
def test_a_deleted_job_waits_for_its_set_to_note_what_it_has_done_but_not_forever(
    seconds: float, fields: dict[str, Any], is_kept: bool
) -> None:
    seen = going(seconds, "Failed", "clear", sample_set=WARM)
    seen = recorded(seen, started=EARLIER, completed=ago(seconds), set_uid=OWNER_UID)
    todo = plan(replace(seen, **fields), NOW)
    assert (todo.release is None) is is_kept
    assert todo.requeue_after == 2.0


def test_a_deleted_job_without_a_run_goes_at_once() -> None:
    seen = recorded(going(1, recorded=(RUN,), runs={"": STATE}), run_id="", phase=JobPhase.NEW)
    status = status_of(JobPhase.NEW, announcements=(fact("Deleted"),))
    assert plan(seen, NOW) == replace(RELEASED, status=status, actions=())


def test_a_deleted_job_without_our_finalizer_is_left_alone() -> None:
    meta = {"deletionTimestamp": ago(1), "finalizers": ["other"]}
    assert plan(make_observed_job("Running", "r1", meta=meta), NOW) == JobPlan()


# --- keys in the runtime's Secret

SHARED_NO_MORE = Problem(Reason.SECRET_NOT_SHARED, "shared no more", takes_back=True)


@pytest.mark.parametrize(
    ("seen", "keys"),
    [
        (make_observed_job("Running", "r1", **SYNC), RunKeys("r1", Credentials("AK", "SK"))),
        (make_observed_job("Pending", "r1", **SYNC), RunKeys("r1", Credentials("AK", "SK"))),
        (
            make_observed_job("Running", "r1", type="sync", syncOptions={"source": "s3://A:S@b"}),
            RunKeys("r1", Credentials("A", "S")),
        ),
        (make_observed_job("Running", "r1", type="sync"), RunKeys("r1", None)),
        (replace(make_observed_job("Running", "r1", **SYNC), secret=None), RunKeys("r1", None)),
        (
            replace(make_observed_job("Running", "r1", **SYNC), secret=SHARED_NO_MORE),
            RunKeys("r1", Credentials()),
        ),
        (make_observed_job("Running", "", **SYNC), None),
        (make_observed_job("Succeeded", "r1", **SYNC), None),
        (make_observed_job("Running", "r1"), None),
    ],
)
def test_the_runtime_needs_the_keys_of_unfinished_syncs(seen: ObservedJob, keys: RunKeys | None) -> None:
    assert run_keys(seen.job, seen.secret) == keys


def test_a_sync_that_goes_on_says_why_its_secret_cannot_be_read() -> None:
    seen = begun("Running", **SYNC)
    seen = replace(seen, runs={seen.status.run_id: STATE}, secret=None)
    missing = absent_secret("spec.secretRef", "default/source")
    todo = plan(seen, NOW)
    assert todo.status is not None
    assert (todo.status.phase, todo.requeue_after) == (JobPhase.RUNNING, 5.0)
    assert todo.status.condition("Accepted") == condition("Accepted", False, "SecretNotFound", missing)
    assert todo.events == warning("SecretNotFound", missing)


@pytest.mark.parametrize(("kind", "message"), [("warmup", "16 % of 48 MiB fit"), ("clear", "")])
def test_a_warmup_of_a_set_that_does_not_fit_says_so_while_it_runs(kind: str, message: str) -> None:
    seen = make_observed_job("Running", "r1", type=kind)
    assert seen.sample_set is not None
    small = Condition("CacheFits", "False", "CacheTooSmall", "16 % of 48 MiB fit")
    status = replace(seen.sample_set.status, conditions=(small,))
    runs = {"r1": RunState(run_id="r1", phase=RunPhase.RUNNING)}
    seen = replace(seen, sample_set=replace(seen.sample_set, status=status), runs=runs)
    todo = plan(seen, NOW)
    assert todo.status is not None
    started = todo.status.condition("Started")
    assert started is not None
    assert started.message == message
