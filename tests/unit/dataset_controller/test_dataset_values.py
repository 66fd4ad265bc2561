"""Whole values of the pure code: objects, runs, statuses, figures, the runtime."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    LABEL,
    NOW,
    OWNER_UID,
    make_observed,
    make_pod,
    node_figures,
)

from dataset_controller.domain import operations
from dataset_controller.domain.conclude import conclude
from dataset_controller.domain.events import warning_events
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import Cond, JobPhase, SetPhase
from dataset_controller.domain.runs import SetIdentity, digest, is_ended, make_run, run_id, unfinished
from dataset_controller.domain.samplejob.model import JobStatus, SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset.figures import (
    cache_status,
    count_of,
    measure,
    percent,
    runtime_status,
)
from dataset_controller.domain.sampleset.model import (
    CacheChange,
    CacheMark,
    Children,
    RuntimePod,
    SampleSet,
    SetStatus,
    Warmth,
)
from dataset_controller.domain.sampleset.parse import parse_runtime_pod, parse_set, resolve_spec
from dataset_controller.domain.sampleset.policies.ownership import find_foreign, ours
from dataset_controller.domain.sampleset.runtime import Partition, Runtime, runtime_of
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds import (
    SampleJobSpec,
    WarmupOptions,
)
from paddlewheel.contracts.crds.samplejob import SampleSetName
from paddlewheel.contracts.generated.cache_v1 import (
    NodeStatus,
    RemoveOperation,
    RunPhase,
    RunSpec,
    RunState,
    SyncOperation,
)
from paddlewheel.contracts.generated.datasets_v1 import (
    CacheFigures,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.sizes import iec
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.errors import Permanent
from paddlewheel.operator.domain.plan import Applied, ChildRef, KubernetesEvent, Plan, Trouble
from paddlewheel.testkit.samplesets import (
    MIB,
    make_report,
    make_sample_job,
    make_sample_set,
)

AT, EARLIER = "2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z"
SECOND = timedelta(seconds=1)

# --- objects

METADATA = {
    "uid": "uid-1",
    "generation": 4,
    "finalizers": ["a", "b"],
    "deletionTimestamp": "2026-01-01T00:00:00Z",
}
COMMON = {
    "observedGeneration": 3,
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Why",
            "message": "because",
            "lastTransitionTime": EARLIER,
            "observedGeneration": 2,
        }
    ],
    "announcements": [{"fact": "SampleSetBound", "attempt": 1, "at": EARLIER, "announced": True}],
}
CONDITIONS = (Condition("Ready", "False", "Why", "because", EARLIER, 2),)
ANNOUNCEMENTS = (Announcement("SampleSetBound", 1, EARLIER, True),)


def stored(obj: Any, status: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **METADATA}, "status": status}


def test_a_set_is_read_whole_and_its_status_written_back() -> None:
    status = {
        "phase": "PartialReady",
        "reason": "Why",
        "message": "because",
        "runtimeStatus": {"specReplicas": 2},
        "jobsName": {"syncJobName": "s1", "warmupJobName": "w1", "warmupNodes": ["n1"], "warmupDigest": "d1"},
        "cacheStatus": {"totalFiles": "10"},
        "lastCacheChange": {
            "time": EARLIER,
            "sampleJobName": "j1",
            "warmedBytes": 9,
            "heldBytes": 8,
            "warmedTime": EARLIER,
            "invalidation": {"time": EARLIER, "sampleJobName": "j0", "reason": "DataChanged"},
        },
        **COMMON,
    }
    obj = stored(make_sample_set(), status)
    found = parse_set(obj)
    assert found == SampleSet(
        obj=obj,
        key=Key("default", "digits"),
        uid="uid-1",
        generation=4,
        finalizers=("a", "b"),
        deleted_at="2026-01-01T00:00:00Z",
        status=SetStatus(
            observed_generation=3,
            conditions=CONDITIONS,
            announcements=ANNOUNCEMENTS,
            phase=SetPhase.PARTIAL_READY,
            sync_job="s1",
            warmup_job="w1",
            warmup_nodes=("n1",),
            warmup_digest="d1",
            runtime={"specReplicas": 2},
            cache={"totalFiles": "10"},
            cache_mark=CacheMark(EARLIER, "j1"),
            invalidation=CacheChange(CacheMark(EARLIER, "j0"), Reason.DATA_CHANGED),
            warmed_at=EARLIER,
            warmth=Warmth(9, 8),
        ),
        spec=resolve_spec(obj),
    )
    assert found.status.render() == status


def test_a_job_is_read_whole_and_its_status_written_back() -> None:
    status = {
        "phase": "Failed",
        "reason": "",
        "message": "",
        "jobName": "r1",
        "progress": {"filesDone": 7},
        "startTime": EARLIER,
        "completionTime": AT,
        **COMMON,
    }
    obj = stored(make_sample_job(), status)
    found = parse_job(obj)
    assert found == SampleJob(
        obj=obj,
        key=Key("default", "job"),
        uid="uid-1",
        generation=4,
        finalizers=("a", "b"),
        deleted_at="2026-01-01T00:00:00Z",
        status=JobStatus(
            observed_generation=3,
            conditions=CONDITIONS,
            announcements=ANNOUNCEMENTS,
            phase=JobPhase.FAILED,
            run_id="r1",
            progress={"filesDone": 7},
            started=EARLIER,
            completed=AT,
        ),
        spec=SampleJobSpec(type="warmup", sample_set_ref=SampleSetName(name="digits")),
    )
    assert found.status.render() == status


def test_what_a_status_lacks_is_empty() -> None:
    nothing: dict[str, Any] = {
        "reason": "",
        "message": "",
        "conditions": [],
        "announcements": [],
        "observedGeneration": 0,
    }
    own, job = parse_set(make_sample_set()), parse_job(make_sample_job())
    assert (own.status, job.status) == (SetStatus(), JobStatus())
    assert own.status.render() == {
        "phase": "NotBound",
        "runtimeStatus": {},
        "jobsName": {},
        "cacheStatus": {},
        **nothing,
    }
    assert job.status.render() == {"phase": "Pending", "jobName": "", **nothing}


def test_a_job_that_cannot_be_parsed_has_a_problem_and_an_empty_spec() -> None:
    found = parse_job({**make_sample_job(), "spec": {"terminate": "perhaps"}})
    message = "spec.terminate: Input should be a valid boolean, unable to interpret input"
    assert (found.spec, found.problem) == (SampleJobSpec(), Problem(Reason.INVALID_SPEC, message))


def test_an_unknown_phase_of_a_job_starts_again() -> None:
    assert parse_job({**make_sample_job(), "status": {"phase": "Paused"}}).status.phase is JobPhase.NEW


# --- runtime pods

BACKOFF = {"reason": "ImagePullBackOff", "message": "no such image"}
RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [{"state": {"waiting": BACKOFF}}, {"state": {"running": {}}}],
}


def raw_pod(status: dict[str, Any], name: str = "digits-runtime-12", **metadata: Any) -> dict[str, Any]:
    labels = {"name": "digits-runtime"}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels, **metadata},
        "status": status,
    }


def test_a_runtime_pod_is_read_whole() -> None:
    version_of_keys = {"paddlepaddle.org/runtime-secret-version": "8"}
    pod = {**raw_pod(RUNNING, annotations=version_of_keys), "spec": {"nodeName": "n"}}
    assert parse_runtime_pod(pod) == RuntimePod(
        key=Key("default", "digits-runtime-12"),
        index=12,
        node="n",
        is_ready=True,
        ends_at=None,
        has_ended=False,
        has_agent=True,
        trouble="",
        secret_version="8",
    )


def test_what_a_runtime_pod_lacks_is_empty() -> None:
    assert parse_runtime_pod(raw_pod({})) == RuntimePod(
        Key("default", "digits-runtime-12"), 12, "", False, None, False, False, "", ""
    )


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"containerStatuses": [{"state": {"waiting": {}}}, {}]}, ""),
        ({"containerStatuses": [{}, {"state": {"waiting": {"message": "why"}}}]}, "Waiting: why"),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "X"}}}]}, "X"),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": BACKOFF}}]},
            "ImagePullBackOff: no such image",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True", "message": "no"}]}, ""),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "no"}]}, ""),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "full"}]},
            "Unscheduled: full",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Taint", "message": "on X: "}
                ]
            },
            "Taint: on X",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Taint"}]},
            "Taint",
        ),
    ],
)
def test_a_pod_that_is_not_ready_says_why(status: dict[str, Any], trouble: str) -> None:
    found = parse_runtime_pod(raw_pod(status))
    assert found is not None
    assert (found.is_ready, found.trouble) == (False, trouble)


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    found = parse_runtime_pod(raw_pod(RUNNING, deletionTimestamp=AT))
    assert found is not None
    assert (found.is_ready, found.is_deleting, found.ends_at) == (False, True, parse_stamp(AT))


@pytest.mark.parametrize(
    "name", ["digits-runtime-x", "digits-0", "digits-runtime-", "other.digits-runtime-0"]
)
def test_a_pod_of_another_name_is_no_runtime_pod(name: str) -> None:
    assert parse_runtime_pod(raw_pod(RUNNING, name)) is None


# --- runs


def test_the_id_of_a_run_is_made_from_its_parts() -> None:
    """A new release that made other ids would start every unfinished run again."""
    assert run_id("uid-1", "sync", "0") == "0f91ca45-df81-d8d8-fb06-bfa386f0d20c"
    assert digest(operations.warmup_operation(WarmupOptions())) == (
        "c912ca724ca92d4d80604fb48a73e4dbc2f0b751352c878ee7f5230a53d3bc6e"
    )


@pytest.mark.parametrize(("limit", "partitions"), [(0, 10), (5, 5), (10, 10), (400, 10)])
def test_no_partition_is_left_without_a_share_of_the_bandwidth(limit: int, partitions: int) -> None:
    owner, operation = SetIdentity("default", "digits", "uid-1"), SyncOperation(bandwidth_limit=limit)
    assert make_run(owner, "r1", 10, operation, NOW).partitions == partitions


def test_a_run_is_requested_with_all_that_the_runtime_needs() -> None:
    owner = SetIdentity("default", "digits", "uid-1")
    assert make_run(owner, "r1", 2, RemoveOperation(paths=["a"]), NOW) == RunSpec(
        run_id="r1",
        set_namespace="default",
        set_name="digits",
        set_uid="uid-1",
        partitions=2,
        remove=RemoveOperation(paths=["a"]),
        requested_at=NOW,
    )


def test_a_run_is_unfinished_until_it_has_ended() -> None:
    states = {f"{phase.value}": RunState(phase=phase) for phase in reversed(RunPhase)}
    assert unfinished(states) == ["RUN_PHASE_RUNNING", "RUN_PHASE_UNSPECIFIED"]
    assert is_ended(None) is False


def test_an_operation_that_no_row_describes_is_refused() -> None:
    with pytest.raises(Permanent, match="RunState is not one of"):
        make_run(SetIdentity("default", "digits", "uid"), "run", 1, RunState(), NOW)


# --- status


def test_a_condition_keeps_its_time_while_its_status_stays_and_its_message_is_bounded() -> None:
    before = Condition("Synced", "False", "Old", "old", EARLIER, 1)
    status = SetStatus(observed_generation=5, conditions=(before,))
    assert status.with_condition("Synced", False, "New", "m" * 1025, NOW) == SetStatus(
        observed_generation=5,
        conditions=(Condition("Synced", "False", "New", "m" * 1024, EARLIER, 5),),
    )
    assert status.with_condition("Synced", True, "Synced", "", NOW).conditions == (
        Condition("Synced", "True", "Synced", "", AT, 5),
    )


@pytest.mark.parametrize(
    ("old", "new", "is_told"),
    [
        (None, None, False),
        (None, Condition("C", "True", "R", "m"), False),
        (None, Condition("C", "False", "R", "m"), True),
        (Condition("C", "True", "R", "m"), Condition("C", "False", "R", "m"), True),
        (Condition("C", "False", "Q", "m"), Condition("C", "False", "R", "m"), True),
        (Condition("C", "False", "R", "l"), Condition("C", "False", "R", "m"), True),
        (Condition("C", "False", "R", "m", EARLIER), Condition("C", "False", "R", "m", AT, 9), False),
    ],
)
def test_a_warning_is_given_once_per_reason_and_message(
    old: Condition | None, new: Condition | None, is_told: bool
) -> None:
    before, after = (JobStatus(conditions=(c,) if c else ()) for c in (old, new))
    expected = (KubernetesEvent("Warning", "R", "m"),) if is_told else ()
    assert warning_events(before, after, "C") == expected


# --- the outcome of a plan

TODO = Plan(
    JobStatus(observed_generation=2),
    release={"finalizers": []},
    events=(KubernetesEvent("Normal", "Done", "done"),),
)
DONE = KubernetesEvent("Normal", "Done", "done")


def trouble(verb: Any, kind: str, reason: str) -> Trouble:
    return Trouble(verb, kind, Key("default", "x"), reason, "no")


def test_a_plan_without_troubles_reports_what_was_created() -> None:
    children = (
        ChildRef("PersistentVolume", Key("", "x"), "u"),
        ChildRef("Secret", Key("default", "y"), "u"),
    )
    created = Applied(children=children)
    events = (
        KubernetesEvent("Normal", "SuccessfulCreate", "created PersistentVolume x, Secret default/y"),
        DONE,
    )
    assert conclude(JobStatus(), TODO, created, (), NOW) == replace(TODO, events=events)
    silent = replace(TODO, status=None)
    assert conclude(JobStatus(), silent, created, (), NOW) == replace(silent, events=events)


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (
            trouble("create", "Service", "Forbidden"),
            "FailedCreate",
            "Service default/x: Forbidden: no",
        ),
        (trouble("patch", "Node", "OwnedByAnother"), "OwnedByAnother", "Node default/x: no"),
    ],
)
def test_a_trouble_becomes_a_condition_and_a_warning(found: Trouble, reason: str, message: str) -> None:
    assert TODO.status
    failed = Condition("Reconciled", "False", reason, message, AT, 2)
    expected = replace(
        TODO,
        status=replace(TODO.status, conditions=(failed,)),
        events=(KubernetesEvent("Warning", reason, message), DONE),
    )
    assert conclude(JobStatus(), TODO, Applied(troubles=(found,)), (), NOW) == expected
    assert conclude(JobStatus(), TODO, Applied(), (found,), NOW) == expected
    known = JobStatus(conditions=(failed,))
    assert conclude(known, TODO, Applied(troubles=(found,)), (), NOW).events == (DONE,)


def test_a_trouble_that_has_passed_is_taken_back() -> None:
    assert TODO.status
    failed = Condition("Reconciled", "False", "ServerError", "no", EARLIER)
    todo = replace(TODO, status=replace(TODO.status, conditions=(failed,)))
    passed = Condition("Reconciled", "True", "Recovered", "", AT, 2)
    assert conclude(JobStatus(), todo, Applied(), (), NOW) == replace(
        TODO, status=replace(TODO.status, conditions=(passed,))
    )


@pytest.mark.parametrize(
    ("kind", "is_shown", "is_released"),
    [("Bus", False, False), ("RunRecord", True, False), ("Secret", True, True)],
)
def test_records_left_on_the_bus_hold_the_object(kind: str, is_shown: bool, is_released: bool) -> None:
    applied = Applied(troubles=(trouble("delete", kind, "Why"),))
    concluded = conclude(JobStatus(), TODO, applied, (), NOW)
    assert concluded.status
    assert (concluded.status.condition(Cond.RECONCILED) is not None) is is_shown
    assert concluded.release == (TODO.release if is_released else None)
    anyway = replace(TODO, release_anyway=True)
    assert conclude(JobStatus(), anyway, applied, (), NOW).release == TODO.release
    silent = replace(TODO, status=None)
    assert conclude(JobStatus(), silent, applied, (), NOW).release == concluded.release


# --- figures


def test_the_figures_of_a_set_are_texts() -> None:
    newest = make_report(OWNER_UID, 2, NOW, total_bytes=58 * MIB, total_files=128_660, staged_bytes=3 * MIB)
    reports = (
        make_report(OWNER_UID, 0, NOW - SECOND, hit_bytes=7, miss_bytes=1, cache_capacity=9 * MIB),
        newest,
        make_report(OWNER_UID, 4, NOW + SECOND),
        NodeStatus(partition=3),
    )
    assert cache_status(reports, 4) == {
        "totalSize": "58 MiB",
        "totalFiles": "128,660",
        "cachedSize": "20 MiB",
        "cachedPercent": 34,
        "cacheCapacity": "9.0 MiB",
        "stagedSize": "3.0 MiB",
        "diskSize": "2.0 GiB",
        "diskUsed": "246 MiB",
        "diskAvail": "1.7 GiB",
        "diskUsageRate": "12.3%",
        "errorMassage": "partition 1 reports no figures",
        "nodes": [
            node_figures(0, 68, hitRate="87%", cacheCapacity="9.0 MiB"),
            node_figures(2, 68, stagedSize="3.0 MiB"),
            node_figures(3, 0, node="", mounted=False, cachedSize="0 B"),
        ],
    }
    assert cache_status((), 2)["errorMassage"] == (
        "partition 0 reports no figures; partition 1 reports no figures"
    )
    assert measure(reports[:2]) == CacheFigures(
        total_bytes=58 * MIB, total_files=128_660, cached_bytes=20 * MIB
    )
    assert measure(()) == CacheFigures()


def test_the_figures_say_what_agents_could_not_measure() -> None:
    failed = make_report(OWNER_UID, 1, NOW, figures_problem="/ssd/a: Input/output error")
    found = cache_status((make_report(OWNER_UID, 0, NOW), failed), 3)
    assert found["errorMassage"] == "partition 1: /ssd/a: Input/output error; partition 2 reports no figures"


UNMEASURED = {"size_unknown": True, "total_bytes": 0, "total_files": 0, "cached_bytes": 0}
REPEATED = {"size_unknown": True, "total_bytes": 18 * MIB, "total_files": 9}


@pytest.mark.parametrize(
    ("others", "size"),
    [
        ([UNMEASURED], (20 * MIB, 10)),
        ([UNMEASURED, REPEATED], (20 * MIB, 10)),
        ([{"mounted": False, "total_bytes": 1, "total_files": 1}], (20 * MIB, 10)),
    ],
    ids=["new agent", "new agent that knows its predecessor's figures", "mount that is down"],
)
def test_the_size_of_a_set_is_that_of_who_has_measured_it(
    others: list[dict[str, Any]], size: tuple[int, int]
) -> None:
    """A pod that restarts reports before its mount or its measurement: it is the newest report then."""
    measured = make_report(OWNER_UID, 0, NOW - SECOND)
    reports = (measured, *(make_report(OWNER_UID, i, NOW, **other) for i, other in enumerate(others, 1)))
    figures = measure(reports)
    assert (figures.total_bytes, figures.total_files) == size
    assert cache_status(reports, 3)["nodes"][0]["cachedPercent"] == 100


def test_a_set_that_was_emptied_has_the_size_that_was_measured_and_not_that_which_is_repeated() -> None:
    empty = make_report(OWNER_UID, 0, NOW - SECOND, total_bytes=0, total_files=0)
    repeated = make_report(OWNER_UID, 1, NOW, **REPEATED)
    assert measure((empty, repeated)).total_files == 0
    unmeasured = make_report(OWNER_UID, 2, NOW + SECOND, **UNMEASURED)
    assert measure((repeated, unmeasured)).total_files == 9


OLDER = {"cached_at": None, "total_bytes": 0, "total_files": 0, "cached_bytes": 0}
"""An agent of a release that does not say whether it has measured the set."""


@pytest.mark.parametrize("other", [{}, REPEATED], ids=["measured", "repeated"])
def test_an_agent_of_an_older_release_that_may_not_have_measured_hides_no_figures(
    other: dict[str, Any],
) -> None:
    known, older = make_report(OWNER_UID, 0, NOW - SECOND, **other), make_report(OWNER_UID, 1, NOW, **OLDER)
    assert measure((known, older)).total_files == known.total_files
    sized = make_report(OWNER_UID, 2, NOW - SECOND, cached_at=None, total_bytes=MIB, total_files=1)
    assert measure((sized, older)).total_files == 1
    recorded = cache_status((known,), 2)
    unmeasured = make_report(OWNER_UID, 0, NOW, **UNMEASURED)
    assert cache_status((unmeasured, older), 2, recorded)["totalFiles"] == recorded["totalFiles"]


def test_the_word_of_agents_of_an_older_release_counts_where_there_is_no_other() -> None:
    """Of a set that was emptied while only they run."""
    recorded = cache_status((make_report(OWNER_UID, 0, NOW),), 2)
    older = [make_report(OWNER_UID, i, NOW, **OLDER) for i in range(2)]
    assert cache_status(older, 2, recorded)["totalFiles"] == "0"


def test_recorded_totals_stay_while_nobody_has_measured_the_set() -> None:
    recorded = cache_status((make_report(OWNER_UID, 0, NOW - SECOND), make_report(OWNER_UID, 1, NOW)), 2)
    restarted = (make_report(OWNER_UID, 0, NOW, **UNMEASURED), make_report(OWNER_UID, 1, NOW, **UNMEASURED))
    assert cache_status(restarted, 2, recorded) == {
        **recorded,
        "cachedSize": "0 B",
        "nodes": [node_figures(i, 100, cachedSize="0 B") for i in range(2)],
    }
    assert cache_status(restarted, 2)["totalSize"] == "0 B"


def test_sizes_are_rounded_to_two_digits_and_have_units_up_to_exbibytes() -> None:
    sizes = (9, 10, 1023, 1075, 1076, 10188, 10240, 1 << 60, 1 << 70)
    texts = ["9 B", "10 B", "1023 B", "1.0 KiB", "1.1 KiB", "9.9 KiB", "10 KiB", "1.0 EiB", "1024 EiB"]
    assert [iec(size) for size in sizes] == texts
    assert [percent(0, 1), percent(123, 1000), percent(1, 0)] == ["0.0%", "12.3%", ""]
    assert [count_of(text) for text in ("128,660", "", "many")] == [128_660, 0, 0]


# --- the runtime


def test_the_runtime_is_reduced_to_what_decisions_need() -> None:
    pods = (make_pod(2), make_pod(0), make_pod(1), replace(make_pod(3, ready=False), trouble="Crash"))
    homeless = replace(make_pod(4), node="")
    fresh = tuple(
        make_report(OWNER_UID, i, NOW - 60 * SECOND, mounted=i != 1, message="stale mount") for i in range(3)
    )
    expired = make_report(OWNER_UID, 3, NOW - 60.1 * SECOND)
    silent = make_report(OWNER_UID, 5, NOW, mounted=False)
    labels = {"node-0": "0", "node-1": "1", "node-2": "7"}
    seen = make_observed(
        ready=5,
        pods=(*pods, homeless, make_pod(5)),
        reports=(*fresh, expired, NodeStatus(partition=4), silent),
        nodes=tuple({"metadata": {"name": n, "labels": {LABEL: i}}} for n, i in labels.items()),
    )
    found = runtime_of(seen, NOW)
    assert found == Runtime(
        bound=True,
        replicas=5,
        settled=True,
        partitions=(
            Partition(0, "node-0", True),
            Partition(1, "node-1", False, "stale mount"),
            Partition(2, "node-2", True),
            Partition(3, "node-3", False, "Crash"),
            Partition(4, "", False),
            Partition(5, "node-5", False, "the agent reports no mount"),
        ),
        placed=frozenset({0, 1}),
        reports=(*fresh, silent),
    )
    assert found.first_trouble == "partition 1: stale mount"
    assert [found.ready_below(n) for n in (1, 2, 3, 9)] == [1, 1, 2, 2]
    assert runtime_status(found, 2) == {"specReplicas": 2, "readyReplicas": 1, "runtimeReady": "1/2"}


def test_without_children_there_is_no_runtime() -> None:
    seen = make_observed(children=Children())
    assert runtime_of(seen, NOW) == Runtime(False, -1, False, (), frozenset(), ())


@pytest.mark.parametrize(
    ("spec", "status", "replicas", "is_settled"),
    [
        ({}, {"replicas": 1, "readyReplicas": 1}, 1, True),
        ({"replicas": 2}, {"replicas": 2, "readyReplicas": 2}, 2, True),
        ({"replicas": 2}, {"replicas": 3, "readyReplicas": 2}, 2, False),
        ({"replicas": 2}, {"replicas": 2, "readyReplicas": 1}, 2, False),
        ({"replicas": 1}, {"replicas": 1}, 1, False),
        ({"replicas": 1}, {"readyReplicas": 1}, 1, False),
        ({"replicas": 0}, {}, 0, True),
    ],
)
def test_a_stateful_set_is_settled_when_all_its_pods_are_ready(
    spec: dict[str, Any], status: dict[str, Any], replicas: int, is_settled: bool
) -> None:
    made = {"metadata": {"name": "digits-runtime"}, "spec": spec, "status": status}
    found = runtime_of(make_observed(children=Children(stateful_set=made)), NOW)
    assert found == Runtime(False, replicas, is_settled, (), frozenset(), ())


WHOLE = Runtime(True, 2, True, (Partition(0, "m", True), Partition(1, "n", True)), frozenset({0, 1, 5}), ())


@pytest.mark.parametrize(
    ("runtime", "count", "is_complete"),
    [
        (WHOLE, 2, True),
        (WHOLE, 1, False),
        (replace(WHOLE, bound=False), 2, False),
        (replace(WHOLE, settled=False), 2, False),
        (replace(WHOLE, replicas=3), 2, False),
        (replace(WHOLE, partitions=WHOLE.partitions[:1]), 2, False),
        (replace(WHOLE, partitions=(*WHOLE.partitions, Partition(2, "o", False))), 2, False),
        (replace(WHOLE, partitions=(Partition(0, "m", True), Partition(1, "n", False))), 2, False),
        (replace(WHOLE, partitions=(Partition(0, "m", True), Partition(2, "n", True))), 2, False),
        (replace(WHOLE, partitions=(Partition(0, "n", True), Partition(1, "n", True))), 2, False),
        (replace(WHOLE, placed=frozenset({0})), 2, False),
    ],
)
def test_a_runtime_is_complete_when_every_partition_is_ready_on_its_own_labelled_node(
    runtime: Runtime, count: int, is_complete: bool
) -> None:
    assert runtime.is_complete(count) is is_complete


# --- children of others


def test_the_first_child_of_another_owner_is_named() -> None:
    children = make_observed("Bound", ready=1).children
    stranger = make_observed("Bound", ready=1, meta={"uid": "another"}).children
    remedy = "exists and does not belong to this SampleSet; delete it or rename the set"
    found = [
        find_foreign(replace(children, **{name: getattr(stranger, name)}), OWNER_UID)
        for name in ("volume", "claim", "secret", "service", "stateful_set")
    ]
    assert found == [
        Problem(Reason.OWNED_BY_ANOTHER, f"PersistentVolume default.digits {remedy}"),
        Problem(Reason.OWNED_BY_ANOTHER, f"PersistentVolumeClaim default/digits {remedy}"),
        Problem(Reason.OWNED_BY_ANOTHER, f"Secret default/digits-runtime {remedy}"),
        Problem(Reason.OWNED_BY_ANOTHER, f"Service default/digits-runtime-service {remedy}"),
        Problem(Reason.OWNED_BY_ANOTHER, f"StatefulSet default/digits-runtime {remedy}"),
    ]
    assert find_foreign(children, OWNER_UID) is None
    assert find_foreign(Children(), OWNER_UID) is None
    assert ours(children, OWNER_UID) == children
    assert ours(stranger, OWNER_UID) == Children()
