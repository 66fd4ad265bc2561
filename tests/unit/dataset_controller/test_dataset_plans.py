"""Plans as tables: one observation, one moment, one decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    CONFIG,
    LABEL,
    NOW,
    OWNER_UID,
    SYNCED,
    ago,
    condition,
    make_labels,
    make_observed,
    make_observed_job,
    make_pod,
    make_set,
    spec_of,
)

from dataset_controller.domain.actions import CancelRun, ForgetRun, ForgetSet, WriteRun
from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.operations import plain_operation
from dataset_controller.domain.runs import SetIdentity, make_run, run_id
from dataset_controller.domain.samplejob.model import JobStatus
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import Children, ObservedSet, SetPlan, SetStatus
from dataset_controller.domain.sampleset.plan import plan
from dataset_controller.domain.sampleset.policies.labels import decide_labels
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.runtime import Partition, Runtime
from dataset_controller.domain.status import ObjectStatus
from paddlewheel.contracts.announcements import pending
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds.operations import ClearOptions, Operation
from paddlewheel.contracts.dataset_names import node_label, set_label
from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, RunSpec, RunState
from paddlewheel.core.errors import Permanent
from paddlewheel.operator.domain.plan import Create, Delete, Patch, Plan
from paddlewheel.testkit.samplesets import make_report


def decide(seen: ObservedSet) -> SetPlan:
    return plan(seen, CONFIG, NOW)


def status_of(todo: SetPlan) -> SetStatus:
    assert todo.status is not None
    return todo.status


def job_status_of(todo: Plan[JobStatus]) -> JobStatus:
    assert todo.status is not None
    return todo.status


def condition_of(status: ObjectStatus, type_: str) -> Condition:
    found = status.condition(type_)
    assert found is not None
    return found


def kinds(todo: SetPlan, of: type[Create] | type[Patch] | type[Delete]) -> list[str]:
    return [action.kind for action in todo.actions if isinstance(action, of)]


def patches(todo: SetPlan, kind: str) -> list[object]:
    return [action.patch for action in todo.actions if isinstance(action, Patch) and action.kind == kind]


def runs(todo: SetPlan) -> list[RunSpec]:
    return [action.run for action in todo.actions if isinstance(action, WriteRun)]


WHOLE = Runtime(True, 1, True, (Partition(0, "n", True),), frozenset({0}), (make_report("u", 0, NOW),))
HALF = Runtime(True, 1, False, (Partition(0, "n", False),), frozenset(), ())
UNBOUND = Runtime(False, -1, False, (), frozenset(), ())
DUE, RUNNING, DONE = (RunDecision(s) for s in (Stage.DUE, Stage.RUNNING, Stage.DONE))
FAILED, NONE = RunDecision(Stage.FAILED), RunDecision(Stage.NOT_NEEDED)
BLOCKED = RunDecision(Stage.BLOCKED)
LATE = RunDecision(Stage.DONE, state=RunState(ended_at=NOW + timedelta(seconds=1)))


@pytest.mark.parametrize(
    ("phase", "runtime", "sync", "warmup", "expected"),
    [
        ("NotBound", UNBOUND, BLOCKED, NONE, "NotBound"),
        ("NotBound", WHOLE, DUE, NONE, "Bound"),
        ("Bound", HALF, DUE, NONE, "Bound"),
        ("Bound", WHOLE, DUE, NONE, "Mount"),
        ("Mount", WHOLE, DUE, NONE, "Syncing"),
        ("Mount", HALF, DUE, NONE, "Mount"),
        ("Mount", WHOLE, BLOCKED, NONE, "Mount"),
        ("Mount", WHOLE, FAILED, NONE, "SyncFailed"),
        ("Mount", WHOLE, NONE, NONE, "PartialReady"),
        ("Mount", WHOLE, DONE, NONE, "PartialReady"),
        ("Mount", WHOLE, LATE, NONE, "Mount"),
        ("Mount", HALF, DONE, NONE, "Mount"),
        ("Syncing", WHOLE, RUNNING, NONE, "Syncing"),
        ("Syncing", WHOLE, DONE, NONE, "Mount"),
        ("Syncing", WHOLE, FAILED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, FAILED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, BLOCKED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, DUE, NONE, "Mount"),
        ("SyncFailed", WHOLE, NONE, NONE, "Mount"),
        ("PartialReady", HALF, DONE, NONE, "PartialReady"),
        ("PartialReady", WHOLE, DONE, RUNNING, "PartialReady"),
        ("PartialReady", WHOLE, DONE, FAILED, "PartialReady"),
        ("PartialReady", WHOLE, DONE, DONE, "Ready"),
        ("Ready", WHOLE, DONE, RUNNING, "Ready"),
        ("Ready", HALF, DONE, DONE, "PartialReady"),
    ],
)
def test_the_path(
    phase: str, runtime: Runtime, sync: RunDecision, warmup: RunDecision, expected: str
) -> None:
    assert next_phase(SetPhase(phase), runtime, 1, OwnRuns(sync, warmup)).value == expected


def test_the_finalizer_is_added_beside_those_of_others() -> None:
    todo = decide(make_observed(meta={"finalizers": ["other"]}, children=Children()))
    assert todo.metadata == {"finalizers": ["other", "paddlepaddle.org/sampleset-digits"]}
    assert decide(make_observed()).metadata is None


def test_the_runtime_is_created_only_when_the_claim_is_bound() -> None:
    first = decide(make_observed(children=Children()))
    assert kinds(first, Create) == ["Secret", "PersistentVolume"]
    full = make_observed("Bound").children
    bare = Children(full.volume, full.claim, full.secret)
    second = decide(make_observed("Bound", children=bare))
    assert kinds(second, Create) == ["Service", "StatefulSet"]


@pytest.mark.parametrize(("phase", "created"), [("", []), ("Available", ["PersistentVolumeClaim"])])
def test_the_claim_is_created_once_the_binder_knows_the_volume(phase: str, created: list[str]) -> None:
    full = make_observed("").children
    assert full.volume
    known = {**full.volume, "status": {"phase": phase} if phase else {}}
    todo = decide(make_observed(children=Children(known, secret=full.secret)))
    assert kinds(todo, Create) == created


def test_a_secret_that_becomes_invalid_later_stops_nothing() -> None:
    todo = decide(make_observed("Ready", ready=1, engine_secret=None, status={"conditions": SYNCED}))
    assert status_of(todo).phase is SetPhase.READY
    assert condition_of(status_of(todo), "Accepted").reason == "SecretNotFound"
    assert kinds(todo, Patch) == []
    assert todo.requeue_after == 30.0


def test_a_child_of_another_owner_is_refused() -> None:
    stranger = make_observed("Bound", meta={"uid": "another"}).children
    todo = decide(make_observed("Bound", children=stranger))
    assert todo.actions == ()
    assert condition_of(status_of(todo), "Accepted").reason == "OwnedByAnother"
    assert todo.requeue_after == 30.0


@pytest.mark.parametrize(
    ("mounted_for", "ready", "begins", "partitions"),
    [(5, 1, False, 0), (31, 1, True, 1), (0, 3, True, 3), (31, 2, True, 2)],
)
def test_a_sync_waits_a_moment_for_all_partitions(
    mounted_for: float, ready: int, begins: bool, partitions: int
) -> None:
    mounted = [condition("Mounted", "True", "Mounted", mounted_for)]
    spec = {"partitions": 3}
    seen = make_observed("Mount", ready=ready, replicas=3, spec=spec, status={"conditions": mounted})
    todo = decide(seen)
    assert (status_of(todo).phase is SetPhase.SYNCING) is begins
    assert runs(todo) == []
    if not begins:
        assert todo.requeue_after == pytest.approx(30 - mounted_for)
        return
    assert todo.requeue_after == 0.0
    status = {"conditions": mounted, "jobsName": {"syncJobName": status_of(todo).sync_job}}
    again = make_observed("Syncing", ready=ready, replicas=3, spec=spec, status=status)
    [record] = runs(decide(again))
    assert (record.run_id, record.partitions) == (status_of(todo).sync_job, partitions)


def test_a_run_that_the_bus_has_lost_is_written_again_and_an_ended_one_is_not() -> None:
    status = {"jobsName": {"syncJobName": "r1"}}
    lost = decide(make_observed("Syncing", ready=1, status=status))
    assert [r.run_id for r in runs(lost)] == ["r1"]
    assert lost.requeue_after == 15.0
    ended = {"r1": RunState(phase=RunPhase.SUCCEEDED)}
    assert runs(decide(make_observed("Syncing", ready=1, status=status, runs=ended))) == []


def test_a_synced_set_stays_synced_when_the_bus_has_lost_everything() -> None:
    status = {"conditions": SYNCED, "jobsName": {"syncJobName": "r1"}}
    todo = decide(make_observed("Ready", ready=1, status=status, reports=()))
    assert (status_of(todo).phase, runs(todo)) == (SetPhase.READY, [])


@pytest.mark.parametrize(
    ("phase", "ended", "expected"),
    [
        (RunPhase.FAILED, 10, "wait"),
        (RunPhase.FAILED, 31, "again"),
        (RunPhase.CANCELLED, 0, "ready"),
        (RunPhase.SUCCEEDED, 0, "ready"),
    ],
)
def test_a_failed_warmup_is_retried_with_backoff(phase: RunPhase, ended: float, expected: str) -> None:
    spec: dict[str, Any] = {"warmup": {}}
    begun = decide(make_observed("PartialReady", ready=1, spec=spec, status={"conditions": SYNCED}))
    run = status_of(begun).warmup_job
    state = RunState(phase=phase, ended_at=NOW - timedelta(seconds=ended))
    status = {"conditions": SYNCED, "jobsName": {"warmupJobName": run}}
    todo = decide(make_observed("PartialReady", ready=1, spec=spec, status=status, runs={run: state}))
    assert (status_of(todo).phase is SetPhase.READY) is (expected == "ready")
    assert (status_of(todo).warmup_job != run) is (expected == "again")
    assert (todo.requeue_after == pytest.approx(20.0)) is (expected == "wait")


def test_growing_is_at_once() -> None:
    seen = make_observed("Ready", ready=1, spec={"partitions": 3}, status={"conditions": SYNCED})
    todo = decide(seen)
    assert patches(todo, "StatefulSet") == [{"spec": {"replicas": 3}}]
    assert status_of(todo).phase is SetPhase.PARTIAL_READY


@pytest.mark.parametrize(
    ("since", "ended", "resized"),
    [(0, False, False), (10, True, True), (61, False, True), (10, False, False)],
)
def test_shrinking_waits_for_the_clear_but_not_forever(since: float, ended: bool, resized: bool) -> None:
    run = run_id(OWNER_UID, "scale", "3", "1")
    states = {run: RunState(phase=RunPhase.SUCCEEDED)} if ended else {}
    status = {"conditions": [*SYNCED, condition("Scaling", "True", "Scaling", since)]}
    todo = decide(make_observed("PartialReady", ready=3, status=status, runs=states))
    assert patches(todo, "StatefulSet") == ([{"spec": {"replicas": 1}}] if resized else [])
    assert [r.clear.partitions for r in runs(todo) if r.clear] == ([] if resized else [[1, 2]])


@pytest.mark.parametrize(
    ("due", "cached", "recorded", "wait"),
    [(True, 5, "5.0 MiB", None), (False, 5, "10 MiB", 5.0), (False, 10, "10 MiB", None)],
)
def test_figures_are_recorded_at_a_bounded_rate(
    due: bool, cached: int, recorded: str, wait: float | None
) -> None:
    status = {"conditions": SYNCED, "cacheStatus": dict(status_of(decide(make_ready())).cache)}
    report = make_report(OWNER_UID, 0, NOW, cached_bytes=cached << 20)
    todo = decide(make_observed("Ready", ready=1, status=status, reports=(report,), figures_due=due))
    assert (status_of(todo).cache["cachedSize"], todo.requeue_after) == (recorded, wait)


def make_ready(**changes: Any) -> ObservedSet:
    return make_observed("Ready", ready=1, status={"conditions": SYNCED}, **changes)


@pytest.mark.parametrize(
    ("labels", "partition", "change"),
    [
        ({}, Partition(1, "n", True), make_labels(1)),
        ({}, Partition(1, "n", False), None),
        (make_labels(1), Partition(1, "n", False), None),
        (make_labels(1), Partition(1, "n", True), None),
        (make_labels(0), Partition(1, "n", True), make_labels(1)),
        (make_labels(0), Partition(1, "n", False), dict.fromkeys(make_labels(0))),
        (make_labels(5), Partition(5, "n", True), dict.fromkeys(make_labels(5))),
        (make_labels(0), None, dict.fromkeys(make_labels(0))),
        (
            {set_label("digits"): "digits-runtime-0", node_label("other", "digits"): "0"},
            Partition(1, "n", True),
            {LABEL: "1"},
        ),
        (
            {**make_labels(0), node_label("other", "digits"): "0"},
            None,
            {LABEL: None},
        ),
    ],
)
def test_labels(
    labels: dict[str, str], partition: Partition | None, change: dict[str, str | None] | None
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}}
    owner = make_set().identity
    made = decide_labels(owner, (node,), (partition,) if partition else (), 3)
    assert [p.patch["metadata"]["labels"] for p in made] == ([] if change is None else [change])


@pytest.mark.parametrize("name", ["s" * 44, "digits"])
@pytest.mark.parametrize("namespace", ["default", "n" * 63])
def test_label_keys_always_fit(name: str, namespace: str) -> None:
    key = node_label(namespace, name).partition("/")[2]
    assert len(key) <= 63
    assert key.endswith(f".{name}")
    assert node_label("m" * 63, name) != node_label("n" * 63, name)


def going(seconds: float, **changes: Any) -> ObservedSet:
    return make_observed("Ready", meta={"deletionTimestamp": ago(seconds)}, **changes)


def test_a_deletion_goes_step_by_step() -> None:
    run = run_id(OWNER_UID, "delete")
    done = {run: RunState(phase=RunPhase.SUCCEEDED)}
    busy = {"r1": RunState(phase=RunPhase.RUNNING)}
    first = decide(going(1, ready=2, runs=busy))
    assert [type(a) for a in first.actions] == [CancelRun, WriteRun]
    second = decide(going(2, ready=2, runs=done))
    assert [*kinds(second, Patch), *kinds(second, Delete)] == ["Node", "Node", "StatefulSet"]
    rest = make_observed().children
    bare = Children(rest.volume, rest.claim, rest.secret, rest.service)
    waiting = decide(going(3, children=bare, pods=(make_pod(0),)))
    assert waiting.actions == ()
    third = decide(going(4, children=bare))
    assert kinds(third, Delete) == ["Service", "Secret", "PersistentVolumeClaim"]
    fourth = decide(going(5, children=Children(rest.volume)))
    assert kinds(fourth, Delete) == ["PersistentVolume"]
    last = decide(going(6, children=Children()))
    assert last.actions == (ForgetSet(OWNER_UID),)
    assert last.release == {"finalizers": []}
    assert [a.fact for a in pending(status_of(last).announcements)] == ["SampleSetDeleted"]


def test_a_deletion_waits_while_the_users_are_unknown() -> None:
    todo = decide(going(1, ready=1, users=None))
    assert (todo.actions, todo.release, todo.requeue_after) == ((), None, 5.0)


@pytest.mark.parametrize(("seconds", "anyway"), [(10, False), (601, True)])
def test_a_deletion_waits_for_the_bus_but_not_forever(seconds: float, anyway: bool) -> None:
    assert decide(going(seconds, children=Children())).release_anyway is anyway


def test_a_deletion_does_not_wait_for_silent_agents_or_dead_nodes() -> None:
    stuck = decide(going(61, ready=1))
    assert "StatefulSet" in kinds(stuck, Delete)
    bare = Children(make_observed().children.volume)
    dead = decide(going(121, children=bare, pods=(make_pod(0),)))
    assert kinds(dead, Delete) == ["PersistentVolume"]


def test_a_deletion_touches_no_foreign_object() -> None:
    stranger = make_observed(meta={"uid": "another"}).children
    assert decide(going(5, children=stranger)).actions == (ForgetSet(OWNER_UID),)


def test_the_runtime_pod() -> None:
    levels = [{"path": "/dev/shm/A_b.c:/ssd/" + "x" * 200, "cacheSize": 5}]
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    affinity: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    own = make_set(spec={"cache": {"levels": levels}, "tolerations": tolerations, "nodeAffinity": affinity})
    pod = render.stateful_set(own.identity, spec_of(own), CONFIG)["spec"]["template"]["spec"]
    container = pod["containers"][0]
    names = [v["name"] for v in pod["volumes"]] + [p["name"] for p in container["ports"]]
    assert all(len(name) <= 63 and name == name.lower() and "_" not in name for name in names)
    assert len(container["ports"][0]["name"]) <= 15
    assert pod["automountServiceAccountToken"] is False
    assert pod["tolerations"] == tolerations
    assert pod["affinity"]["nodeAffinity"] == affinity
    term = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["CACHE_RUNTIME_CACHE_SIZE_MIB"] == "5"
    assert env["CACHE_RUNTIME_CACHE_DIRS"] == "/dev/shm/A_b.c:/ssd/" + "x" * 200
    assert not any("SECRET_KEY" in name or "METAURL" in name for name in env)


@pytest.mark.parametrize(
    ("kind", "set_phase", "begins"),
    [
        ("sync", "Bound", False),
        ("sync", "Mount", True),
        ("sync", "SyncFailed", True),
        ("warmup", "Mount", False),
        ("warmup", "PartialReady", True),
        ("rmr", "Syncing", True),
        ("clear", "Syncing", False),
        ("clear", "Ready", True),
    ],
)
def test_a_job_begins_when_its_set_can_take_it(kind: str, set_phase: str, begins: bool) -> None:
    options: dict[str, Any] = {"rmrOptions": {"paths": ["x"]}, "secretRef": {"name": "source"}}
    todo = plan_job(make_observed_job(type=kind, set_phase=set_phase, **options), NOW)
    status = job_status_of(todo)
    assert status.phase.value == ("Pending" if begins else "")
    assert bool(status.run_id) is begins
    assert todo.requeue_after == (0.0 if begins else None)


BAD_SOURCE = {"type": "sync", "secretRef": {"name": "s"}, "syncOptions": {"source": "x://y"}}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"type": "sync"}, "SecretNotFound", "spec.secretRef.name"),
        (BAD_SOURCE, "InvalidSource", "syncOptions.source"),
        ({"type": "rmr"}, "InvalidSpec", "spec.rmrOptions.paths"),
        ({"type": "warmup", "warmupOptions": {"paths": [".."]}}, "InvalidSpec", "spec.warmupOptions.paths"),
        ({"type": "clear", "clearOptions": {"paths": ["/etc"]}}, "InvalidSpec", "spec.clearOptions.paths"),
        ({"type": "shred"}, "UnknownOperation", "spec.type"),
    ],
)
def test_a_bad_job_says_what_to_correct(spec: dict[str, Any], reason: str, field: str) -> None:
    todo = plan_job(make_observed_job(**spec), NOW)
    accepted = condition_of(job_status_of(todo), "Accepted")
    assert (accepted.status, accepted.reason) == ("False", reason)
    assert field in accepted.message
    assert todo.requeue_after == 30.0


def test_a_job_of_a_set_that_cannot_work_names_the_sets_field() -> None:
    seen = replace(make_observed_job(), sample_set=make_set("Ready", spec={"partitions": -1}))
    accepted = condition_of(job_status_of(plan_job(seen, NOW)), "Accepted")
    assert "the SampleSet's spec.partitions" in accepted.message


def test_a_deleted_job_cancels_waits_and_removes_its_records() -> None:
    seen = make_observed_job("Running", "r1", meta={"deletionTimestamp": ago(1)})
    running = replace(seen, runs={"r1": RunState(phase=RunPhase.RUNNING)})
    assert [type(a) for a in plan_job(running, NOW).actions] == [CancelRun]
    assert plan_job(running, NOW).release is None
    ended = replace(seen, runs={"r1": RunState(phase=RunPhase.CANCELLED)})
    todo = plan_job(ended, NOW)
    assert [type(a) for a in todo.actions] == [ForgetRun]
    assert todo.release == {"finalizers": []}
    assert "SampleJobDeleted" in [a.fact for a in pending(job_status_of(todo).announcements)]
    late = NOW + timedelta(seconds=31)
    assert plan_job(running, late).release is not None


@pytest.mark.parametrize(("seconds", "anyway"), [(599, False), (601, True)])
def test_a_deleted_job_waits_for_the_bus_but_not_forever(seconds: float, anyway: bool) -> None:
    seen = make_observed_job("Succeeded", "r1", meta={"deletionTimestamp": ago(seconds)})
    assert plan_job(seen, NOW).release_anyway is anyway


def test_progress_is_not_recorded_too_often() -> None:
    state = {"r1": RunState(phase=RunPhase.RUNNING, files_done=5)}
    seen = make_observed_job("Running", "r1")
    early = plan_job(replace(seen, runs=state, progress_due=False), NOW)
    due = plan_job(replace(seen, runs=state, progress_due=True), NOW)
    assert (job_status_of(early).progress, early.requeue_after) == ({}, 2.0)
    assert (job_status_of(due).progress["filesDone"], due.requeue_after) == (5, 15.0)


def test_a_job_whose_set_is_gone_fails() -> None:
    status = job_status_of(plan_job(replace(make_observed_job("Running", "r1"), sample_set=None), NOW))
    assert status.phase.value == "Failed"
    assert condition_of(status, "Complete").reason == "SampleSetNotFound"


def test_an_operation_without_a_builder_takes_its_options_as_they_are() -> None:
    row = Operation("wipe", "clear", ClearOperation, ClearOptions, needs_ready=True)
    options = ClearOptions(paths=("/a", "/b"))
    assert plain_operation(row, options) == ClearOperation(paths=["/a", "/b"])


def test_an_operation_that_no_row_describes_is_refused() -> None:
    with pytest.raises(Permanent, match="RunState is not one of"):
        make_run(SetIdentity("default", "digits", "uid"), "run", 1, RunState(), NOW)
