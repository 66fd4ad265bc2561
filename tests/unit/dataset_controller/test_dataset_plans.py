"""Plans as tables: one world, one moment, one decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dataset_controller.domain.actions import CancelRun, Create, Delete, ForgetRun, ForgetSet, Patch, WriteRun
from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import Fact, SetPhase
from dataset_controller.domain.operations import plain_operation
from dataset_controller.domain.runs import SetIdentity, make_run, run_id
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.samplejob.plan import plan as decide_job
from dataset_controller.domain.samplejob.policies.facts import job_fact
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import Children, ObservedSet, RuntimeConfig
from dataset_controller.domain.sampleset.plan import plan as decide_set
from dataset_controller.domain.sampleset.policies.facts import set_fact
from dataset_controller.domain.sampleset.policies.labels import decide_labels
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.spec import read_spec
from dataset_controller.domain.sampleset.world import Partition, World
from paddlewheel.contracts.crds.operations import ClearOptions, Operation
from paddlewheel.contracts.dataset_names import node_label, set_label
from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, RunState
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.samplesets import MIB, make_report, make_sample_job, make_sample_set, make_secret

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CONFIG = RuntimeConfig("runtime:1", "nats://bus:4222")
OWNER_UID = "uid-1"
LABEL = node_label("default", "digits")


def plan(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> Any:
    """Any: the tables look deep into optional parts."""
    return decide_set(seen, config, now)


def plan_job(seen: ObservedJob, now: datetime) -> Any:
    return decide_job(seen, now)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_observed(
    phase: str = "", *, ready: int = 0, replicas: int | None = None, **changes: Any
) -> ObservedSet:
    """A set in a phase whose children all stand, `ready` of its pods ready, labelled and reporting."""
    spec = {"partitions": 1, **changes.pop("spec", {})}
    status = {"phase": phase, **changes.pop("status", {})}
    obj = make_sample_set(**spec)
    obj["metadata"] |= {
        "uid": OWNER_UID,
        "resourceVersion": "7",
        "generation": 3,
        "finalizers": ["paddlepaddle.org/sampleset-digits"],
        **changes.pop("meta", {}),
    }
    obj["status"] = status
    seen = ObservedSet(obj, engine_secret=make_secret(), source_secret=make_secret())
    pods = tuple(make_pod(i) for i in range(ready))
    nodes = tuple({"metadata": {"name": f"node-{i}", "labels": make_labels(i)}} for i in range(ready))
    return ObservedSet(
        obj,
        **{
            "engine_secret": make_secret(),
            "source_secret": make_secret(),
            "children": make_children(seen, ready if replicas is None else replicas, ready),
            "pods": pods,
            "nodes": nodes,
            "reports": tuple(make_report(OWNER_UID, i, NOW) for i in range(ready)),
            **changes,
        },
    )


def make_labels(index: int) -> dict[str, str]:
    return {LABEL: str(index), set_label("digits"): f"digits-runtime-{index}"}


def make_pod(index: int, *, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": f"digits-runtime-{index}", "namespace": "default"},
        "spec": {"nodeName": f"node-{index}"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def make_children(seen: ObservedSet, replicas: int, ready: int) -> Children:
    spec, owner = read_spec(seen.obj), seen.identity
    claim = render.claim(owner) | {"status": {"phase": "Bound"}}
    runtime = render.stateful_set(owner, spec, CONFIG)
    runtime["spec"]["replicas"] = replicas
    runtime["status"] = {"replicas": replicas, "readyReplicas": ready}
    values = {"engine.name": "old"}
    return Children(
        render.volume(owner, spec, False), claim, render.secret(owner, values), render.service(owner), runtime
    )


def condition(type_: str, status: str, reason: str = "", seconds: float = 0) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": ago(seconds),
    }


def kinds(actions: tuple[Any, ...], of: type[Any]) -> list[str]:
    return [action.kind for action in actions if isinstance(action, of)]


def runs(actions: tuple[Any, ...]) -> list[Any]:
    return [action.run for action in actions if isinstance(action, WriteRun)]


SYNCED = [condition("Synced", "True", "Synced")]
WHOLE = World(True, 1, True, (Partition(0, "n", True),), frozenset({0}), (make_report("u", 0, NOW),))
HALF = World(True, 1, False, (Partition(0, "n", False),), frozenset(), ())
UNBOUND = World(False, -1, False, (), frozenset(), ())
DUE, RUNNING, DONE = (RunDecision(s) for s in (Standing.DUE, Standing.RUNNING, Standing.DONE))
FAILED, NONE = RunDecision(Standing.FAILED), RunDecision(Standing.NOT_NEEDED)
BLOCKED = RunDecision(Standing.BLOCKED)
LATE = RunDecision(Standing.DONE, state=RunState(ended_at=NOW + timedelta(seconds=1)))


@pytest.mark.parametrize(
    ("phase", "world", "sync", "warmup", "expected"),
    [
        ("", UNBOUND, BLOCKED, NONE, ""),
        ("", WHOLE, DUE, NONE, "Bound"),
        ("Bound", HALF, DUE, NONE, "Bound"),
        ("Bound", WHOLE, DUE, NONE, "Mount"),
        ("Mount", WHOLE, DUE, NONE, "Syncing"),
        ("Mount", HALF, DUE, NONE, "Mount"),
        ("Mount", WHOLE, BLOCKED, NONE, "Mount"),
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
def test_the_path(phase: Any, world: Any, sync: Any, warmup: Any, expected: Any) -> None:
    assert next_phase(SetPhase(phase), world, 1, sync, warmup).value == expected


def test_the_finalizer_comes_before_everything() -> None:
    todo = plan(make_observed(meta={"finalizers": ["other"]}, children=Children()), CONFIG, NOW)
    [patch] = todo.actions
    assert patch.patch["metadata"]["finalizers"] == ["other", "paddlepaddle.org/sampleset-digits"]
    assert todo.status is None


def test_the_runtime_is_made_only_when_the_claim_is_bound() -> None:
    first = plan(make_observed(children=Children()), CONFIG, NOW)
    assert kinds(first.actions, Create) == ["Secret", "PersistentVolume"]
    bound = make_observed("Bound")
    bare = Children(bound.children.volume, bound.children.claim, bound.children.secret)
    second = plan(make_observed("Bound", children=bare), CONFIG, NOW)
    assert kinds(second.actions, Create) == ["Service", "StatefulSet"]


@pytest.mark.parametrize(("phase", "created"), [("", []), ("Available", ["PersistentVolumeClaim"])])
def test_the_claim_is_made_once_the_binder_knows_the_volume(phase: str, created: list[str]) -> None:
    full = make_observed("").children
    assert full.volume
    known = {**full.volume, "status": {"phase": phase} if phase else {}}
    todo = plan(make_observed(children=Children(known, secret=full.secret)), CONFIG, NOW)
    assert kinds(todo.actions, Create) == created


def test_a_secret_that_goes_bad_later_stops_nothing() -> None:
    todo = plan(
        make_observed("Ready", ready=1, engine_secret=None, status={"conditions": SYNCED}), CONFIG, NOW
    )
    assert todo.status.phase is SetPhase.READY
    assert todo.status.journal.condition("Accepted").reason == "ErrorSecretNotExist"
    assert kinds(todo.actions, Patch) == []


def test_a_child_of_another_owner_is_refused() -> None:
    stranger = make_observed("Bound", meta={"uid": "another"}).children
    todo = plan(make_observed("Bound", children=stranger), CONFIG, NOW)
    assert todo.actions == ()
    assert todo.status.journal.condition("Accepted").reason == "ErrorPVAlreadyExist"
    assert todo.requeue_after == 30.0


@pytest.mark.parametrize(
    ("mounted_for", "ready", "begins", "partitions"),
    [(5, 1, False, 0), (31, 1, True, 1), (0, 3, True, 3), (31, 2, True, 2)],
)
def test_a_sync_waits_a_moment_for_all_partitions(
    mounted_for: Any, ready: Any, begins: Any, partitions: Any
) -> None:
    mounted = [condition("Mounted", "True", "Mounted", mounted_for)]
    seen = make_observed(
        "Mount", ready=ready, replicas=3, spec={"partitions": 3}, status={"conditions": mounted}
    )
    todo = plan(seen, CONFIG, NOW)
    assert (todo.status.phase is SetPhase.SYNCING) is begins
    assert runs(todo.actions) == []
    if not begins:
        assert todo.requeue_after == pytest.approx(30 - mounted_for)
        return
    again = make_observed(
        "Syncing",
        ready=ready,
        replicas=3,
        spec={"partitions": 3},
        status={"conditions": mounted, "jobsName": {"syncJobName": todo.status.sync_job}},
    )
    [record] = runs(plan(again, CONFIG, NOW).actions)
    assert (record.run_id, record.partitions) == (todo.status.sync_job, partitions)


def test_a_run_that_the_bus_has_lost_is_written_again_and_an_ended_one_is_not() -> None:
    status = {"jobsName": {"syncJobName": "r1"}}
    lost = plan(make_observed("Syncing", ready=1, status=status), CONFIG, NOW)
    assert [r.run_id for r in runs(lost.actions)] == ["r1"]
    assert lost.requeue_after == 15.0
    ended = {"r1": RunState(phase=RunPhase.SUCCEEDED)}
    assert runs(plan(make_observed("Syncing", ready=1, status=status, runs=ended), CONFIG, NOW).actions) == []


def test_a_synced_set_stays_synced_when_the_bus_has_lost_everything() -> None:
    status = {"conditions": SYNCED, "jobsName": {"syncJobName": "r1"}}
    todo = plan(make_observed("Ready", ready=1, status=status, reports=()), CONFIG, NOW)
    assert (todo.status.phase, runs(todo.actions)) == (SetPhase.READY, [])


@pytest.mark.parametrize(
    ("phase", "ended", "expected"),
    [
        (RunPhase.FAILED, 10, "wait"),
        (RunPhase.FAILED, 31, "again"),
        (RunPhase.CANCELLED, 0, "ready"),
        (RunPhase.SUCCEEDED, 0, "ready"),
    ],
)
def test_a_failed_warmup_is_tried_again_calmly(phase: Any, ended: Any, expected: Any) -> None:
    spec: Any = {"warmup": {}}
    begun = plan(
        make_observed("PartialReady", ready=1, spec=spec, status={"conditions": SYNCED}), CONFIG, NOW
    )
    run = begun.status.warmup_job
    state = RunState(phase=phase, ended_at=NOW - timedelta(seconds=ended))
    status = {"conditions": SYNCED, "jobsName": {"warmupJobName": run}}
    seen = make_observed("PartialReady", ready=1, spec=spec, status=status, runs={run: state})
    todo = plan(seen, CONFIG, NOW)
    assert (todo.status.phase is SetPhase.READY) is (expected == "ready")
    assert (todo.status.warmup_job != run) is (expected == "again")
    assert (todo.requeue_after == pytest.approx(20.0)) is (expected == "wait")


def test_growing_is_at_once() -> None:
    seen = make_observed("Ready", ready=1, spec={"partitions": 3}, status={"conditions": SYNCED})
    todo = plan(seen, CONFIG, NOW)
    assert [a.patch for a in todo.actions if isinstance(a, Patch) and a.kind == "StatefulSet"] == [
        {"spec": {"replicas": 3}}
    ]
    assert todo.status.phase is SetPhase.PARTIAL_READY


@pytest.mark.parametrize(
    ("since", "ended", "resized"),
    [(0, False, False), (10, True, True), (61, False, True), (10, False, False)],
)
def test_shrinking_waits_for_the_clear_but_not_for_ever(since: Any, ended: Any, resized: Any) -> None:
    run = run_id(OWNER_UID, "scale", "3", "1")
    states = {run: RunState(phase=RunPhase.SUCCEEDED)} if ended else {}
    status = {"conditions": [*SYNCED, condition("Scaling", "True", "Scaling", since)]}
    todo = plan(make_observed("PartialReady", ready=3, status=status, runs=states), CONFIG, NOW)
    patches = [a.patch for a in todo.actions if isinstance(a, Patch) and a.kind == "StatefulSet"]
    assert patches == ([{"spec": {"replicas": 1}}] if resized else [])
    assert [r.clear.partitions for r in runs(todo.actions)] == ([] if resized else [[1, 2]])


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
def test_labels(labels: Any, partition: Any, change: Any) -> None:
    node = {"metadata": {"name": "n", "labels": labels}}
    owner = make_observed().identity
    patches = decide_labels(owner, (node,), (partition,) if partition else (), 3)
    assert [p.patch["metadata"]["labels"] for p in patches] == ([] if change is None else [change])


@pytest.mark.parametrize("name", ["s" * 44, "digits"])
@pytest.mark.parametrize("namespace", ["default", "n" * 63])
def test_label_keys_always_fit(name: Any, namespace: Any) -> None:
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
    first = plan(going(1, ready=2, runs=busy), CONFIG, NOW)
    assert [type(a) for a in first.actions] == [CancelRun, WriteRun]
    second = plan(going(2, ready=2, runs=done), CONFIG, NOW)
    assert [*kinds(second.actions, Patch), *kinds(second.actions, Delete)] == ["Node", "Node", "StatefulSet"]
    rest = make_observed().children
    bare = Children(rest.volume, rest.claim, rest.secret, rest.service)
    waiting = plan(going(3, children=bare, pods=(make_pod(0),)), CONFIG, NOW)
    assert waiting.actions == ()
    third = plan(going(4, children=bare), CONFIG, NOW)
    assert kinds(third.actions, Delete) == ["Service", "Secret", "PersistentVolumeClaim"]
    fourth = plan(going(5, children=Children(rest.volume)), CONFIG, NOW)
    assert kinds(fourth.actions, Delete) == ["PersistentVolume"]
    last = plan(going(6, children=Children()), CONFIG, NOW)
    assert last.actions == (ForgetSet(OWNER_UID),)
    assert last.release.patch["metadata"]["finalizers"] == []
    assert [a.fact for a in last.status.journal.pending] == ["SampleSetDeleted"]


@pytest.mark.parametrize(("seconds", "anyway"), [(10, False), (601, True)])
def test_a_deletion_waits_for_the_bus_but_not_for_ever(seconds: Any, anyway: Any) -> None:
    assert plan(going(seconds, children=Children()), CONFIG, NOW).release_anyway is anyway


def test_a_deletion_does_not_wait_for_silent_agents_or_dead_nodes() -> None:
    stuck = plan(going(61, ready=1), CONFIG, NOW)
    assert "StatefulSet" in kinds(stuck.actions, Delete)
    bare = Children(make_observed().children.volume)
    dead = plan(going(121, children=bare, pods=(make_pod(0),)), CONFIG, NOW)
    assert kinds(dead.actions, Delete) == ["PersistentVolume"]


def test_a_deletion_touches_no_foreign_object() -> None:
    stranger = make_observed(meta={"uid": "another"}).children
    assert plan(going(5, children=stranger), CONFIG, NOW).actions == (ForgetSet(OWNER_UID),)


def test_the_runtime_pod() -> None:
    levels = [{"path": "/dev/shm/A_b.c:/ssd/" + "x" * 200, "cacheSize": 5}]
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    affinity: Any = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    obj = make_observed(
        spec={"cache": {"levels": levels}, "tolerations": tolerations, "nodeAffinity": affinity}
    ).obj
    pod = render.stateful_set(make_observed().identity, read_spec(obj), CONFIG)["spec"]["template"]["spec"]
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


def make_job(phase: str = "", run: str = "", *, meta: Any = None, **spec: Any) -> ObservedJob:
    obj = make_sample_job(**spec)
    obj["metadata"] |= {
        "uid": "job-uid",
        "resourceVersion": "5",
        "generation": 1,
        "finalizers": ["paddlepaddle.org/samplejob-job"],
        **(meta or {}),
    }
    obj["status"] = {"phase": phase, "jobName": run}
    return ObservedJob(obj, sample_set=make_observed("Ready", ready=1).obj, secret=make_secret("source"))


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
def test_a_job_begins_when_its_set_can_take_it(kind: Any, set_phase: Any, begins: Any) -> None:
    options: Any = {"rmrOptions": {"paths": ["x"]}, "secretRef": {"name": "source"}}
    seen: Any = make_job(type=kind, **options)
    seen.sample_set["status"]["phase"] = set_phase
    todo = plan_job(seen, NOW)
    assert todo.status.phase.value == ("Pending" if begins else "")
    assert bool(todo.status.run_id) is begins


BAD_SOURCE = {"type": "sync", "secretRef": {"name": "s"}, "syncOptions": {"source": "x://y"}}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"type": "sync"}, "ErrorSecretNotExist", "spec.secretRef.name"),
        (BAD_SOURCE, "SourceInvalid", "syncOptions.source"),
        ({"type": "rmr"}, "SpecInvalid", "spec.rmrOptions.paths"),
        ({"type": "warmup", "warmupOptions": {"paths": [".."]}}, "SpecInvalid", "spec.warmupOptions.paths"),
        ({"type": "clear", "clearOptions": {"paths": ["/etc"]}}, "SpecInvalid", "spec.clearOptions.paths"),
        ({"type": "shred"}, "ErrorJobTypeNotSupport", "spec.type"),
    ],
)
def test_a_bad_job_says_what_to_mend(spec: Any, reason: Any, field: Any) -> None:
    todo = plan_job(make_job(**spec), NOW)
    told = todo.status.journal.condition("Accepted")
    assert (told.status, told.reason) == ("False", reason)
    assert field in told.message
    assert todo.requeue_after == 30.0


def test_a_deleted_job_cancels_waits_and_forgets() -> None:
    run = "r1"
    meta = {"deletionTimestamp": ago(1)}
    seen = make_job("Running", run, meta=meta)
    running = ObservedJob(seen.obj, seen.sample_set, runs={run: RunState(phase=RunPhase.RUNNING)})
    assert [type(a) for a in plan_job(running, NOW).actions] == [CancelRun]
    assert plan_job(running, NOW).release is None
    ended = ObservedJob(seen.obj, seen.sample_set, runs={run: RunState(phase=RunPhase.CANCELLED)})
    todo = plan_job(ended, NOW)
    assert [type(a) for a in todo.actions] == [ForgetRun]
    assert todo.release.patch["metadata"]["finalizers"] == []
    assert [a.fact for a in todo.status.journal.pending] == ["SampleJobDeleted"]
    late = NOW + timedelta(seconds=31)
    assert plan_job(running, late).release is not None


@pytest.mark.parametrize(("seconds", "anyway"), [(599, False), (601, True)])
def test_a_deleted_job_waits_for_the_bus_but_not_for_ever(seconds: Any, anyway: Any) -> None:
    seen = make_job("Succeeded", "r1", meta={"deletionTimestamp": ago(seconds)})
    assert plan_job(seen, NOW).release_anyway is anyway


def test_what_the_bus_has_lost_of_a_run_is_told_from_what_is_left() -> None:
    seen = make_observed("Ready", ready=1, status={"jobsName": {"syncJobName": "r1"}})
    synced: Any = set_fact("SampleSetSynced", seen, seen.status)
    assert (synced.files, synced.bytes) == (10, 20 * MIB)
    warmed: Any = set_fact("SampleSetWarmed", seen, seen.status)
    assert (warmed.files, warmed.cached_percent) == (10, 50.0)
    silent = make_observed("Ready", status={"cacheStatus": {"totalFiles": "1,797"}})
    synced = set_fact("SampleSetSynced", silent, silent.status)
    assert (synced.files, synced.bytes) == (1797, 0)
    job = make_job("Succeeded", "r1")
    progress = {"filesDone": 7, "bytesDone": 70, "cachedPercent": 99.5}
    ended: Any = job_fact("SampleJobSucceeded", job, replace(job.status, progress=progress))
    assert (ended.files, ended.bytes, ended.cached_percent) == (7, 70, 99.5)


@pytest.mark.parametrize("fact", [v for k, v in vars(Fact).items() if k.isupper()])
def test_every_fact_of_this_service_can_be_told(fact: str) -> None:
    seen, job = make_observed("Ready"), make_job("Succeeded", "r1")
    told = [f for f in (set_fact(fact, seen, seen.status), job_fact(fact, job, job.status)) if f]
    assert [type(f).__name__ for f in told] == [fact]


def test_a_fact_of_another_version_is_not_told() -> None:
    seen, job = make_observed("Ready"), make_job("Succeeded", "r1")
    assert set_fact("SampleSetDreamt", seen, seen.status) is None
    assert job_fact("SampleJobDreamt", job, job.status) is None


def test_progress_is_not_written_too_often() -> None:
    state = {"r1": RunState(phase=RunPhase.RUNNING, files_done=5)}
    seen = make_job("Running", "r1")
    early = ObservedJob(seen.obj, seen.sample_set, runs=state, progress_due=False)
    due = ObservedJob(seen.obj, seen.sample_set, runs=state, progress_due=True)
    assert plan_job(early, NOW).status.progress == {}
    assert plan_job(due, NOW).status.progress["filesDone"] == 5


def test_a_job_whose_set_is_gone_fails() -> None:
    seen = make_job("Running", "r1")
    todo = plan_job(ObservedJob(seen.obj, None), NOW)
    assert todo.status.phase.value == "Failed"
    assert todo.status.journal.condition("Complete").reason == "ErrorSampleSetNotExist"


def test_an_operation_without_a_builder_takes_its_options_as_they_are() -> None:
    row = Operation("wipe", "clear", ClearOperation, ClearOptions, needs_ready=True)
    assert plain_operation(row, {"paths": ["/a", "/b"]}) == ClearOperation(paths=["/a", "/b"])
    with pytest.raises(Invalid, match=r"spec\.wipeOptions\.paths"):
        plain_operation(row, {"paths": 3})


def test_an_operation_that_no_row_describes_is_refused() -> None:
    with pytest.raises(Permanent, match="RunState is not one of"):
        make_run(SetIdentity("default", "digits", "uid"), "run", 1, RunState(), NOW)
