"""Whole plans of SampleSets along the contract's path: everything that is to be done at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    CLAIM_UID,
    CONFIG,
    HOME,
    LABEL,
    NOW,
    OWNER_UID,
    RUNTIME,
    VOLUME_UID,
    ago,
    make_labels,
    make_observed,
    make_pod,
    make_set,
    node_figures,
    spec_of,
)
from tests.unit.dataset_controller.builders import condition as raw_condition

from dataset_controller.domain.actions import CancelRun, ForgetRun, ForgetSet, WriteRun
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.runs import digest, run_id
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.figures import measure
from dataset_controller.domain.sampleset.model import (
    CacheMark,
    Children,
    ObservedSet,
    RuntimePod,
    SetPlan,
    SetStatus,
    SyncOrigin,
)
from dataset_controller.domain.sampleset.parse import parse_status
from dataset_controller.domain.sampleset.plan import plan
from dataset_controller.domain.sampleset.policies.runtime_secret import decide_secrets, read_secrets
from dataset_controller.domain.sampleset.policies.warmth import digest_of
from dataset_controller.domain.sampleset.runtime import is_fresh
from dataset_controller.domain.sources import Credentials, RunKeys
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.dataset_names import set_label
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    NodeStatus,
    RunPhase,
    RunSpec,
    RunState,
    StagedElsewhere,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.operator.domain.plan import Create, Delete, KubernetesEvent, Patch, Trouble
from paddlewheel.testkit.samplesets import ENGINE, absent_secret, make_report, make_secret

AT, EARLIER = "2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z"
SYNC = SyncOperation(source="s3://bucket.s3.example.com/digits", secret="source", threads=10)
WARMUP = WarmupOperation(strategy="sequence", threads=50)
ORIGIN = SyncOrigin(SYNC.source)
SYNC_RUN = run_id(OWNER_UID, "sync", "0", digest(SYNC), "/")
WARMUP_RUNS = [run_id(OWNER_UID, "warmup", str(n), digest(WARMUP), "node-0") for n in range(65)]
VALUES = {f"engine.{name}": value for name, value in ENGINE.items()} | {
    "source.access-key": "AK",
    "source.secret-key": "SK",
}
FIGURES = {
    "totalSize": "20 MiB",
    "totalFiles": "10",
    "cachedSize": "10 MiB",
    "cachedPercent": 50,
    "cacheCapacity": "0 B",
    "stagedSize": "0 B",
    "diskSize": "1000 MiB",
    "diskUsed": "123 MiB",
    "diskAvail": "877 MiB",
    "diskUsageRate": "12.3%",
    "errorMassage": "",
    "nodes": [node_figures(0, 50)],
}
CACHE = spec_of(make_set()).cache.paths
NO_FIGURES: Mapping[str, Any] = {}


def condition(type_: str, is_met: bool, reason: str, message: str = "", since: str = AT) -> Condition:
    return Condition(type_, str(is_met), reason, message, since, 3)


ACCEPTED = condition("Accepted", True, "Accepted")
MOUNTED = condition("Mounted", True, "Mounted")
SYNCED = Condition("Synced", "True", "Synced", "", EARLIER, 2)
"""Recorded for the generation before, which stays so."""
READY = condition("Ready", True, "Ready")


def unready(reason: str, message: str = "") -> Condition:
    return condition("Ready", False, reason, message)


def observe(phase: str, ready: int = 1, *conditions: Condition, **changes: Any) -> ObservedSet:
    """A set whose Secret is up to date, with these conditions and, by name, parts of its status."""
    parts = (
        "sync_job",
        "sync_origin",
        "warmup_job",
        "warmup_nodes",
        "warmup_series",
        "warmup_digest",
        "cache",
        "announcements",
        "nodes_with_writes",
    )
    status = {name: changes.pop(name) for name in parts if name in changes}
    seen = make_observed(phase, ready=ready, **changes)
    own = replace(seen.sample_set, status=replace(seen.status, conditions=conditions, **status))
    if seen.children.secret is not None and "children" not in changes:
        secret = render.secret(own.identity, RUNTIME, VALUES)
        seen = replace(seen, children=replace(seen.children, secret=secret))
    return replace(seen, sample_set=own)


def status_of(
    phase: SetPhase, *conditions: Condition, ready: int = 1, partitions: int = 1, **fields: Any
) -> SetStatus:
    runtime = {
        "specReplicas": partitions,
        "readyReplicas": ready,
        "runtimeReady": f"{ready}/{partitions}",
    }
    least: dict[str, Any] = {"cache": FIGURES, "runtime": runtime, "cache_directories": CACHE}
    return SetStatus(observed_generation=3, phase=phase, conditions=conditions, **{**least, **fields})


def fact(name: str, attempt: int = 0) -> Announcement:
    return Announcement(f"SampleSet{name}", attempt, "2026-01-01T12:00:00.000Z")


def normal(reason: str, message: str) -> tuple[KubernetesEvent, ...]:
    return (KubernetesEvent("Normal", reason, message),)


def warning(reason: str, message: str) -> tuple[KubernetesEvent, ...]:
    return (KubernetesEvent("Warning", reason, message),)


def record(run: str, partitions: int = 1, **operation: WireModel) -> WriteRun:
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


def decide(seen: ObservedSet) -> SetPlan:
    return plan(seen, CONFIG, NOW)


# --- the path


def test_a_new_set_gets_its_secret_and_its_claim() -> None:
    seen = observe("", 0, children=Children())
    own = seen.sample_set
    assert decide(seen) == SetPlan(
        status_of(
            SetPhase.NOT_BOUND,
            ACCEPTED,
            unready("WaitingForVolume", "the claim is not bound yet"),
            ready=0,
            cache=NO_FIGURES,
            cache_directories=(),
        ),
        actions=(
            Create("Service", render.service(own.identity, RUNTIME)),
            Create("Secret", render.secret(own.identity, RUNTIME, VALUES)),
            Create("PersistentVolumeClaim", render.claim(own.identity)),
        ),
        requeue_after=1.0,
    )


def test_the_volume_follows_the_claim_and_is_its_own_from_the_start() -> None:
    full = observe("", 0)
    own, claim = full.sample_set, {**(full.children.claim or {}), "status": {"phase": "Pending"}}
    todo = decide(replace(full, children=Children(claim=claim, secret=full.children.secret)))
    volume = render.volume(own.identity, spec_of(own), None, CLAIM_UID)
    assert todo.actions == (Create("PersistentVolume", volume),)
    assert volume["spec"]["claimRef"]["uid"] == CLAIM_UID


@pytest.mark.parametrize(
    ("volume", "claim", "told", "is_announced"),
    [
        ("", "Pending", "", False),
        ("Available", "Pending", "", False),
        ("Bound", "Pending", "", True),
        ("Bound", "Pending", "uid-of-a-former-volume", True),
        ("Bound", "Pending", VOLUME_UID, False),
        ("Bound", "Bound", "", False),
    ],
)
def test_a_claim_changes_once_the_binder_has_noticed_its_volume(
    volume: str, claim: str, told: str, is_announced: bool
) -> None:
    """The binder has seen it before its volume, and would look at it again only after 15 s."""
    full = observe("", 0)
    children = replace(
        full.children,
        volume={**(full.children.volume or {}), "status": {"phase": volume} if volume else {}},
        claim=told_claim(full, claim, told),
        service=None,
        stateful_set=None,
    )
    told_now = {"paddlepaddle.org/volume-uid": VOLUME_UID, "pv.kubernetes.io/bind-completed": "yes"}
    patch = {"metadata": {"annotations": told_now}}
    wanted = Patch("PersistentVolumeClaim", Key("default", "digits"), patch, uid=CLAIM_UID)
    assert (wanted in decide(replace(full, children=children)).actions) is is_announced


def told_claim(seen: ObservedSet, phase: str, volume: str) -> dict[str, Any]:
    """The set's claim in a phase, with the volume that it was told of."""
    claim = seen.children.claim or {}
    annotations = {**claim["metadata"]["annotations"], "paddlepaddle.org/volume-uid": volume}
    return {
        **claim,
        "metadata": {**claim["metadata"], "annotations": annotations},
        "status": {"phase": phase},
    }


def test_a_claim_that_is_bound_to_a_volume_of_somebody_else_gets_no_runtime() -> None:
    full = observe("", 0)
    foreign = replace(full.children, volume=None, service=None, stateful_set=None)
    done = decide(replace(full, children=foreign))
    assert [action.kind for action in done.actions] == ["PersistentVolume"]
    assert done.status is not None
    assert done.status.phase is SetPhase.NOT_BOUND


def volume_of_claim(seen: ObservedSet, uid: str, phase: str) -> dict[str, Any]:
    """The set's volume in a phase, for the claim with this uid; "" = as older releases made it."""
    volume = seen.children.volume or {}
    named = {name: value for name, value in volume["spec"]["claimRef"].items() if name != "uid"}
    spec = {**volume["spec"], "claimRef": {**named, "uid": uid} if uid else named}
    return {**volume, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize("claim", ["none", "made anew"])
@pytest.mark.parametrize("phase", ["", "Available", "Bound", "Released"])
def test_a_volume_of_a_claim_that_is_gone_makes_room_for_another(phase: str, claim: str) -> None:
    """Bound to it, a claim would be lost. That its own is gone is the binder's word: a claim is seen late."""
    full = observe("", 0)
    volume = volume_of_claim(full, "uid-of-a-former-claim", phase)
    now = None if claim == "none" else {**(full.children.claim or {}), "status": {"phase": "Pending"}}
    children = Children(volume, now, full.children.secret)
    given_up = Delete("PersistentVolume", Key("", volume["metadata"]["name"]), VOLUME_UID)
    asked = Create("PersistentVolumeClaim", render.claim(full.sample_set.identity))
    expected: dict[tuple[str, str], tuple[Any, ...]] = {
        ("Released", claim): (given_up,),
        # It may be somebody's claim of the same name: the API server says so.
        ("Bound", "none"): (asked,),
    }
    assert decide(replace(full, children=children)).actions == expected.get((phase, claim), ())


def test_a_claim_that_is_made_anew_follows_the_volume() -> None:
    full = observe("", 0)
    known = volume_of_claim(full, "", "Available")
    todo = decide(replace(full, children=Children(known, secret=full.children.secret)))
    assert todo.actions == (Create("PersistentVolumeClaim", render.claim(full.sample_set.identity)),)
    unknown = {**known, "status": {}}
    assert decide(replace(full, children=Children(unknown, secret=full.children.secret))).actions == ()


def test_a_bound_set_gets_its_runtime() -> None:
    full = observe("", 0)
    children = replace(full.children, service=None, stateful_set=None)
    own = full.sample_set
    assert decide(replace(full, children=children)) == SetPlan(
        status_of(
            SetPhase.BOUND,
            ACCEPTED,
            unready("WaitingForMount"),
            ready=0,
            cache=NO_FIGURES,
            cache_directories=(),
            announcements=(fact("Bound"),),
        ),
        actions=(
            Create("Service", render.service(own.identity, RUNTIME)),
            Create("StatefulSet", render.stateful_set(own.identity, RUNTIME, spec_of(own), CONFIG, 1)),
        ),
        events=normal("Bound", "phase is Bound"),
        requeue_after=0.0,
    )


@pytest.mark.parametrize(
    ("reports", "started"),
    [
        ((), 1),
        # They may be of the pod that is alone.
        ((make_report(OWNER_UID, 0, NOW, mounted=False),), 1),
        ((make_report(OWNER_UID, 2, NOW, mounted=False, volume_id="volume"),), 3),
    ],
)
def test_the_first_pod_of_a_set_that_was_never_mounted_is_alone(
    reports: tuple[NodeStatus, ...], started: int
) -> None:
    """It makes the volume; two at once would make two."""
    full = observe("Bound", 0, spec={"partitions": 3}, reports=reports)
    [made] = [
        action
        for action in decide(replace(full, children=replace(full.children, stateful_set=None))).actions
        if isinstance(action, Create)
    ]
    assert made.render()["spec"]["podManagementPolicy"] == "Parallel"
    assert made.render()["spec"]["replicas"] == started


def test_the_other_pods_follow_when_the_first_has_mounted() -> None:
    alone = observe("Bound", 0, replicas=1, spec={"partitions": 3}, pods=(make_pod(0, ready=False),))
    report = make_report(OWNER_UID, 0, NOW, mounted=False)
    for waits in (alone, replace(alone, reports=(report,)), replace(alone, pods=())):
        assert decide(waits).actions == ()
    for mounted in (
        replace(alone, reports=(report.model_copy(update={"volume_id": "volume"}),)),
        replace(alone, pods=(make_pod(0),)),
    ):
        todo = decide(mounted)
        assert resized(3) in todo.actions
        assert todo.status is not None
        assert todo.status.condition("Scaling") is None, "nobody has scaled it"


def test_a_set_that_somebody_scaled_to_nothing_before_it_was_mounted_begins_with_one_pod() -> None:
    assert decide(observe("Bound", 0, replicas=0, spec={"partitions": 3})).actions == (resized(1),)


def test_pods_that_were_started_together_before_stay() -> None:
    """Of an earlier release, which started them one after the other."""
    pods = tuple(make_pod(i, ready=False) for i in range(3))
    assert decide(observe("Bound", 0, replicas=3, spec={"partitions": 3}, pods=pods)).actions == ()


def test_a_stateful_set_of_an_earlier_release_keeps_the_order_of_its_pods() -> None:
    """The API server refuses another, and whoever made it anew would end all mounts."""
    seen = observe("Ready", 2, SYNCED, spec={"partitions": 2})
    stateful_set = seen.children.stateful_set
    assert stateful_set is not None
    earlier = {**stateful_set, "spec": {**stateful_set["spec"], "podManagementPolicy": "OrderedReady"}}
    seen = replace(seen, children=replace(seen.children, stateful_set=earlier))
    assert decide(seen).actions == ()
    [update] = plan(seen, replace(CONFIG, image="runtime:2"), NOW).actions
    assert isinstance(update, Patch)
    assert set(update.patch["spec"]) == {"template", "updateStrategy"}
    grown = replace(seen, sample_set=make_set("Ready", spec={"partitions": 3}))
    assert resized(3) in decide(grown).actions


def test_a_set_without_a_mount_says_what_is_wrong_with_its_first_partition() -> None:
    crashing = replace(make_pod(0, ready=False), trouble="Crash: exit code 1")
    why = "partition 0: Crash: exit code 1"
    assert decide(observe("Bound", 0, replicas=1, pods=(crashing,))) == SetPlan(
        status_of(
            SetPhase.BOUND,
            ACCEPTED,
            condition("Mounted", False, "NoPartitionMounted", why),
            unready("WaitingForMount", why),
            ready=0,
            cache=NO_FIGURES,
        )
    )


def test_a_set_whose_stateful_set_was_emptied_says_that_nothing_is_mounted() -> None:
    status = decide(observe("Bound", 0, replicas=0)).status
    assert status is not None
    assert status.condition("Mounted") == condition("Mounted", False, "NoPartitionMounted")


def test_a_mounted_set_labels_its_nodes() -> None:
    [node] = [{"metadata": {"name": "node-0", "labels": {"zone": "a"}}}]
    assert decide(observe("Bound", nodes=(node,))) == SetPlan(
        status_of(
            SetPhase.MOUNT, ACCEPTED, MOUNTED, unready("WaitingForSync"), announcements=(fact("Mounted"),)
        ),
        actions=(Patch("Node", Key("", "node-0"), {"metadata": {"labels": make_labels(0)}}),),
        events=normal("Mounted", "phase is Mount"),
        requeue_after=0.0,
    )


def test_a_mounted_set_records_the_id_of_its_sync() -> None:
    assert decide(observe("Mount")) == SetPlan(
        status_of(
            SetPhase.SYNCING,
            ACCEPTED,
            MOUNTED,
            condition("Synced", False, "Syncing"),
            unready("Syncing"),
            sync_job=SYNC_RUN,
            sync_origin=ORIGIN,
        ),
        events=normal("Syncing", f"started sync {SYNC_RUN}"),
        requeue_after=0.0,
    )


def test_a_sync_waits_for_no_partition_and_has_a_share_for_each() -> None:
    """Whichever are ready: others do the work of those that are not."""
    todo = decide(observe("Mount", 1, replicas=3, spec={"partitions": 3}))
    assert todo.status is not None
    assert (todo.status.phase, todo.status.sync_job) == (SetPhase.SYNCING, SYNC_RUN)
    again = observe("Syncing", 1, replicas=3, spec={"partitions": 3}, sync_job=SYNC_RUN)
    assert decide(again).actions == (record(SYNC_RUN, 3, sync=SYNC),)


def test_a_recorded_sync_is_requested() -> None:
    syncing = condition("Synced", False, "Syncing")
    expected = SetPlan(
        status_of(SetPhase.SYNCING, ACCEPTED, MOUNTED, syncing, unready("Syncing"), sync_job="s1"),
        actions=(record("s1", sync=SYNC),),
        requeue_after=15.0,
    )
    assert decide(observe("Syncing", sync_job="s1")) == expected
    taken = {"s1": RunState(phase=RunPhase.RUNNING)}
    assert decide(observe("Syncing", sync_job="s1", runs=taken)) == expected


def test_a_sync_that_a_job_has_cancelled_is_cancelled_in_each_pass_before_it_is_written_again() -> None:
    cancel = CancelRun(RunKey(OWNER_UID, "s1"))
    seen = observe("Syncing", sync_job="s1", cancelled_runs=frozenset(["s1", "w1"]))
    assert decide(seen).actions == (cancel, record("s1", sync=SYNC))
    assert decide(replace(seen, engine_secret=None)).actions == (cancel,)


def test_a_set_says_what_its_sync_waits_for() -> None:
    away = {"reason": "PartitionAway", "message": "partition 1: away"}
    status = decide(
        observe("Syncing", sync_job="s1", runs={"s1": RunState(phase=RunPhase.RUNNING, **away)})
    ).status
    assert status is not None
    for name in ("Synced", "Ready"):
        found = status.condition(name)
        assert found is not None
        assert (found.status, found.reason, found.message) == ("False", *away.values())


def test_a_sync_of_a_public_source_needs_no_keys() -> None:
    public = make_secret(values={k: v for k, v in ENGINE.items() if not k.endswith("-key")})
    todo = decide(observe("Syncing", sync_job="s1", source_secret=public))
    assert record("s1", sync=SYNC.model_copy(update={"secret": ""})) in todo.actions


GS = {"uri": "gs://b/d", "secretRef": {"name": "source"}}
KEYLESS = (
    "the client of Google Cloud Storage takes the role of the node, which must be allowed to read the bucket"
)


@pytest.mark.parametrize(
    ("spec", "changes", "remark"),
    [
        ({"source": GS}, {}, f"without effect: the keys in Secret default/source: {KEYLESS}"),
        ({"source": GS}, {"source_secret": make_secret(values={})}, ""),
        ({"source": {"uri": "gs://b/d"}}, {}, ""),
        ({"source": {"uri": "gs://A:S@b/d"}}, {}, f"without effect: the keys in spec.source.uri: {KEYLESS}"),
        ({"source": {**GS, "uri": "s3://b/d"}}, {}, ""),
        ({"source": GS, "noSync": True}, {}, ""),
        (
            {},
            {"engine_secret": make_secret(values={**ENGINE, "storage": "gs"})},
            f"without effect: the keys in Secret default/digits: {KEYLESS}",
        ),
    ],
    ids=["keys", "none", "those of the engine", "in the address", "another store", "no sync", "engine"],
)
def test_keys_that_the_client_of_a_store_does_not_read_are_said_to_have_no_effect(
    spec: dict[str, Any], changes: dict[str, Any], remark: str
) -> None:
    status = decide(observe("Ready", 1, SYNCED, spec=spec, **changes)).status
    assert status is not None
    accepted = status.condition("Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason, accepted.message) == ("True", "Accepted", remark)


def test_a_sync_whose_source_is_taken_away_is_requested_all_the_same_and_fails() -> None:
    todo = decide(observe("Syncing", sync_job="s1", spec={"source": None, "noSync": True}))
    assert record("s1", sync=SyncOperation(threads=10)) in todo.actions


def test_a_sync_without_a_mount_and_without_secrets_goes_on() -> None:
    lost = decide(observe("Syncing", 0, replicas=1, sync_job="s1"))
    assert lost.actions == (record("s1", sync=SYNC),)
    blind = decide(observe("Syncing", sync_job="s1", engine_secret=None))
    assert blind.status is not None
    assert (blind.status.phase, blind.actions, blind.requeue_after) == (SetPhase.SYNCING, (), 5.0)


@pytest.mark.parametrize("phase", [SetPhase.MOUNT, SetPhase.SYNC_FAILED])
def test_no_sync_begins_without_secrets(phase: SetPhase) -> None:
    status = decide(observe(phase.value, engine_secret=None)).status
    assert status is not None
    assert (status.phase, status.sync_job) == (phase, "")


def test_a_synced_set_waits_for_figures() -> None:
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW)}
    before = (fact("Mounted"),)
    assert decide(observe("Syncing", sync_job="s1", runs=done, announcements=before)) == SetPlan(
        status_of(
            SetPhase.MOUNT,
            ACCEPTED,
            MOUNTED,
            condition("Synced", True, "Synced"),
            unready("WaitingForFigures"),
            sync_job="s1",
            announcements=(*before, fact("Synced")),
        ),
        events=normal("Synced", "sync s1 has succeeded"),
        requeue_after=0.0,
    )


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        ({"reason": "FilesFailed", "message": "a.png"}, "FilesFailed", "a.png"),
        ({}, "RunFailed", "the runtime gave no message"),
        ({"phase": RunPhase.CANCELLED}, "RunFailed", "the runtime gave no message"),
    ],
)
def test_a_failed_sync_says_why(state: dict[str, Any], reason: str, message: str) -> None:
    failed = {"s1": RunState(**{"phase": RunPhase.FAILED, **state})}
    assert decide(observe("Syncing", sync_job="s1", runs=failed)) == SetPlan(
        status_of(
            SetPhase.SYNC_FAILED,
            ACCEPTED,
            MOUNTED,
            condition("Synced", False, reason, message),
            unready("SyncFailed", f"{message}; {REMEDY}"),
            sync_job="s1",
            announcements=(fact("SyncFailed"),),
        ),
        events=warning("SyncFailed", message),
        requeue_after=0.0,
    )


REMEDY = "change the source or its Secret, or set spec.noSync"
FAILED_SYNC = condition("Synced", False, "FilesFailed", "a.png", EARLIER)


def after_failure(phase: str, **changes: Any) -> ObservedSet:
    return observe(phase, 1, FAILED_SYNC, sync_job=SYNC_RUN, announcements=(fact("SyncFailed"),), **changes)


def test_a_failed_sync_waits_for_a_change() -> None:
    assert decide(after_failure("SyncFailed")) == SetPlan(
        status_of(
            SetPhase.SYNC_FAILED,
            FAILED_SYNC,
            ACCEPTED,
            MOUNTED,
            unready("SyncFailed", f"a.png; {REMEDY}"),
            sync_job=SYNC_RUN,
            announcements=(fact("SyncFailed"),),
        ),
        requeue_after=5.0,
    )


def test_a_failure_that_the_status_has_lost_is_taken_from_the_bus() -> None:
    lost = observe("Mount", sync_job=SYNC_RUN, announcements=(fact("SyncFailed"),))
    found = decide(replace(lost, runs={SYNC_RUN: RunState(phase=RunPhase.FAILED, message="a.png")}))
    assert found.status is not None
    assert found.status.condition("Synced") == condition("Synced", False, "RunFailed", "a.png")
    assert found.events == warning("SyncFailed", "a.png")
    assert decide(lost).events == warning("SyncFailed", "")


def test_a_changed_sync_begins_anew_under_another_id() -> None:
    secret = make_secret()
    changed = {**secret, "metadata": {**secret["metadata"], "uid": "u", "resourceVersion": "2"}}
    again = after_failure("SyncFailed", source_secret=changed)
    forget = ForgetRun(RunKey(OWNER_UID, SYNC_RUN))
    todo = decide(again)
    assert todo.status is not None
    assert (todo.status.phase, todo.status.sync_job) == (SetPhase.MOUNT, SYNC_RUN)
    assert (todo.actions, todo.events) == ((forget,), normal("Mounted", "phase is Mount"))
    next_run = run_id(OWNER_UID, "sync", "1", digest(SYNC), "u/2")
    todo = decide(after_failure("Mount", source_secret=changed, sync_origin=ORIGIN))
    assert todo.status is not None
    assert (todo.status.phase, todo.status.sync_job) == (SetPhase.SYNCING, next_run)
    assert (todo.actions, todo.events) == (
        (forget,),
        normal("Syncing", f"started sync {next_run}"),
    )


OTHER = SyncOperation(source="s3://bucket.s3.example.com/v2", secret="source", threads=10)
V2 = {"source": {"uri": OTHER.source}}
OVERWRITES = SyncOrigin(OTHER.source, overwrites=True)


@pytest.mark.parametrize("before", [ORIGIN, SyncOrigin()], ids=["recorded", "of an older release"])
def test_a_sync_from_another_source_overwrites_what_the_first_has_copied(before: SyncOrigin) -> None:
    """Of files of the same size nobody knows from which of the two they are."""
    overwriting = OTHER.model_copy(update={"force_update": True})
    run = run_id(OWNER_UID, "sync", "1", digest(overwriting), "/")
    status = decide(after_failure("Mount", spec=V2, sync_origin=before)).status
    assert status is not None
    assert (status.phase, status.sync_job, status.sync_origin) == (SetPhase.SYNCING, run, OVERWRITES)
    again = decide(observe("Syncing", spec=V2, sync_job=run, sync_origin=OVERWRITES))
    assert again.actions == (record(run, sync=overwriting),)


def test_a_sync_that_has_changed_nothing_but_its_keys_copies_what_is_missing() -> None:
    """The outage of a store is no reason to copy all of it again."""
    secret = make_secret()
    changed = {**secret, "metadata": {**secret["metadata"], "uid": "u", "resourceVersion": "2"}}
    status = decide(after_failure("Mount", source_secret=changed, sync_origin=ORIGIN)).status
    assert status is not None
    assert (status.phase, status.sync_origin) == (SetPhase.SYNCING, ORIGIN)


def test_every_sync_overwrites_after_one_from_another_source_has_failed() -> None:
    """Also one from the first source again: what is there is of both."""
    run = run_id(OWNER_UID, "sync", "0", digest(OTHER.model_copy(update={"force_update": True})), "/")
    failed = {"sync_job": run, "sync_origin": OVERWRITES, "announcements": (fact("SyncFailed"),)}
    unchanged = decide(observe("SyncFailed", 1, FAILED_SYNC, spec=V2, **failed)).status
    assert unchanged is not None
    assert (unchanged.phase, unchanged.sync_job) == (SetPhase.SYNC_FAILED, run)
    back = decide(observe("Mount", 1, FAILED_SYNC, **failed)).status
    assert back is not None
    assert (back.phase, back.sync_origin) == (SetPhase.SYNCING, SyncOrigin(SYNC.source, overwrites=True))


def test_a_run_keeps_the_source_that_it_was_begun_with() -> None:
    """The bus may lose its record after the spec was changed: under this id, the other source would be added
    to what was copied from the first."""
    todo = decide(observe("Syncing", spec=V2, sync_job="s1", sync_origin=ORIGIN))
    assert todo.actions == (record("s1", sync=SYNC),)


def test_a_set_says_what_its_sync_has_not_looked_at() -> None:
    kept = "2 files were there with the same size and not compared"
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW, message=kept)}
    status = decide(observe("Syncing", sync_job="s1", sync_origin=ORIGIN, runs=done)).status
    assert status is not None
    assert status.condition("Synced") == condition("Synced", True, "Synced", kept)
    silent = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW)}
    status = decide(observe("Syncing", sync_job="s1", sync_origin=OVERWRITES, runs=silent)).status
    assert status is not None
    synced = status.condition("Synced")
    assert synced is not None
    assert "files that only the source of a failed sync had may still be there" in synced.message


OF_FORMER = (
    "files that only the source of a failed sync had may still be there: a SampleJob of type sync with"
    " delete-dst removes what the source does not have"
)


@pytest.mark.parametrize(
    ("mirrored_at", "message", "is_over"),
    [
        ("", f"2 files kept; {OF_FORMER}", False),
        ("2026-01-01T11:59:00Z", f"2 files kept; {OF_FORMER}", False),
        ("2026-01-01T11:59:30Z", "2 files kept", True),
    ],
    ids=["no such job", "one that began before the sync had ended", "one after it"],
)
@pytest.mark.parametrize("is_on_bus", [True, False])
def test_a_set_says_no_more_that_files_are_left_once_a_job_has_removed_them(
    mirrored_at: str, message: str, is_over: bool, is_on_bus: bool
) -> None:
    synced = condition("Synced", True, "Synced", f"2 files kept; {OF_FORMER}", ago(30))
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW, message="2 files kept")}
    values = {"runs": done if is_on_bus else {}, "mirrored_at": mirrored_at}
    status = decide(observe("Ready", 1, synced, sync_job="s1", sync_origin=OVERWRITES, **values)).status
    assert status is not None
    assert status.condition("Synced") == replace(synced, message=message)
    assert status.sync_origin.overwrites is not is_over
    assert status.sync_origin.uri == OVERWRITES.uri


def test_the_source_of_a_sync_is_read_as_it_is_written() -> None:
    status = SetStatus(sync_job="s1", sync_origin=OVERWRITES)
    assert parse_status({"status": status.render()}).sync_origin == OVERWRITES
    assert parse_status({"status": SetStatus(sync_job="s1").render()}).sync_origin == SyncOrigin()


def test_a_set_with_figures_is_partially_ready() -> None:
    assert decide(observe("Mount", 1, SYNCED, sync_job="s1")) == SetPlan(
        status_of(
            SetPhase.PARTIAL_READY,
            SYNCED,
            ACCEPTED,
            MOUNTED,
            unready("Warming"),
            sync_job="s1",
            announcements=(fact("Synced"),),
        ),
        events=normal("PartialReady", "phase is PartialReady"),
        requeue_after=0.0,
    )


def test_a_mounted_agent_that_has_not_measured_the_set_has_no_figures() -> None:
    """It may read the names of all files first: the set says since when."""
    at = {"mount_changed_at": NOW - timedelta(hours=2), "size_unknown": True}
    report = make_report(OWNER_UID, 0, NOW, **at)
    status = decide(observe("Mount", 1, SYNCED, sync_job="s1", reports=(report,))).status
    assert status is not None
    assert (status.phase, status.condition("Ready")) == (
        SetPhase.MOUNT,
        unready(
            "WaitingForFigures",
            "partition 0 has been measuring the size of the set since 2026-01-01T10:00:00Z; where that means"
            " to read the names of all files, it takes long",
        ),
    )
    failed = make_report(OWNER_UID, 0, NOW, **at, figures_problem="size of the set: Input/output error")
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW - timedelta(hours=1))}
    seen = observe("Mount", 1, SYNCED, sync_job="s1", reports=(failed,), runs=done)
    ready = (decide(seen).status or SetStatus()).condition("Ready")
    assert ready is not None
    assert ready.message.startswith("partition 0 has been measuring the size of the set since 2026-01-01T11:")
    assert ready.message.endswith("; size of the set: Input/output error")


def test_a_set_that_does_not_fit_keeps_saying_so_while_nobody_has_measured_it() -> None:
    small = condition("CacheFits", False, "CacheTooSmall", "50 % of 20 MiB fit", ago(30))
    new = {"size_unknown": True, "total_bytes": 0, "total_files": 0, "cache_capacity": 10 << 20}
    status = decide(
        observe("Ready", 1, SYNCED, small, reports=(make_report(OWNER_UID, 0, NOW, **new),))
    ).status
    assert status is not None
    assert status.condition("CacheFits") == small


def test_figures_from_before_the_end_of_the_sync_do_not_count() -> None:
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW + timedelta(seconds=1))}
    status = decide(observe("Mount", 1, SYNCED, sync_job="s1", runs=done)).status
    assert status is not None
    assert status.condition("Ready") == unready(
        "WaitingForFigures", "a report of after the end of the sync, 2026-01-01T12:00:01Z, has not come yet"
    )


def test_a_size_measured_before_the_end_of_the_sync_does_not_count_though_reported_after_it() -> None:
    done = {"s1": RunState(phase=RunPhase.SUCCEEDED, ended_at=NOW - timedelta(seconds=2))}
    for age, phase in ((3, SetPhase.MOUNT), (2, SetPhase.PARTIAL_READY), (0, SetPhase.PARTIAL_READY)):
        report = make_report(OWNER_UID, 0, NOW, size_age=age)
        status = decide(observe("Mount", 1, SYNCED, sync_job="s1", runs=done, reports=(report,))).status
        assert status is not None
        assert status.phase is phase


def test_a_set_that_becomes_ready_has_the_figures_of_now() -> None:
    """However recently other figures were written."""
    seen = observe("Mount", 1, SYNCED, sync_job="s1", cache={"totalFiles": "9"}, figures_due=False)
    status = decide(seen).status
    assert status is not None
    assert (status.phase, status.cache) == (SetPhase.PARTIAL_READY, FIGURES)


def test_the_size_of_a_set_is_the_one_that_was_measured_last() -> None:
    old = make_report(OWNER_UID, 0, NOW, size_age=9, total_files=7)
    new = make_report(OWNER_UID, 1, NOW - timedelta(seconds=5), size_age=1, total_files=10)
    assert measure([old, new]).total_files == measure([new, old]).total_files == 10


def test_a_set_without_sync_says_so() -> None:
    spec = {"noSync": True}
    not_needed = condition("Synced", True, "NotNeeded", "spec.noSync is set")
    secret = render.secret(
        make_set().identity, RUNTIME, {**VALUES, "source.access-key": "", "source.secret-key": ""}
    )
    seen = observe("Mount", spec=spec, source_secret=None)
    seen = replace(seen, children=replace(seen.children, secret=secret))
    assert decide(seen) == SetPlan(
        status_of(SetPhase.PARTIAL_READY, ACCEPTED, MOUNTED, not_needed, unready("Warming")),
        events=normal("PartialReady", "phase is PartialReady"),
        requeue_after=0.0,
    )
    # What is recorded counts, also when spec.noSync is taken back later.
    later = decide(observe("Mount", 1, not_needed)).status
    assert later is not None
    assert (later.phase, later.announcements) == (SetPhase.PARTIAL_READY, ())


@pytest.mark.parametrize("phase", [SetPhase.MOUNT, SetPhase.PARTIAL_READY, SetPhase.READY])
def test_a_set_that_goes_without_sync_says_what_copies_its_source_once_no_sync_is_taken_back(
    phase: SetPhase,
) -> None:
    set_ = condition("Synced", True, "NotNeeded", "spec.noSync is set", EARLIER)
    taken_back = replace(
        set_,
        message="spec.noSync was set when the first sync was due; a SampleJob of type sync copies the source",
    )
    for recorded in (set_, taken_back):
        for spec, told in (({}, taken_back), ({"noSync": True}, set_)):
            todo = decide(observe(phase.value, 1, recorded, spec=spec))
            assert todo.status is not None
            assert todo.status.condition("Synced") == told
            assert not [action for action in todo.actions if isinstance(action, WriteRun)]


def test_a_set_whose_partitions_are_all_there_is_ready() -> None:
    assert decide(observe("PartialReady", 1, SYNCED)) == SetPlan(
        status_of(
            SetPhase.READY,
            SYNCED,
            ACCEPTED,
            MOUNTED,
            READY,
            announcements=(fact("Synced"), fact("Ready")),
        ),
        events=normal("Ready", "phase is Ready"),
        requeue_after=0.0,
    )


@pytest.mark.parametrize(("trouble", "suffix"), [("", ""), ("Crash", "; partition 1: Crash")])
def test_a_set_that_lost_a_partition_is_degraded(trouble: str, suffix: str) -> None:
    pods = (make_pod(0), replace(make_pod(1, ready=False), trouble=trouble))
    seen = observe("Ready", 2, SYNCED, pods=pods, spec={"partitions": 2})
    why = f"1 of 2 partitions are ready{suffix}"
    todo = decide(seen)
    assert todo.status is not None
    assert todo.status.condition("Ready") == unready("PartitionsNotReady", why)
    assert (todo.status.phase, todo.status.announcements[-1]) == (SetPhase.PARTIAL_READY, fact("Degraded"))
    assert todo.events == normal("PartialReady", "phase is PartialReady")
    assert [(a.kind, a.key.name) for a in todo.actions] == [("Node", "node-1")]
    assert set(todo.actions[0].patch["metadata"]["labels"].values()) == {None}


def test_a_new_image_reaches_a_set_that_runs() -> None:
    seen = observe("Ready", 1, SYNCED)
    assert plan(seen, CONFIG, NOW).actions == ()
    [update] = plan(seen, replace(CONFIG, image="runtime:2"), NOW).actions
    assert (update.kind, update.key) == ("StatefulSet", Key("default", "digits-runtime"))
    assert update.patch["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    [container] = update.patch["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "runtime:2"
    assert set(update.patch["spec"]["template"]["spec"]) == {"containers"}, "nothing else has changed"


def test_what_is_taken_out_of_the_template_is_taken_out_of_the_runtime() -> None:
    affinity: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    before = observe("Ready", 1, SYNCED, spec={"nodeAffinity": affinity})
    after = observe("Ready", 1, SYNCED)
    [update] = plan(replace(after, children=before.children), CONFIG, NOW).actions
    required = {"requiredDuringSchedulingIgnoredDuringExecution": None}
    assert update.patch["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": required}


def with_cache(*levels: tuple[str, int]) -> dict[str, Any]:
    return {"cache": {"levels": [{"path": path, "cacheSize": size} for path, size in levels]}}


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        ([("/ssd/a", 10)], [("/ssd/b", 10)], "/ssd/a/default/uid-1"),
        ([("/ssd/a", 10), ("/ssd/b", 10)], [("/ssd/b", 10)], "/ssd/a/default/uid-1"),
        # Of one size, each holds its share itself; of two, the larger is divided.
        (
            [("/ssd/a", 10), ("/ssd/b", 30)],
            [("/ssd/a", 30), ("/ssd/b", 30)],
            "/ssd/b/default/uid-1/1 and 1 more",
        ),
    ],
)
def test_directories_that_nodes_use_are_not_taken_from_the_runtime(
    before: list[tuple[str, int]], after: list[tuple[str, int]], dropped: str
) -> None:
    children = observe("Ready", 1, SYNCED, spec=with_cache(*before)).children
    todo = plan(
        observe("Ready", 1, SYNCED, spec=with_cache(*after), children=children),
        replace(CONFIG, image="runtime:2"),
        NOW,
    )
    assert [action.key.name for action in todo.actions if action.kind == "StatefulSet"] == []
    assert todo.status is not None
    refused = todo.status.condition("Accepted")
    assert refused is not None
    assert (refused.status, refused.reason) == ("False", "CacheMoved")
    assert f"not uploaded, in {dropped}, which" in refused.message
    is_divided = "/1 and" in dropped
    assert ("by the sizes of all levels" in refused.message) is is_divided
    assert todo.status.phase is SetPhase.READY, "what runs goes on"


@pytest.mark.parametrize("is_going", [False, True])
def test_no_runtime_is_made_for_other_directories_than_those_that_nodes_use(is_going: bool) -> None:
    """Its agents would look elsewhere, and report that nothing is left to upload."""
    before = decide(observe("Ready", 1, SYNCED, spec=with_cache(("/ssd/a", 10)))).status
    assert before is not None
    assert before.cache_directories == ("/ssd/a/default/uid-1",)
    moved, same = with_cache(("/ssd/b", 10)), with_cache(("/ssd/a", 10))
    for spec, runtimes in ((moved, 0), (same, 1)):
        kept: dict[str, Any] = {"conditions": [], "reports": STAGED} if is_going else {}
        seen = going(0, 1, spec=spec, **kept) if is_going else observe("Ready", 1, SYNCED, spec=spec)
        status = replace(seen.status, cache_directories=before.cache_directories)
        seen = without_runtime(replace(seen, sample_set=replace(seen.sample_set, status=status)))
        todo = decide(seen)
        assert [kind for kind, _ in created(todo)] == ["StatefulSet"] * runtimes
        assert todo.status is not None
        assert todo.status.cache_directories == before.cache_directories
        said = todo.status.condition("Ready" if is_going else "Accepted")
        assert said is not None
        assert ("in /ssd/a/default/uid-1, which it would no longer use" in said.message) is (runtimes == 0)


@pytest.mark.parametrize(
    "after",
    [[("/ssd/a", 20)], [("/ssd/a", 10), ("/ssd/b", 10)], [("/ssd/a", 30), ("/ssd/b", 10)]],
    ids=["larger", "one more", "one more, which is smaller"],
)
def test_a_cache_may_become_larger(after: list[tuple[str, int]]) -> None:
    children = observe("Ready", 1, SYNCED, spec=with_cache(("/ssd/a", 10))).children
    todo = decide(observe("Ready", 1, SYNCED, spec=with_cache(*after), children=children))
    assert [action.key.name for action in todo.actions if action.kind == "StatefulSet"] == ["digits-runtime"]
    assert todo.status is not None
    assert todo.status.condition("Accepted") == ACCEPTED


STORE_DOWN: dict[str, Any] = {"ailment": "StoreUnreachable", "ailment_message": "no answer; start it"}
DATABASE_DOWN: dict[str, Any] = {"ailment": "DatabaseUnreachable", "ailment_message": "no answer; start it"}


def test_what_ails_a_mounted_partition_is_said_and_told_to_jobs() -> None:
    well, ill = make_report(OWNER_UID, 0, NOW), make_report(OWNER_UID, 1, NOW, **DATABASE_DOWN)
    seen = observe("Ready", 2, SYNCED, spec={"partitions": 2}, reports=(well, ill))
    todo = decide(seen)
    assert todo.status is not None
    why = "partition 1 on node node-1: no answer; start it"
    broken = condition("Healthy", False, "DatabaseUnreachable", why)
    assert todo.status.condition("Healthy") == broken
    assert todo.status.condition("Ready") == unready("DatabaseUnreachable", why)
    assert (todo.status.phase, todo.status.announcements[-1]) == (SetPhase.PARTIAL_READY, fact("Degraded"))
    assert todo.actions == (), "it is mounted, and keeps its label"

    reports = (well, make_report(OWNER_UID, 1, NOW))
    healed = decide(
        observe("PartialReady", 2, SYNCED, broken, spec={"partitions": 2}, reports=reports)
    ).status
    assert healed is not None
    assert healed.condition("Healthy") == condition("Healthy", True, "Healthy")
    assert healed.phase is SetPhase.READY


@pytest.mark.parametrize("ailment", ["StoreUnreachable", "CacheDiskFull", "CacheDiskFailed"])
def test_what_leaves_cached_data_to_be_read_closes_no_gate(ailment: str) -> None:
    ill = make_report(OWNER_UID, 0, NOW, ailment=ailment, ailment_message="mend it")
    status = decide(observe("Ready", 1, SYNCED, reports=(ill,))).status
    assert status is not None
    why = "partition 0 on node node-0: mend it"
    assert status.condition("Healthy") == condition("Healthy", False, ailment, why)
    assert status.condition("Ready") == condition("Ready", True, "Ready", why)
    assert (status.phase, [each.fact for each in status.announcements]) == (
        SetPhase.READY,
        ["SampleSetSynced"],
    )
    later = decide(observe("PartialReady", 1, SYNCED, reports=(ill,))).status
    assert later is not None
    assert later.phase is SetPhase.READY


def test_a_set_is_not_well_again_before_the_next_agent_has_mounted() -> None:
    stopped = condition("Healthy", False, "Stopped", "partition 0 on node node-0: stopped")
    starting = make_report(OWNER_UID, 0, NOW, mounted=False, message="not mounted yet")
    status = decide(observe("PartialReady", 1, SYNCED, stopped, reports=(starting,))).status
    assert status is not None
    assert status.condition("Healthy") == stopped


def test_of_two_ailments_the_one_that_stops_jobs_is_said() -> None:
    reports = (
        make_report(OWNER_UID, 0, NOW, **STORE_DOWN),
        make_report(OWNER_UID, 1, NOW, **DATABASE_DOWN),
    )
    status = decide(observe("Ready", 2, SYNCED, spec={"partitions": 2}, reports=reports)).status
    assert status is not None
    why = "partition 1 on node node-1: no answer; start it"
    assert status.condition("Healthy") == condition("Healthy", False, "DatabaseUnreachable", why)
    assert status.condition("Ready") == unready("DatabaseUnreachable", why)


# --- the set's own warmup

WARM: dict[str, Any] = {"spec": {"warmup": {}}}


def warming(attempt: int, runs: Mapping[str, RunState] | None = None, **changes: Any) -> ObservedSet:
    job = {"warmup_job": WARMUP_RUNS[attempt], "warmup_nodes": ("node-0",)}
    return observe("PartialReady", 1, SYNCED, runs=runs or {}, **job, **WARM, **changes)


def series(number: int, *nodes: str) -> str:
    """The id of the first attempt at a warmup that was begun anew so often."""
    return run_id(OWNER_UID, "warmup", "0", digest(WARMUP), *(nodes or ("node-0",)), f"series {number}")


def warmed(reason: str, message: str = "", *, is_met: bool = False) -> Condition:
    return condition("Warmed", is_met, reason, message)


def partial(*conditions: Condition, attempt: int = 0) -> SetStatus:
    return status_of(
        SetPhase.PARTIAL_READY,
        SYNCED,
        ACCEPTED,
        MOUNTED,
        *conditions,
        warmup_job=WARMUP_RUNS[attempt],
        warmup_nodes=("node-0",),
        announcements=(fact("Synced"),),
    )


BEGUN_NOW = CacheMark("2026-01-01T12:00:00.000Z")
ASKED = digest_of(WARMUP)


def begun(*, attempt: int = 0) -> SetStatus:
    """The id of a warmup is recorded with the moment of its begin, and with what it was asked for."""
    status = partial(unready("Warming"), attempt=attempt)
    return replace(status, cache_mark=BEGUN_NOW, warmup_digest=ASKED)


def test_a_complete_set_records_the_id_of_its_warmup() -> None:
    expected = SetPlan(begun(), requeue_after=0.0)
    assert decide(observe("PartialReady", 1, SYNCED, **WARM)) == expected
    # The options have changed since.
    forget = (ForgetRun(RunKey(OWNER_UID, "w0")),)
    anew = replace(begun(), warmup_job=series(1), warmup_series=1)
    assert decide(observe("PartialReady", 1, SYNCED, warmup_job="w0", **WARM)) == replace(
        expected, status=anew, actions=forget
    )
    # A set that is ready already stays so.
    ready = decide(observe("Ready", 1, SYNCED, **WARM)).status
    assert ready is not None
    assert (ready.phase, ready.warmup_job) == (SetPhase.READY, WARMUP_RUNS[0])


@pytest.mark.parametrize(("phase", "partitions"), [("PartialReady", 2), ("Mount", 1)])
def test_a_set_that_is_not_complete_is_not_warmed(phase: str, partitions: int) -> None:
    todo = decide(observe(phase, 1, SYNCED, spec={"warmup": {}, "partitions": partitions}))
    assert todo.status is not None
    assert todo.status.warmup_job == ""


def test_a_recorded_warmup_is_requested() -> None:
    expected = SetPlan(
        partial(warmed("Warming"), unready("Warming")),
        actions=(record(WARMUP_RUNS[0], warmup=WARMUP),),
        requeue_after=15.0,
    )
    assert decide(warming(0)) == expected
    assert decide(warming(0, {WARMUP_RUNS[0]: RunState(phase=RunPhase.RUNNING)})) == expected


@pytest.mark.parametrize(
    ("attempt", "ended", "again"),
    [(0, 0, 30.0), (0, 29, 1.0), (1, 0, 60.0), (4, 0, 480.0), (5, 0, 600.0), (63, 599, 1.0)],
)
def test_a_failed_warmup_waits_longer_each_time(attempt: int, ended: float, again: float) -> None:
    failed = RunState(phase=RunPhase.FAILED, message="disk", ended_at=NOW - timedelta(seconds=ended))
    assert decide(warming(attempt, {WARMUP_RUNS[attempt]: failed})) == SetPlan(
        partial(warmed("RunFailed", "disk"), unready("WarmupFailed", "disk"), attempt=attempt),
        requeue_after=again,
    )


@pytest.mark.parametrize("attempt", [0, 1, 62])
def test_a_failed_warmup_is_retried(attempt: int) -> None:
    failed = RunState(phase=RunPhase.FAILED)
    todo = decide(warming(attempt, {WARMUP_RUNS[attempt]: failed}))
    assert todo == SetPlan(begun(attempt=attempt + 1), requeue_after=0.0)


def test_a_warmup_that_fails_for_hours_never_has_the_id_of_an_earlier_attempt() -> None:
    failed = RunState(phase=RunPhase.FAILED)
    todo = decide(warming(63, {WARMUP_RUNS[63]: failed}))
    anew = replace(begun(), warmup_job=series(1), warmup_series=1)
    assert todo == SetPlan(anew, requeue_after=0.0)
    runs = {series(1): failed, WARMUP_RUNS[63]: failed}
    again = observe("PartialReady", 1, SYNCED, runs=runs, **WARM)
    todo = decide(replace(again, sample_set=replace(again.sample_set, status=anew)))
    status = todo.status
    assert status is not None
    assert todo.actions == (ForgetRun(RunKey(OWNER_UID, WARMUP_RUNS[63])),)
    assert status.warmup_job not in (*WARMUP_RUNS, series(1), series(2))
    assert status.warmup_series == 1


def test_the_attempt_before_is_forgotten_once_its_retry_is_recorded() -> None:
    failed = RunState(phase=RunPhase.FAILED)
    expected = (record(WARMUP_RUNS[1], warmup=WARMUP), ForgetRun(RunKey(OWNER_UID, WARMUP_RUNS[0])))
    assert decide(warming(1, {WARMUP_RUNS[0]: failed})).actions == expected


def test_a_set_that_is_warm_is_ready() -> None:
    done = {WARMUP_RUNS[0]: RunState(phase=RunPhase.SUCCEEDED)}
    expected = SetPlan(
        status_of(
            SetPhase.READY,
            SYNCED,
            ACCEPTED,
            MOUNTED,
            warmed("Warmed", is_met=True),
            READY,
            warmup_job=WARMUP_RUNS[0],
            warmup_nodes=("node-0",),
            cache_mark=BEGUN_NOW,
            warmed_at=BEGUN_NOW.at,
            warmup_digest=ASKED,
            announcements=(fact("Synced"), fact("Warmed"), fact("Ready")),
        ),
        events=normal("Ready", "phase is Ready"),
        requeue_after=0.0,
    )
    assert decide(warming(0, done)) == expected
    # What is recorded counts, also when the bus has lost the run, or an older release has warmed the set: it
    # does not say what it was asked for.
    known = Condition("Warmed", "True", "Warmed", "", EARLIER, 2)
    later = decide(observe("PartialReady", 1, SYNCED, known, warmup_job="w0", **WARM))
    assert later.actions == ()
    assert later.status is not None
    assert (later.status.phase, later.status.warmup_job) == (SetPhase.READY, "w0")
    assert later.status.condition("Warmed") == known
    assert later.status.warmup_digest == ASKED


RECORDED: dict[str, Any] = {
    "warmup_job": WARMUP_RUNS[0],
    "warmup_nodes": ("node-0",),
    "warmup_digest": ASKED,
}


@pytest.mark.parametrize("reason", ["Warmed", "PartlyCached", "DataChanged", "CacheCleared"])
def test_a_set_is_warmed_again_when_its_warmup_is_edited(reason: str) -> None:
    before = Condition("Warmed", str(reason == "Warmed"), reason, "", EARLIER, 2)
    spec = {"warmup": {"paths": ["train", "val"]}}
    edited = observe("Ready", 1, SYNCED, before, spec=spec, **RECORDED)
    todo = decide(edited)
    assert todo.status is not None
    assert todo.status.phase is SetPhase.PARTIAL_READY
    warmed_is = todo.status.condition("Warmed")
    assert warmed_is is not None
    assert (warmed_is.reason, warmed_is.message) == ("Warming", "its options have changed")
    assert (todo.status.warmup_job != WARMUP_RUNS[0], todo.status.warmup_series) == (True, 1)
    assert todo.actions == (ForgetRun(RunKey(OWNER_UID, WARMUP_RUNS[0])),)
    # The next pass requests it, and still says why.
    asked = decide(replace(edited, sample_set=replace(edited.sample_set, status=todo.status)))
    assert [type(action) for action in asked.actions] == [WriteRun]
    assert asked.status is not None
    assert asked.status.condition("Warmed") == warmed_is


@pytest.mark.parametrize("warmup", [{}, {"threads": 7}, {"paths": ["."]}])
def test_a_set_is_not_warmed_again_for_what_is_in_its_caches_already(warmup: dict[str, Any]) -> None:
    todo = decide(observe("Ready", 1, SYNCED, WARMED, spec={"warmup": warmup}, **RECORDED))
    assert todo.status is not None
    assert (todo.status.phase, todo.status.condition("Warmed")) == (SetPhase.READY, WARMED)


@pytest.mark.parametrize("reason", ["Warming", "OptionsChanged"])
def test_a_set_whose_warmup_is_taken_out_of_its_spec_promises_none(reason: str) -> None:
    seen = observe("Ready", 1, SYNCED, condition("Warmed", False, reason), spec={"warmup": None}, **RECORDED)
    status = decide(seen).status
    assert status is not None
    assert status.condition("Warmed") is None


def test_an_edited_warmup_begins_anew_once_every_partition_is_ready_whatever_it_asks_for_then() -> None:
    recorded: dict[str, Any] = {**RECORDED, "warmup_nodes": ("node-0", "node-1")}
    pods = (make_pod(0), make_pod(1, ready=False))
    spec = {"warmup": {"paths": ["val"]}, "partitions": 2}
    status = decide(observe("Ready", 2, SYNCED, WARMED, spec=spec, pods=pods, **recorded)).status
    assert status is not None
    blocked = status.condition("Warmed")
    assert blocked is not None
    message = "the warmup begins anew as soon as every partition is ready"
    assert (blocked.status, blocked.reason, blocked.message) == ("False", "OptionsChanged", message)
    assert (status.warmup_job, status.warmup_digest) == (WARMUP_RUNS[0], ASKED)
    back = {"warmup": {}, "partitions": 2}
    todo = decide(observe("PartialReady", 2, SYNCED, blocked, spec=back, **recorded))
    assert todo.status is not None
    assert todo.status.warmup_job not in ("", WARMUP_RUNS[0])
    assert todo.status.condition("Warmed") == warmed("Warming", "its options have changed")


def test_a_warmup_that_a_job_has_cancelled_is_cancelled_in_each_pass_before_it_is_written_again() -> None:
    run = WARMUP_RUNS[0]
    todo = decide(warming(0, cancelled_runs=frozenset([run])))
    assert todo.actions == (CancelRun(RunKey(OWNER_UID, run)), record(run, warmup=WARMUP))


def test_a_set_whose_warmup_was_cancelled_is_used_cold() -> None:
    cancelled = {WARMUP_RUNS[0]: RunState(phase=RunPhase.CANCELLED)}
    assert decide(warming(0, cancelled)) == SetPlan(
        status_of(
            SetPhase.READY,
            SYNCED,
            ACCEPTED,
            MOUNTED,
            warmed("Cancelled", "the warmup was cancelled; the set is used cold"),
            replace(READY, message="the warmup was cancelled; the set is used cold"),
            warmup_job=WARMUP_RUNS[0],
            warmup_nodes=("node-0",),
            announcements=(fact("Synced"), fact("Ready")),
        ),
        events=normal("Ready", "phase is Ready"),
        requeue_after=0.0,
    )


def test_a_cancelled_warmup_does_not_run_again_when_the_bus_has_lost_its_record() -> None:
    cancelled = warmed("Cancelled", "the warmup was cancelled; the set is used cold")
    recorded: dict[str, Any] = {"warmup_job": WARMUP_RUNS[0], "warmup_nodes": ("node-0",)}
    todo = decide(observe("Ready", 1, SYNCED, cancelled, spec={"warmup": {}}, **recorded))
    assert todo.actions == ()
    assert todo.status is not None
    assert (todo.status.phase, todo.status.condition("Warmed")) == (SetPhase.READY, cancelled)

    edited = {"warmup": {"threads": 7}}
    due = decide(observe("Ready", 1, SYNCED, cancelled, spec=edited, **recorded)).status
    assert due is not None
    assert due.warmup_job not in ("", WARMUP_RUNS[0])
    warming_is = warmed("Warming", "its options have changed")
    assert due.condition("Warmed") == warming_is
    recorded |= {"warmup_job": due.warmup_job, "warmup_series": due.warmup_series}
    asked = decide(observe("Ready", 1, SYNCED, warming_is, spec=edited, **recorded))
    assert [type(action) for action in asked.actions] == [WriteRun]


def test_a_set_that_does_not_fit_its_caches_is_ready_and_not_warm() -> None:
    share = "8.0 MiB of 48 MiB (16.66 %) are in the caches"
    ended = RunState(phase=RunPhase.SUCCEEDED, reason="PartlyCached", message=share, cached_percent=16.66)
    status = decide(warming(0, {WARMUP_RUNS[0]: ended})).status
    assert status is not None
    assert status.condition("Warmed") == warmed("PartlyCached", share)
    assert (status.phase, status.condition("Ready")) == (SetPhase.READY, replace(READY, message=share))
    assert fact("Warmed") in status.announcements
    # It is not warmed again and again, also when the bus has lost the run.
    known = Condition("Warmed", "False", "PartlyCached", share, EARLIER, 2)
    later = decide(observe("Ready", 1, SYNCED, known, warmup_job=WARMUP_RUNS[0], **WARM))
    assert later.status is not None
    assert (later.actions, later.status.condition("Warmed")) == ((), known)


def sized(capacity: int, *conditions: Condition, phase: str = "Ready") -> ObservedSet:
    """A set of 20 MiB on caches of so many MiB, of which half is cached."""
    report = make_report(OWNER_UID, 0, NOW, cache_capacity=capacity << 20)
    return observe(phase, 1, SYNCED, *conditions, reports=(report,))


def test_a_set_that_is_larger_than_its_caches_says_so_before_it_is_warmed() -> None:
    status = decide(sized(5, phase="PartialReady")).status
    assert status is not None
    fits = status.condition("CacheFits")
    assert fits is not None
    assert (fits.status, fits.reason) == ("False", "CacheTooSmall")
    assert fits.message.startswith("25 % of 20 MiB fit into the caches")
    assert status.phase is SetPhase.READY


def test_a_set_that_always_fitted_has_no_condition_about_it() -> None:
    small = Condition("CacheFits", "False", "CacheTooSmall", "", EARLIER, 2)
    before = decide(sized(5, phase="Bound")).status
    fitting, grown = decide(sized(20)).status, decide(sized(20, small)).status
    assert before is not None
    assert fitting is not None
    assert grown is not None
    assert (before.condition("CacheFits"), fitting.condition("CacheFits")) == (None, None)
    assert grown.condition("CacheFits") == condition("CacheFits", True, "CacheLargeEnough")


def moved(phase: str, *conditions: Condition, **changes: Any) -> ObservedSet:
    """Warmed on node-0, now on node-0 and node-1."""
    spec = {"warmup": {}, "partitions": 2}
    job = {"warmup_job": WARMUP_RUNS[0], "warmup_nodes": ("node-0",)}
    return observe(phase, 2, SYNCED, *conditions, spec=spec, **job, **changes)


WARMED = Condition("Warmed", "True", "Warmed", "", EARLIER, 2)
ELSEWHERE_RUN = series(1, "node-0", "node-1")


@pytest.mark.parametrize("phase", ["PartialReady", "Ready"])
@pytest.mark.parametrize("reason", ["Warmed", "PartlyCached"])
def test_a_set_that_is_on_other_nodes_is_warmed_again_before_it_is_ready(phase: str, reason: str) -> None:
    todo = decide(moved(phase, replace(WARMED, reason=reason)))
    assert todo.status is not None
    assert todo.status.phase is SetPhase.PARTIAL_READY
    assert (todo.status.warmup_job, todo.status.warmup_nodes) == (ELSEWHERE_RUN, ("node-0", "node-1"))
    assert todo.actions == (ForgetRun(RunKey(OWNER_UID, WARMUP_RUNS[0])),)
    # The next pass requests it.
    own = replace(moved("PartialReady").sample_set, status=todo.status)
    again = decide(replace(moved("PartialReady"), sample_set=own))
    assert again.actions == (record(ELSEWHERE_RUN, 2, warmup=WARMUP),)
    assert again.status is not None
    assert again.status.condition("Warmed") == warmed("Warming", "partitions have moved")
    done = {ELSEWHERE_RUN: RunState(phase=RunPhase.SUCCEEDED)}
    ended = decide(replace(moved("PartialReady", runs=done), sample_set=own)).status
    assert ended is not None
    assert (ended.phase, ended.condition("Warmed")) == (SetPhase.READY, warmed("Warmed", is_met=True))


@pytest.mark.parametrize("reason", ["CacheCleared", "Cancelled"])
def test_what_is_cold_on_purpose_stays_cold_on_other_nodes(reason: str) -> None:
    cold = Condition("Warmed", "False", reason, "", EARLIER, 2)
    cancelled = {WARMUP_RUNS[0]: RunState(phase=RunPhase.CANCELLED)}
    todo = decide(moved("PartialReady", cold, runs=cancelled))
    assert todo.status is not None
    assert (todo.status.phase, todo.status.warmup_job, todo.actions) == (SetPhase.READY, WARMUP_RUNS[0], ())


def test_a_set_that_is_not_complete_is_not_taken_for_moved() -> None:
    pods = (make_pod(0), make_pod(1, ready=False))
    todo = decide(moved("Ready", WARMED, pods=pods))
    assert todo.status is not None
    assert (todo.status.warmup_job, todo.status.condition("Warmed")) == (WARMUP_RUNS[0], WARMED)


def test_a_set_whose_claim_is_not_bound_is_not_ready() -> None:
    seen = observe("Ready", 1, SYNCED)
    claim = {**(seen.children.claim or {}), "status": {"phase": "Pending"}}
    status = decide(replace(seen, children=replace(seen.children, claim=claim))).status
    assert status is not None
    message = "the claim is not bound; pods that use it cannot start"
    assert status.phase is SetPhase.PARTIAL_READY
    assert status.condition("Ready") == unready("WaitingForVolume", message)


@pytest.mark.parametrize(
    ("cached", "message"),
    [
        ((10, 0), "cold: partition 1 on node node-1; to warm: paddlewheel data warm default/digits"),
        ((0, 0), ""),
        ((10, 2), ""),
        ((4, 0), ""),
    ],
)
def test_a_set_that_does_not_warm_itself_names_cold_partitions(cached: tuple[int, int], message: str) -> None:
    reports = tuple(make_report(OWNER_UID, i, NOW, cached_bytes=mib << 20) for i, mib in enumerate(cached))
    status = decide(observe("Ready", 2, SYNCED, spec={"partitions": 2}, reports=reports)).status
    assert status is not None
    assert status.condition("Ready") == replace(READY, message=message)


# --- scaling


def resized(replicas: int) -> Patch:
    return Patch("StatefulSet", RUNTIME, {"spec": {"replicas": replicas}})


def scaling(step: str, seconds: float = 0) -> Condition:
    return condition("Scaling", True, "Scaling", step, ago(seconds))


def ready_status(*conditions: Condition, **fields: Any) -> SetStatus:
    return status_of(SetPhase.READY, *conditions, announcements=(fact("Synced"),), **fields)


def test_partitions_are_added_at_once() -> None:
    todo = decide(observe("PartialReady", 1, SYNCED, spec={"partitions": 3}))
    assert todo == SetPlan(
        status_of(
            SetPhase.PARTIAL_READY,
            SYNCED,
            ACCEPTED,
            scaling("from 1 to 3 partitions"),
            MOUNTED,
            unready("PartitionsNotReady", "1 of 3 partitions are ready"),
            partitions=3,
            cache={
                **FIGURES,
                "errorMassage": "partition 1 reports no figures; partition 2 reports no figures",
                # Of a share that is a third of the set now.
                "nodes": [node_figures(0, 100)],
            },
            announcements=(fact("Synced"),),
        ),
        actions=(resized(3),),
    )


@pytest.mark.parametrize(
    ("since", "phase", "again"),
    [(0, None, 60.0), (59, RunPhase.RUNNING, 1.0), (59, RunPhase.SUCCEEDED, None), (60, None, None)],
)
def test_partitions_that_leave_empty_their_caches_first(
    since: float, phase: RunPhase | None, again: float | None
) -> None:
    run = run_id(OWNER_UID, "scale", "3", "1")
    step = scaling("from 3 to 1 partitions", since)
    runs = {run: RunState(phase=phase)} if phase else {}
    todo = decide(observe("PartialReady", 3, SYNCED, step, runs=runs))
    labels = tuple(
        Patch(
            "Node",
            Key("", f"node-{i}"),
            {"metadata": {"labels": dict.fromkeys((LABEL, set_label("digits")))}},
        )
        for i in (1, 2)
    )
    clear = record(run, 3, clear=ClearOperation(partitions=[1, 2]))
    actions = (clear,) if again else (resized(1), ForgetRun(RunKey(OWNER_UID, run)))
    assert todo == SetPlan(
        status_of(
            SetPhase.PARTIAL_READY,
            SYNCED,
            step,
            ACCEPTED,
            MOUNTED,
            unready("PartitionsNotReady", "1 of 1 partitions are ready"),
            # Until they are gone, they are counted.
            cache={
                **FIGURES,
                "cachedSize": "30 MiB",
                "cachedPercent": 100,
                "diskSize": "2.9 GiB",
                "diskUsed": "369 MiB",
                "diskAvail": "2.6 GiB",
                "nodes": [node_figures(i, 100) for i in range(3)],
            },
            announcements=(fact("Synced"),),
        ),
        actions=(*actions, *labels),
        requeue_after=again,
    )


def test_a_scaled_set_says_so() -> None:
    step = scaling("from 3 to 1 partitions")
    todo = decide(observe("Ready", 1, SYNCED, step))
    scaled = condition("Scaling", False, "Scaled", "1 partitions")
    assert todo == SetPlan(ready_status(SYNCED, scaled, ACCEPTED, MOUNTED, READY))


def test_partitions_that_are_not_ready_leave_at_once() -> None:
    todo = decide(observe("PartialReady", 1, SYNCED, replicas=2))
    assert todo.actions == (resized(1),)


def test_a_set_is_not_made_smaller_while_leaving_nodes_have_writes_that_are_not_uploaded() -> None:
    reports = (
        make_report(OWNER_UID, 0, NOW, staged_bytes=1),
        make_report(OWNER_UID, 1, NOW, staged_bytes=2 << 20),
    )
    todo = decide(observe("PartialReady", 2, SYNCED, reports=reports))
    assert todo.status is not None
    scaling_is = todo.status.condition("Scaling")
    assert scaling_is is not None
    assert (scaling_is.status, scaling_is.reason) == ("False", "StagedWrites")
    assert scaling_is.message.startswith(
        "from 2 to 1 partitions: waits until what pods have written is uploaded"
    )
    assert "2.0 MiB on node node-1;" in scaling_is.message
    assert todo.requeue_after == 5.0
    # The command for many nodes takes their names from the figures.
    assert [row["node"] for row in todo.status.cache["nodes"]] == ["node-0", "node-1"]
    assert not [action for action in todo.actions if isinstance(action, WriteRun)]
    assert resized(1) not in todo.actions
    # Also when the leaving one is not ready: its node still has them.
    lost = (make_pod(0), make_pod(1, ready=False))
    assert resized(1) not in decide(observe("Ready", 2, SYNCED, reports=reports, pods=lost)).actions
    stays = (reports[0], make_report(OWNER_UID, 1, NOW))
    assert resized(1) in decide(observe("Ready", 2, SYNCED, reports=stays, pods=lost)).actions


def test_until_reports_are_known_a_set_grows_but_does_not_shrink() -> None:
    unknown: dict[str, Any] = {"are_records_known": False, "reports": ()}
    for ready in (1, 2):
        todo = decide(observe("PartialReady", ready, SYNCED, replicas=2, **unknown))
        assert todo.status is not None
        assert resized(1) not in todo.actions
        assert not [action for action in todo.actions if isinstance(action, WriteRun)]
        scaling_is = todo.status.condition("Scaling")
        assert scaling_is is not None
        assert (scaling_is.status, scaling_is.reason) == ("False", "StagedWrites")
        assert scaling_is.message.startswith("from 2 to 1 partitions: waits for the bus:")
    grown = decide(observe("PartialReady", 1, SYNCED, spec={"partitions": 3}, **unknown))
    assert resized(3) in grown.actions


def test_until_reports_are_known_what_was_left_on_nodes_is_not_taken_for_uploaded() -> None:
    staged = condition("StagedWrites", True, "StagedWrites", "no store has it")
    seen = observe("Ready", 1, SYNCED, staged, are_records_known=False, reports=())
    assert left_writes(seen) == staged


LEFT = StagedElsewhere(node="gone", staged_bytes=5 << 20)
"""What partition 0 has left behind."""


def left_writes(seen: ObservedSet) -> Condition | None:
    status = decide(seen).status
    assert status is not None
    return status.condition("StagedWrites")


def test_writes_on_a_node_that_a_partition_has_left_are_named_until_they_are_uploaded() -> None:
    reports = (make_report(OWNER_UID, 0, NOW, staged_elsewhere=[LEFT]),)
    staged = left_writes(observe("Ready", 1, SYNCED, reports=reports))
    assert staged == condition(
        "StagedWrites",
        True,
        "StagedWrites",
        "no store has what pods have written: 5.0 MiB on node gone, where no runtime pod is any more; let one"
        " run there again, which uploads it; once the set is deleted or made smaller, to lose it: kubectl -n"
        " default annotate --overwrite sampleset digits paddlepaddle.org/discard-staged-writes=gone",
    )
    over = condition("StagedWrites", False, "NothingStaged")
    assert left_writes(observe("Ready", 1, SYNCED, staged)) == over
    assert left_writes(observe("Ready", 1, SYNCED)) is None

    # Another partition is there now, and says itself what is left.
    others = (*reports, make_report(OWNER_UID, 1, NOW, node="gone"))
    pods = (make_pod(0), replace(make_pod(1), node="gone"))
    assert left_writes(observe("Ready", 2, SYNCED, spec={"partitions": 2}, reports=others, pods=pods)) is None


@pytest.mark.parametrize("pods", [(make_pod(0),), (make_pod(0), make_pod(1, ready=False))])
def test_an_old_report_of_a_partition_without_a_ready_pod_hides_no_writes_on_its_node(
    pods: tuple[RuntimePod, ...],
) -> None:
    left = StagedElsewhere(node="node-1", staged_bytes=5 << 20)
    reports = (make_report(OWNER_UID, 0, NOW, staged_elsewhere=[left]), make_report(OWNER_UID, 1, NOW))
    staged = left_writes(observe("Ready", 1, SYNCED, reports=reports, pods=pods))
    assert staged is not None
    assert "5.0 MiB on node node-1," in staged.message
    both = observe("Ready", 2, SYNCED, spec={"partitions": 2}, reports=reports)
    assert left_writes(both) is None


@pytest.mark.parametrize(
    ("size", "amount"), [(0, "an amount that nobody has measured"), (5 << 20, "at least 5.0 MiB")]
)
def test_writes_that_nobody_has_measured_are_left_where_pods_write_to_the_cache_first(
    size: int, amount: str
) -> None:
    left = StagedElsewhere(node="gone", staged_bytes=size, staged_unknown=True)
    reports = (make_report(OWNER_UID, 0, NOW, staged_elsewhere=[left]),)
    staged = left_writes(observe("Ready", 1, SYNCED, reports=reports, spec=WRITEBACK))
    assert staged is not None
    assert f" {amount} on node gone," in staged.message
    home = {"metadata": {"name": "gone", "labels": {HOME: "0"}}}
    seen = observe("Ready", 1, SYNCED, reports=reports, spec=WRITEBACK)
    assert home_changes(replace(seen, nodes=(*seen.nodes, home))) == []


def test_writes_are_left_as_soon_as_the_pod_is_on_another_node() -> None:
    reports = (make_report(OWNER_UID, 0, NOW, node="gone", staged_bytes=5 << 20),)
    staged = left_writes(observe("Ready", 1, SYNCED, reports=reports))
    assert staged is not None
    assert "5.0 MiB on node gone," in staged.message
    here = (make_report(OWNER_UID, 0, NOW, staged_bytes=5 << 20),)
    assert left_writes(observe("Ready", 1, SYNCED, reports=here)) is None


@pytest.mark.parametrize("wanted", [1, 2], ids=["scaled away", "on another node"])
def test_a_node_whose_agent_ended_without_a_last_word_may_have_what_pods_wrote_last(wanted: int) -> None:
    """As by the next report of the partition, which may be long in coming, or never come."""
    last = make_report(OWNER_UID, 1, NOW - timedelta(hours=1), node="gone", writeback=True)
    home = {"metadata": {"name": "gone", "labels": {HOME: "1"}}}
    spec = {"partitions": wanted, **WRITEBACK}

    def after(seen: ObservedSet, **said: Any) -> ObservedSet:
        reports = (make_report(OWNER_UID, 0, NOW, writeback=True), last.model_copy(update=said))
        return replace(seen, nodes=(*seen.nodes, home), reports=reports)

    live = observe("Ready", wanted, SYNCED, spec=spec)
    staged = left_writes(after(live))
    assert staged is not None
    assert " an amount that nobody has measured on node gone," in staged.message
    assert home_changes(after(live)) == []
    waits = after(going(0, wanted, conditions=[], spec=spec))
    assert " an amount that nobody has measured on node gone;" in message_of(waits)
    assert resized(wanted + 1) in decide(waits).actions
    # The agents of a set that is free have nothing more to say.
    assert freedom(after(going(0, wanted, spec=spec))) == condition("Free", True, "Terminating")
    # The agent has ended in order, or pods write to the store.
    for said in ({"mounted": False}, {"writeback": False}):
        assert left_writes(after(live, **said)) is None
        assert home_changes(after(live, **said)) == ["gone"]


def test_writes_of_a_partition_that_was_scaled_away_are_left_on_its_node() -> None:
    reports = (make_report(OWNER_UID, 0, NOW), make_report(OWNER_UID, 1, NOW, staged_bytes=5 << 20))
    seen = observe("Ready", 1, SYNCED, reports=reports)
    node = {"metadata": {"name": "node-1", "labels": {HOME: "1"}}}
    seen = replace(seen, nodes=(*seen.nodes, node))
    staged = left_writes(seen)
    assert staged is not None
    assert "5.0 MiB on node node-1," in staged.message
    assert home_changes(seen) == []
    assert home_changes(replace(seen, reports=reports[:1])) == ["node-1"]
    # Not while it is to be there, and comes back.
    for others in ({"spec": {"partitions": 2}}, {"replicas": 2}):
        assert left_writes(observe("Ready", 1, SYNCED, reports=reports, **others)) is None


def test_writes_that_were_left_on_a_node_keep_the_set_and_its_partitions() -> None:
    reports = (make_report(OWNER_UID, 0, NOW), make_report(OWNER_UID, 1, NOW, staged_elsewhere=[LEFT]))
    smaller = decide(observe("PartialReady", 2, SYNCED, reports=reports)).status
    assert smaller is not None
    scaling_is = smaller.condition("Scaling")
    assert scaling_is is not None
    assert "5.0 MiB on node gone;" in scaling_is.message
    meta = {"deletionTimestamp": ago(1)}
    deleted = decide(observe("Ready", 1, SYNCED, reports=reports, meta=meta)).status
    assert deleted is not None
    ready = deleted.condition("Ready")
    assert ready is not None
    assert (ready.reason, "5.0 MiB on node gone;" in ready.message) == ("StagedWrites", True)


# --- figures


@pytest.mark.parametrize(
    ("recorded", "is_due", "cache", "again"),
    [
        ({}, False, FIGURES, None),
        ({"totalFiles": "9"}, True, FIGURES, None),
        ({"totalFiles": "9"}, False, {"totalFiles": "9"}, 5.0),
        (FIGURES, False, FIGURES, None),
    ],
)
def test_figures_are_recorded_at_a_bounded_rate(
    recorded: dict[str, str], is_due: bool, cache: dict[str, str], again: float | None
) -> None:
    todo = decide(observe("Ready", 1, SYNCED, cache=recorded, figures_due=is_due))
    status = ready_status(SYNCED, ACCEPTED, MOUNTED, READY, cache=cache)
    assert todo == SetPlan(status, requeue_after=again)


def test_figures_stay_while_nobody_reports() -> None:
    old = make_report(OWNER_UID, 0, NOW - timedelta(seconds=61))
    todo = decide(observe("Ready", 1, SYNCED, cache={"totalFiles": "9"}, reports=(old,)))
    assert todo == SetPlan(ready_status(SYNCED, ACCEPTED, MOUNTED, READY, cache={"totalFiles": "9"}))


# --- refusals


def test_a_set_that_cannot_work_says_what_to_correct_and_is_checked_again() -> None:
    message = "spec.partitions: -1 is not from 1 to 1000"
    refused = condition("Accepted", False, "InvalidSpec", message)
    status = SetStatus(observed_generation=3, conditions=(refused,))
    expected = SetPlan(status, events=warning("InvalidSpec", message), requeue_after=5.0)
    seen = ObservedSet(make_set(spec={"partitions": -1}), runtime=RUNTIME)
    assert decide(seen) == expected
    known = replace(seen, sample_set=replace(seen.sample_set, status=status))
    assert decide(known) == replace(expected, events=())


@pytest.mark.parametrize(
    ("absent", "field", "name"),
    [
        ({"engine_secret": None}, "spec.secretRef", "default/digits"),
        ({"source_secret": None}, "spec.source.secretRef", "vault/s3"),
    ],
)
def test_a_new_set_waits_for_its_secrets(absent: dict[str, Any], field: str, name: str) -> None:
    message = absent_secret(field, name)
    refused = condition("Accepted", False, "SecretNotFound", message)
    source = {"uri": "s3://bucket/x", "secretRef": {"name": "s3", "namespace": "vault"}}
    assert decide(observe("", 0, children=Children(), spec={"source": source}, **absent)) == SetPlan(
        SetStatus(observed_generation=3, conditions=(refused,)),
        events=warning("SecretNotFound", message),
        requeue_after=5.0,
    )


def test_a_child_of_another_owner_stops_everything() -> None:
    stranger = make_observed("Ready", ready=1, meta={"uid": "another", "namespace": "other"}).children
    message = (
        "PersistentVolume other.digits exists and does not belong to this SampleSet;"
        " delete it or rename the set"
    )
    refused = condition("Accepted", False, "OwnedByAnother", message)
    assert decide(observe("Ready", 1, SYNCED, children=stranger)) == SetPlan(
        SetStatus(observed_generation=3, phase=SetPhase.READY, conditions=(SYNCED, refused)),
        events=warning("OwnedByAnother", message),
        requeue_after=5.0,
    )


def test_what_a_former_set_of_the_name_has_left_is_removed() -> None:
    """Its finalizer was removed by force, and the namespace of the release has no owner references."""
    left = make_observed("Ready", ready=1, meta={"uid": "former"}).children
    seen = observe("NotBound", children=replace(left, volume=None, claim=None))
    removed = [(a.kind, a.key) for a in decide(seen).actions if isinstance(a, Delete)]
    service = Key("default", "digits-runtime-service")
    assert removed == [("Secret", RUNTIME), ("Service", service), ("StatefulSet", RUNTIME)]


def mounted_by_driver(seen: ObservedSet) -> ObservedSet:
    """The same, but the volume is the driver's."""
    own, children = seen.sample_set, seen.children
    assert children.volume is not None
    volume = {
        **children.volume,
        "spec": render.volume(own.identity, spec_of(own), render.driver_secret_key(RUNTIME), CLAIM_UID)[
            "spec"
        ],
    }
    return replace(seen, children=replace(children, volume=volume))


def with_options(**options: object) -> dict[str, Any]:
    return {"csi": {"juiceFSMountOptions": options}}


@pytest.mark.parametrize(
    ("spec", "option"),
    [
        (with_options(**{"sub-dir": "date=1"}), "subdir=date=1"),
        (with_cache(("/ssd/a=b", 10)), "cache-dir=/ssd/a=b/default/uid-1"),
    ],
)
def test_what_the_driver_would_never_mount_is_refused_where_it_mounts(
    spec: dict[str, Any], option: str
) -> None:
    """It takes one `=` in an option; agents take more."""
    new = observe("", 0, spec=spec, children=Children())
    refused = decide(replace(new, has_csi=True))
    assert not [action for action in refused.actions if isinstance(action, Create)]
    assert refused.status is not None
    assert refused.status.condition("Accepted") == condition(
        "Accepted",
        False,
        "InvalidSpec",
        f"{option}: JuiceFS' CSI driver, which mounts the volume, takes no '=' in the value of an option;"
        " name it without",
    )
    assert [action.key.name for action in decide(new).actions if isinstance(action, Create)]


def test_what_a_driver_has_mounted_already_is_not_stopped() -> None:
    going_on = mounted_by_driver(observe("Ready", 1, SYNCED, spec=with_options(**{"sub-dir": "date=1"})))
    done = decide(going_on)
    assert done.status is not None
    assert done.status.phase is SetPhase.READY


@pytest.mark.parametrize("phase", ["", "Ready"])
def test_no_runtime_mounts_elsewhere_than_the_volume_that_exists(phase: str) -> None:
    """Pods would read and write a plain directory of their node."""
    children = observe("Ready", 0).children
    assert children.volume is not None
    old = "/var/lib/paddlewheel/mnt/set-uid"
    meta = {**children.volume["metadata"], "name": "default-digits"}
    volume = {"metadata": meta, "spec": {**children.volume["spec"], "hostPath": {"path": old}}}
    done = decide(observe(phase, 0, children=replace(children, volume=volume, stateful_set=None)))
    assert not [action for action in done.actions if isinstance(action, Create)]
    assert done.status is not None
    refused = done.status.condition("Accepted")
    assert refused is not None
    assert (refused.status, refused.reason) == ("False", "VolumeLayoutChanged")
    assert f"PersistentVolume default-digits is at {old}" in refused.message
    assert "kubectl -n default delete sampleset digits" in refused.message


@pytest.mark.parametrize("cache", ["/ssd/a", "/ssd/b"])
def test_a_runtime_that_mounts_where_its_volume_is_runs_on(cache: str) -> None:
    before = observe("Ready", 1, spec=with_cache(("/ssd/a", 10))).children
    seen = observe("Ready", 1, spec=with_cache((cache, 10)), children=before)
    assert seen.children.volume is not None
    volume = {**seen.children.volume, "spec": {"hostPath": {"path": "/var/lib/paddlewheel/mnt/set-uid"}}}
    old = replace(seen, children=replace(seen.children, volume=volume))
    done = plan(old, replace(CONFIG, image="runtime:2"), NOW)
    assert done.status is not None
    assert done.status.holds("Accepted")
    assert done.actions == (), "with the new template it would mount elsewhere"


WITHDRAWN: dict[str, dict[str, Any]] = {
    "SourceNotAllowed": {"source": {"uri": "file:///srv/datasets/digits"}},
    "CachePathNotAllowed": {"cache": {"levels": [{"path": "/srv/caches"}]}},
}
"""What the operator has lent before, and lends no more."""


@pytest.mark.parametrize("reason", WITHDRAWN)
def test_a_set_whose_directory_is_no_longer_lent_is_reported_as_it_is(reason: str) -> None:
    well = decide(observe("Ready", 1, SYNCED, spec=WITHDRAWN[reason]))
    dead = decide(observe("Ready", 0, SYNCED, spec=WITHDRAWN[reason]))
    assert well.status is not None
    assert dead.status is not None
    for status in (well.status, dead.status):
        refused = status.condition("Accepted")
        assert refused is not None
        assert (refused.status, refused.reason) == ("False", reason)
    assert (well.status.phase, well.status.holds("Ready")) == (SetPhase.READY, True)
    assert dead.status.phase is not SetPhase.READY
    assert not dead.status.holds("Ready")


@pytest.mark.parametrize("reason", WITHDRAWN)
@pytest.mark.parametrize("phase", ["", "Ready"])
def test_nothing_is_created_for_a_set_whose_directory_is_no_longer_lent(phase: str, reason: str) -> None:
    seen = observe(phase, 1, spec={"partitions": 3, "warmup": {}, **WITHDRAWN[reason]})
    seen = replace(seen, children=replace(seen.children, stateful_set=None, secret=None))
    done = decide(seen)
    assert not [action for action in done.actions if not isinstance(action, Patch)]
    assert all(action.kind == "Node" for action in done.actions)


UNSHARED = Problem(Reason.SECRET_NOT_SHARED, "shared no more", takes_back=True)


@pytest.mark.parametrize("phase", ["", "Ready"])
@pytest.mark.parametrize("spec", [{}, *WITHDRAWN.values()])
@pytest.mark.parametrize("is_refused", [False, True])
def test_keys_that_are_shared_no_more_are_taken_back_whatever_else_is_wrong(
    phase: str, spec: dict[str, Any], is_refused: bool
) -> None:
    seen = observe(phase, 1, engine_secret=UNSHARED, spec=spec)
    if is_refused:
        seen = replace(seen, children=replace(seen.children, volume={"metadata": {"name": "default.digits"}}))
    [taken] = [action for action in decide(seen).actions if action.kind == "Secret"]
    assert isinstance(taken, Patch)
    assert set(taken.patch["data"]) == {name for name in VALUES if name.startswith("engine.")}


def test_keys_are_not_taken_from_a_secret_of_another_owner() -> None:
    seen = observe("", 1, engine_secret=UNSHARED)
    foreign = {**(seen.children.secret or {}), "metadata": {"name": "digits-runtime", "namespace": "default"}}
    assert decide(replace(seen, children=replace(seen.children, secret=foreign))).actions == ()


def test_a_secret_that_becomes_invalid_later_stops_nothing() -> None:
    message = absent_secret("spec.secretRef", "default/digits")
    refused = condition("Accepted", False, "SecretNotFound", message)
    assert decide(observe("Ready", 1, SYNCED, engine_secret=None)) == SetPlan(
        ready_status(SYNCED, refused, MOUNTED, READY),
        events=warning("SecretNotFound", message),
        requeue_after=5.0,
    )


def test_what_cannot_be_read_is_read_again() -> None:
    unread = Trouble("read", "Node", Key("", "n"), "ServerError", "no")
    todo = decide(observe("Ready", 1, SYNCED, troubles=(unread,)))
    assert todo == SetPlan(ready_status(SYNCED, ACCEPTED, MOUNTED, READY), requeue_after=5.0)


def test_the_finalizer_is_added_beside_those_of_others() -> None:
    todo = decide(observe("Ready", 1, SYNCED, meta={"finalizers": ["other"]}))
    assert todo.metadata == {"finalizers": ["other", "paddlepaddle.org/sampleset-digits"]}


# --- the runtime's Secret


def secret_actions(seen: ObservedSet) -> tuple[object, ...]:
    return decide_secrets(seen, read_secrets(seen, spec_of(seen.sample_set)))


def test_the_secret_contains_the_keys_of_jobs() -> None:
    jobs = (RunKeys("r1", Credentials("A", "S")), RunKeys("r2", Credentials()))
    plain = {name: value for name, value in ENGINE.items() if name != "access-key"}
    seen = make_observed(
        engine_secret=make_secret(values=plain),
        children=Children(),
        job_keys=jobs,
    )
    values = {
        **VALUES,
        "engine.access-key": "",
        "job-r1.access-key": "A",
        "job-r1.secret-key": "S",
    }
    assert secret_actions(seen) == (
        Create("Secret", render.secret(seen.sample_set.identity, RUNTIME, values)),
    )


JOB_ENTRIES = {"job-r1.access-key": "QQ==", "job-r1.secret-key": "Uw=="}


def with_job_entries(seen: ObservedSet) -> ObservedSet:
    """The runtime's Secret is up to date, and has the keys of job run r1 as well."""
    secret = render.secret(seen.sample_set.identity, RUNTIME, VALUES)
    secret["data"] = {**secret["data"], **JOB_ENTRIES}
    return replace(seen, children=replace(seen.children, secret=secret))


def test_keys_of_a_job_stay_while_its_secret_cannot_be_read_and_go_when_they_are_taken_back() -> None:
    seen = with_job_entries(make_observed())
    assert secret_actions(replace(seen, job_keys=(RunKeys("r1", None),))) == ()
    gone = dict.fromkeys(JOB_ENTRIES)
    for job_keys in ((), (RunKeys("r1", Credentials()),), (RunKeys("r10", None),)):
        [patch] = secret_actions(replace(seen, job_keys=job_keys))
        assert isinstance(patch, Patch)
        assert {name for name, value in patch.patch["data"].items() if value is None} == set(gone), job_keys


def test_keys_of_a_job_are_taken_back_also_while_the_sets_own_secrets_are_invalid() -> None:
    seen = with_job_entries(make_observed())
    taken = Patch("Secret", RUNTIME, {"data": dict.fromkeys(JOB_ENTRIES)})
    assert decide_secrets(replace(seen, job_keys=(RunKeys("r1", Credentials()),)), None) == (taken,)
    assert decide_secrets(replace(seen, job_keys=(RunKeys("r1", None),)), None) == ()


def test_a_secret_that_has_changed_is_replaced_entry_by_entry() -> None:
    old = {
        **render.secret(make_set().identity, RUNTIME, {}),
        "data": {"engine.name": "b2xk", "job-r0.access-key": ""},
    }
    seen = make_observed(children=Children(secret=old))
    entries = {**render.encode(VALUES), "job-r0.access-key": None}
    assert secret_actions(seen) == (Patch("Secret", RUNTIME, {"data": entries}),)
    bare = {name: value for name, value in old.items() if name != "data"}
    seen = make_observed(children=Children(secret=bare))
    assert secret_actions(seen) == (Patch("Secret", RUNTIME, {"data": render.encode(VALUES)}),)


def test_kubelets_are_notified_of_keys_that_a_job_waits_for() -> None:
    secret = render.secret(make_set().identity, RUNTIME, VALUES)
    secret["metadata"]["resourceVersion"] = "8"
    pods = (
        make_pod(0),
        replace(make_pod(1), secret_version="8"),
        replace(make_pod(2), ends_at=NOW),
        replace(make_pod(3), secret_version="7"),
    )
    seen = make_observed(pods=pods, children=Children(secret=secret))
    annotation = {"metadata": {"annotations": {"paddlepaddle.org/runtime-secret-version": "8"}}}
    assert secret_actions(seen) == ()
    assert secret_actions(replace(seen, job_keys=(RunKeys("r1", Credentials()),))) == (
        Patch("Pod", Key("default", "digits-runtime-0"), annotation),
        Patch("Pod", Key("default", "digits-runtime-3"), annotation),
    )


def test_a_secret_is_left_alone_while_a_part_of_it_cannot_be_read() -> None:
    seen = make_observed()
    assert decide_secrets(seen, None) == ()


# --- deletion


def going(seconds: float, ready: int = 0, **changes: Any) -> ObservedSet:
    """A set that was deleted a day ago, and that nothing has kept for so many seconds."""
    meta: dict[str, Any] = {
        "deletionTimestamp": ago(86_400),
        "finalizers": ["other", "paddlepaddle.org/sampleset-digits"],
        **changes.pop("meta", {}),
    }
    free = {**raw_condition("Free", "True", "Terminating", seconds), "observedGeneration": 3}
    status = {"conditions": changes.pop("conditions", [free])}
    seen = make_observed("Ready", ready=ready, meta=meta, status=status, **changes)
    if "children" in changes:
        return seen
    secret = render.secret(seen.sample_set.identity, RUNTIME, VALUES)
    return replace(seen, children=replace(seen.children, secret=secret))


def last_status(reason: str, message: str = "", **fields: Any) -> SetStatus:
    return SetStatus(
        observed_generation=3, phase=SetPhase.READY, conditions=(unready(reason, message),), **fields
    )


def terminating(*actions: object) -> SetPlan:
    return SetPlan(last_status("Terminating"), actions, requeue_after=5.0)


def removal(seen: ObservedSet) -> SetPlan:
    """The plan, without the condition by which it knows how long the set has been free."""
    todo = decide(seen)
    if todo.status is None:
        return todo
    others = tuple(c for c in todo.status.conditions if c.type != "Free")
    return replace(todo, status=replace(todo.status, conditions=others))


def freedom(seen: ObservedSet) -> Condition | None:
    status = decide(seen).status
    return status.condition("Free") if status else None


DELETE_RUN = run_id(OWNER_UID, "delete")
CLEARED = {DELETE_RUN: RunState(phase=RunPhase.SUCCEEDED)}
SERVICE = Delete("Service", Key("default", "digits-runtime-service"), "c-service")
VOLUME = Delete("PersistentVolume", Key("", "default.digits"), "c-volume")
REST = (
    Delete("Secret", RUNTIME, "c-secret"),
    Delete("PersistentVolumeClaim", Key("default", "digits"), "c-claim"),
    SERVICE,
)
RUNTIME_GONE = Delete("StatefulSet", RUNTIME, "c-stateful_set")


def children_with_uids(*left: str, **metadata: Any) -> Children:
    """The named ones of a set's children."""
    full = make_observed("Ready", ready=1).children
    found = {name: getattr(full, name) for name in left}
    return Children(
        **{n: {**c, "metadata": {**c["metadata"], "uid": f"c-{n}", **metadata}} for n, c in found.items()}
    )


ALL = ("volume", "claim", "secret", "service", "stateful_set")


@pytest.mark.parametrize(
    ("users", "names"),
    [
        (("a",), "a"),
        (("a", "b", "c"), "a, b, c"),
        (("a", "b", "c", "d"), "a, b, c and 1 more"),
    ],
)
def test_a_deleted_set_waits_for_its_users(users: tuple[str, ...], names: str) -> None:
    message = f"waits for pods that use the data: {names}"
    seen = going(1, 1, users=users, conditions=[])
    todo = removal(seen)
    assert (todo.actions, todo.requeue_after) == ((), 5.0)
    assert todo.status is not None
    assert todo.status.condition("Ready") == unready("InUse", message)
    assert freedom(seen) == condition("Free", False, "InUse")


@pytest.mark.parametrize("kept", ["InUse", "StagedWrites"])
def test_a_deleted_set_that_waits_gets_new_keys(kept: str) -> None:
    """Without them its clients upload nothing, and it waits for ever."""
    seen = going(1, 1, conditions=[], **({"users": ("a",)} if kept == "InUse" else {"reports": STAGED}))
    assert removal(seen).actions == ()
    new = replace(seen, engine_secret=make_secret(values={**ENGINE, "access-key": "NEW"}))
    [update] = removal(new).actions
    assert (update.kind, update.key) == ("Secret", RUNTIME)
    wanted = VALUES | {"engine.access-key": "NEW"}
    assert update.patch["data"] == render.encode(wanted)
    refused = replace(new, engine_secret=None)
    assert removal(refused).actions == (), "what it has is left as it is"


ENDED: dict[str, Any] = {"mounted": False, "ailment": "MountLost", "ailment_message": "juicefs mount ended"}
LOST_MOUNT = {
    "partition": 0,
    "node": "node-0",
    "since": AT,
    "reason": "MountLost",
    "message": "juicefs mount ended",
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"users": ("a",)}, "InUse"),
        ({"reports": (make_report(OWNER_UID, 0, NOW, staged_bytes=1, **ENDED),)}, "StagedWrites"),
    ],
)
def test_a_set_that_is_kept_from_going_is_observed_all_the_same(changes: dict[str, Any], reason: str) -> None:
    changes = {"reports": (make_report(OWNER_UID, 0, NOW, **ENDED),), "conditions": []} | changes
    todo = removal(going(1, 1, **changes))
    assert todo.status is not None
    ready = todo.status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", reason)
    assert todo.status.runtime["lostMounts"] == [LOST_MOUNT]
    assert todo.status.condition("Healthy") == condition(
        "Healthy", False, "MountLost", "partition 0 on node node-0: juicefs mount ended"
    )
    assert (todo.status.phase, todo.status.announcements[-1]) == (SetPhase.PARTIAL_READY, fact("Degraded"))
    assert [(a.kind, a.key.name) for a in todo.actions] == [("Node", "node-0")], "it loses its label"


def test_a_set_that_is_refused_is_observed_all_the_same() -> None:
    lost = (make_report(OWNER_UID, 0, NOW, **ENDED),)
    seen = observe("Ready", 1, SYNCED, reports=lost)
    own = replace(seen.sample_set, spec=None, problem=Problem(Reason.INVALID_SPEC, "no"))
    own = replace(own, status=replace(own.status, runtime={"specReplicas": 1}))
    status = decide(replace(seen, sample_set=own)).status
    assert status is not None
    assert status.runtime["lostMounts"] == [LOST_MOUNT]
    assert status.condition("Ready") == unready(
        "PartitionsNotReady", "0 of 1 partitions are ready; partition 0: the agent reports no mount"
    )
    assert (status.phase, status.announcements[-1]) == (SetPhase.PARTIAL_READY, fact("Degraded"))


def mistyped(seen: ObservedSet, partitions: int = 1) -> ObservedSet:
    """Its spec cannot be read any more; it asked for so many partitions last."""
    own = replace(seen.sample_set, spec=None, problem=Problem(Reason.INVALID_SPEC, "no"))
    own = replace(own, status=replace(own.status, runtime={"specReplicas": partitions}))
    return replace(seen, sample_set=own)


def test_labels_follow_the_mounts_of_a_set_that_is_refused() -> None:
    """New pods would be placed where the mount is gone, and wait with FailedMount."""
    lost = observe("Ready", 1, SYNCED, reports=(make_report(OWNER_UID, 0, NOW, **ENDED),))
    unlabelled = {"metadata": {"labels": {LABEL: None, set_label("digits"): None}}}
    assert decide(mistyped(lost)).actions == (Patch("Node", Key("", "node-0"), unlabelled),)
    back = observe("Ready", 1, SYNCED, nodes=({"metadata": {"name": "node-0", "labels": {HOME: "0"}}},))
    labelled = {"metadata": {"labels": {LABEL: "0", set_label("digits"): "digits-runtime-0"}}}
    assert decide(mistyped(back)).actions == (Patch("Node", Key("", "node-0"), labelled),)
    # Nobody knows how many partitions it has.
    assert decide(mistyped(lost, 0)).actions == ()
    # The pods are somebody else's.
    other = make_observed("Ready", ready=1, meta={"uid": "another", "namespace": "other"}).children
    stranger = other.stateful_set
    of_stranger = replace(back, children=replace(back.children, stateful_set=stranger))
    assert decide(of_stranger).actions == ()
    # The other children are not what mounts.
    assert home_changes(replace(lost, children=replace(lost.children, service=other.service))) == ["node-0"]


def test_the_time_to_clean_up_begins_when_the_users_have_gone() -> None:
    in_use = raw_condition("Free", "False", "InUse", 86_000)
    seen = going(0, 1, conditions=[in_use], pods=(make_pod(0),))
    assert removal(seen) == terminating(record(DELETE_RUN, 1, clear=ClearOperation(partitions=[0])))
    assert freedom(seen) == condition("Free", True, "Terminating")


WRITEBACK = {"csi": {"driver": "juicefs", "juiceFSMountOptions": {"writeback": True}}}
STAGED = (make_report(OWNER_UID, 0, NOW - timedelta(days=1), staged_bytes=3 << 20),)


def giving_up(value: str) -> dict[str, Any]:
    """Metadata of a set whose user gives up what these nodes have."""
    return {"annotations": {"paddlepaddle.org/discard-staged-writes": value}}


GIVEN_UP = giving_up("node-0")


def test_a_deleted_set_keeps_nodes_with_writes_that_are_not_uploaded() -> None:
    status = decide(going(0, 1, conditions=[], reports=STAGED)).status
    assert status is not None
    free, ready = status.condition("Free"), status.condition("Ready")
    assert free == condition("Free", False, "StagedWrites")
    assert ready is not None
    assert "3.0 MiB on node node-0" in ready.message
    assert ready.message.endswith(
        "; to lose it: kubectl -n default annotate --overwrite sampleset digits"
        " paddlepaddle.org/discard-staged-writes=node-0"
    )
    assert removal(going(0, 1, conditions=[], reports=STAGED)).actions == ()
    given_up = decide(going(0, 1, conditions=[], reports=STAGED, meta=GIVEN_UP, pods=(make_pod(0),)))
    assert given_up.actions == (record(DELETE_RUN, 1, clear=ClearOperation(partitions=[0])),)


def test_until_reports_are_known_a_deleted_set_waits_unless_it_is_free_or_given_up() -> None:
    unknown: dict[str, Any] = {"are_records_known": False, "reports": ()}
    seen = going(0, 1, conditions=[], **unknown)
    todo = decide(seen)
    assert todo.status is not None
    assert (todo.actions, todo.release, todo.requeue_after) == ((), None, 5.0)
    assert freedom(seen) == condition("Free", False, "StagedWrites")
    ready = todo.status.condition("Ready")
    assert ready is not None
    assert ready.message.startswith(
        "waits for the bus: what agents have reported is not known yet; to lose it: kubectl -n default"
        " annotate --overwrite sampleset digits paddlepaddle.org/discard-staged-writes=node-0"
    )
    two = going(0, 2, conditions=[], meta=GIVEN_UP, **unknown)
    assert freedom(two) == condition("Free", False, "StagedWrites")
    assert "discard-staged-writes=node-0,node-1" in message_of(two)
    # Both are homes of partition 0: it has moved from one to the other.
    home = {"metadata": {"name": "old", "labels": {HOME: "0"}}}
    moved = going(0, 1, conditions=[], meta=GIVEN_UP, **unknown)
    assert "discard-staged-writes=node-0,old" in message_of(replace(moved, nodes=(*moved.nodes, home)))
    smaller = observe("Ready", 2, SYNCED, nodes_with_writes=("old",), meta=giving_up("node-1"), **unknown)
    assert message_of(smaller, "Scaling").endswith("discard-staged-writes=node-1,old")
    never_mounted = going(0, 0, conditions=[], meta=GIVEN_UP, **unknown)
    assert message_of(never_mounted) == "waits for the bus: what agents have reported is not known yet"
    clears = (record(DELETE_RUN, 1, clear=ClearOperation(partitions=[0])),)
    assert decide(going(0, 1, conditions=[], meta=GIVEN_UP, **unknown)).actions == clears
    assert decide(going(10, 1, **unknown)).actions == clears


def test_a_set_that_was_never_mounted_waits_for_no_reports() -> None:
    seen = going(0, 0, conditions=[], are_records_known=False, reports=())
    own = seen.sample_set
    never = replace(own, status=replace(own.status, phase=SetPhase.NOT_BOUND))
    assert freedom(replace(seen, sample_set=never)) == condition("Free", True, "Terminating")


def test_a_command_with_more_names_than_a_message_has_room_for_reads_them_from_the_status() -> None:
    many = tuple(
        make_report(OWNER_UID, n, NOW, node=f"ip-10-0-1-{n}.eu-central-1.compute.internal", staged_bytes=1)
        for n in range(24)
    )
    message = message_of(going(0, 24, conditions=[], reports=many))
    assert message.endswith(
        "discard-staged-writes=\"$(kubectl -n default get sampleset digits -o jsonpath='{range"
        " .status.cacheStatus.nodes[*]}{.node},{end}{range .status.nodesWithWrites[*]}{@},{end}')\""
    )


def test_writes_that_only_a_message_tells_of_are_given_up_by_any_name() -> None:
    recorded = {**raw_condition("StagedWrites", "True", "StagedWrites", 600), "message": "of node-9"}
    for meta, reason in (({}, "StagedWrites"), (giving_up("node-7"), "Terminating")):
        found = freedom(going(0, 0, conditions=[recorded], spec=WRITEBACK, reports=(), meta=meta))
        assert found is not None
        assert found.reason == reason


AWAY = StagedElsewhere(node="node-9", staged_bytes=7 << 30)
OF_TWO_NODES = (
    make_report(OWNER_UID, 0, NOW),
    make_report(OWNER_UID, 1, NOW, staged_bytes=50 << 30, staged_elsewhere=[AWAY]),
)


def being_made_smaller(value: str) -> ObservedSet:
    """From two partitions to one; the one that leaves has writes, and has left some on a dead node."""
    return observe("Ready", 2, SYNCED, reports=OF_TWO_NODES, meta=giving_up(value))


def is_size_kept(todo: SetPlan) -> bool:
    """No cache is emptied, and no pod goes."""
    return not [a for a in todo.actions if isinstance(a, WriteRun) or a.kind == "StatefulSet"]


@pytest.mark.parametrize("value", ["", "true", "node-7", "node-1 node-9"])
def test_only_names_of_nodes_that_have_writes_give_something_up(value: str) -> None:
    seen = being_made_smaller(value)
    todo = decide(seen)
    assert todo.status is not None
    assert is_size_kept(todo)
    assert message_of(seen, "Scaling") == (
        "from 2 to 1 partitions: waits until what pods have written is uploaded: 50 GiB on node node-1, 7.0"
        " GiB on node node-9; let a runtime pod run on node-9 again, which uploads it, or lose it: kubectl -n"
        " default annotate --overwrite sampleset digits paddlepaddle.org/discard-staged-writes=node-1,node-9"
    )
    staged = left_writes(seen)
    assert staged is not None
    assert (staged.status, staged.reason) == ("True", "StagedWrites")
    assert todo.status.nodes_with_writes == ("node-9",)
    deleted = going(0, 2, conditions=[], reports=OF_TWO_NODES, meta=giving_up(value))
    assert freedom(deleted) == condition("Free", False, "StagedWrites")


def test_what_one_node_has_is_given_up_and_what_others_have_is_waited_for() -> None:
    seen = being_made_smaller("node-9")
    todo = decide(seen)
    assert todo.status is not None
    assert is_size_kept(todo)
    assert message_of(seen, "Scaling") == (
        "from 2 to 1 partitions: waits until what pods have written is uploaded: 50 GiB on node node-1; to"
        " lose it: kubectl -n default annotate --overwrite sampleset digits"
        " paddlepaddle.org/discard-staged-writes=node-1,node-9"
    )
    assert left_writes(seen) == GIVEN_UP_ON_NODE_9
    assert todo.status.nodes_with_writes == ("node-9",)
    deleted = going(0, 2, conditions=[], reports=OF_TWO_NODES, meta=giving_up("node-9"))
    assert freedom(deleted) == condition("Free", False, "StagedWrites")
    assert "uploaded: 50 GiB on node node-1; to lose it:" in message_of(deleted)


GIVEN_UP_ON_NODE_9 = condition(
    "StagedWrites",
    True,
    "WritesGivenUp",
    "given up, and in no store: 7.0 GiB on node node-9, where no runtime pod is any more",
)


def test_a_set_goes_on_without_what_is_given_up_and_says_where_it_is() -> None:
    smaller = being_made_smaller("node-9, node-1")
    assert message_of(smaller, "Scaling") == "from 2 to 1 partitions"
    deleted = going(0, 2, conditions=[], reports=OF_TWO_NODES, meta=giving_up("node-1,node-9"))
    assert freedom(deleted) == condition("Free", True, "Terminating")
    for seen in (smaller, deleted):
        todo = decide(seen)
        assert todo.status is not None
        assert not is_size_kept(todo)
        assert left_writes(seen) == GIVEN_UP_ON_NODE_9
        assert todo.status.nodes_with_writes == ("node-9",)
        assert todo.metadata is None, "it counts until the set has its size, or is gone"


def test_of_the_nodes_that_a_set_has_left_those_that_are_given_up_are_told_apart() -> None:
    reports = (make_report(OWNER_UID, 0, NOW, staged_elsewhere=[LEFT, AWAY]), make_report(OWNER_UID, 1, NOW))
    staged = left_writes(observe("Ready", 2, SYNCED, reports=reports, meta=giving_up("node-9")))
    assert staged == condition(
        "StagedWrites",
        True,
        "StagedWrites",
        "no store has what pods have written: 5.0 MiB on node gone, and given up: 7.0 GiB on node node-9,"
        " where no runtime pod is any more; let one run there again, which uploads it; once the set is"
        " deleted or made smaller, to lose it: kubectl -n default annotate --overwrite sampleset digits"
        " paddlepaddle.org/discard-staged-writes=gone,node-9",
    )


@pytest.mark.parametrize("value", ["true", "node-9"])
def test_what_is_given_up_is_so_until_the_set_has_its_size(value: str) -> None:
    """A node of that name may come back, and pods write to it anew."""
    step = condition("Scaling", True, "Scaling", "from 2 to 1 partitions")
    given_up = replace(GIVEN_UP_ON_NODE_9, last_transition_time=EARLIER)
    reports = (make_report(OWNER_UID, 0, NOW, staged_elsewhere=[AWAY]),)
    seen = observe("Ready", 1, SYNCED, step, given_up, reports=reports, meta=giving_up(value))
    todo = decide(seen)
    assert todo.metadata == {"annotations": {"paddlepaddle.org/discard-staged-writes": None}}
    assert todo.status is not None
    staged = todo.status.condition("StagedWrites")
    assert staged is not None
    assert (staged.status, staged.reason) == ("True", "StagedWrites")
    assert todo.status.nodes_with_writes == ("node-9",)
    assert decide(observe("Ready", 1, SYNCED)).metadata is None


def test_what_was_given_up_and_of_which_no_agent_reports_is_named_until_one_does() -> None:
    """The bus has lost the reports. Its name in the annotation has ended with the scaling."""
    seen = observe(
        "Ready", 1, SYNCED, GIVEN_UP_ON_NODE_9, spec=WRITEBACK, reports=(), nodes_with_writes=("node-9",)
    )
    staged = left_writes(seen)
    assert staged is not None
    assert (staged.status, staged.reason) == ("True", "StagedWrites")
    assert "written: an amount that no agent has reported on node node-9, where" in staged.message


def test_a_smaller_set_loses_no_writes_of_which_nobody_reports_unless_all_nodes_are_named() -> None:
    recorded = condition("StagedWrites", True, "StagedWrites", "no store has it")
    for value, is_kept in (("node-1", True), ("old", True), ("node-1,old", False)):
        seen = observe(
            "Ready",
            2,
            SYNCED,
            recorded,
            spec=WRITEBACK,
            reports=(),
            nodes_with_writes=("old",),
            meta=giving_up(value),
        )
        scaling_is = decide(seen).status
        assert scaling_is is not None
        assert scaling_is.holds("Scaling") is not is_kept
        if is_kept:
            assert message_of(seen, "Scaling").endswith("discard-staged-writes=node-1,old")


UNMEASURED = (make_report(OWNER_UID, 0, NOW, staged_unknown=True),)


def test_a_deleted_set_keeps_nodes_whose_writes_nobody_could_measure() -> None:
    status = decide(going(0, 1, conditions=[], reports=UNMEASURED, spec=WRITEBACK)).status
    assert status is not None
    free, ready = status.condition("Free"), status.condition("Ready")
    assert free == condition("Free", False, "StagedWrites")
    assert ready is not None
    assert "uploaded: an amount that its agent cannot measure on node node-0; to lose it:" in ready.message
    given_up = going(0, 1, conditions=[], reports=UNMEASURED, spec=WRITEBACK, meta=GIVEN_UP)
    without = going(0, 1, conditions=[], reports=UNMEASURED)
    for seen in (given_up, without):
        assert decide(seen).actions == (record(DELETE_RUN, 1, clear=ClearOperation(partitions=[0])),)


@pytest.mark.parametrize("fields", [{"staged_unknown": True}, {"mounted": True}])
def test_a_set_that_was_found_free_goes_on_though_its_agents_end_without_a_good_word(
    fields: dict[str, Any],
) -> None:
    """All had nothing when the last user had gone: a disk that is slow to be emptied keeps nothing."""
    last = make_report(OWNER_UID, 0, NOW, **{"mounted": False, "writeback": True, **fields})
    for ready in (0, 1):
        status = decide(going(1, ready, spec=WRITEBACK, reports=(last,))).status
        assert status is not None
        assert status.holds("Free")


@pytest.mark.parametrize("seconds", [24, 25])
def test_a_set_is_free_by_a_report_of_what_was_measured_after_its_last_user_had_gone(seconds: int) -> None:
    report = make_report(OWNER_UID, 0, NOW, writeback=True, staged_age=10)
    seen = going(0, 1, conditions=[], spec=WRITEBACK, reports=(report,))
    seen = replace(seen, unused_since=NOW - timedelta(seconds=seconds))
    if seconds == 25:
        assert freedom(seen) == condition("Free", True, "Terminating")
        return
    assert freedom(seen) == condition("Free", False, "StagedWrites")
    assert "has not reported since the last user has gone on node node-0" in message_of(seen)
    assert removal(seen).actions == ()


def test_what_was_written_before_writeback_was_turned_off_may_still_be_on_a_node() -> None:
    for spec, is_writeback in (({}, False), (WRITEBACK, True)):
        status = decide(observe("Ready", 1, SYNCED, spec=spec)).status
        assert status is not None
        assert status.was_writeback is is_writeback
    for reports, is_kept in ((UNMEASURED, True), ((make_report(OWNER_UID, 0, NOW),), False)):
        seen = going(0, 1, conditions=[], reports=reports)
        own = replace(seen.sample_set, status=replace(seen.status, was_writeback=True))
        free = freedom(replace(seen, sample_set=own))
        assert free is not None
        assert (free.reason == "StagedWrites") is is_kept


CLEARS = (record(DELETE_RUN, 1, clear=ClearOperation(partitions=[0])),)
OLD = (make_report(OWNER_UID, 0, NOW - timedelta(seconds=61)),)
MEASURED_BEFORE = (make_report(OWNER_UID, 0, NOW - timedelta(seconds=31), staged_age=30),)


def message_of(seen: ObservedSet, type_: str = "Ready") -> str:
    status = decide(seen).status
    found = status.condition(type_) if status else None
    assert found is not None
    return found.message


@pytest.mark.parametrize(
    ("silent", "why"),
    [
        ({"reports": ()}, "no agent has reported"),
        ({"reports": OLD}, "its agent has not reported lately"),
        ({"reports": MEASURED_BEFORE}, "its agent has not reported lately"),
        ({"replayed": frozenset({0})}, "its agent has not reported lately"),
    ],
    ids=["the bus has lost it", "the bus is away", "the disk was slow", "of any age"],
)
def test_silence_of_a_partition_that_was_mounted_is_not_taken_for_nothing_to_upload(
    silent: dict[str, Any], why: str
) -> None:
    seen = going(0, 1, conditions=[], spec=WRITEBACK, **silent)
    assert freedom(seen) == condition("Free", False, "StagedWrites")
    assert f"an amount that {why} on node node-0; to lose it: kubectl" in message_of(seen)
    assert removal(seen).actions == ()
    # Somebody has deleted the runtime as well: nobody else can say whether there is something.
    assert created(decide(without_runtime(seen))) == [("StatefulSet", 1)]
    for free in (
        going(0, 1, conditions=[], spec=WRITEBACK),
        going(0, 1, conditions=[], **silent),
        going(0, 1, conditions=[], spec=WRITEBACK, meta=GIVEN_UP, pods=(make_pod(0),), **silent),
        going(10, 1, spec=WRITEBACK, **silent),
    ):
        assert decide(free).actions == CLEARS


def test_what_an_agent_has_reported_when_it_had_unmounted_and_ended_stays_true() -> None:
    """As when its namespace is deleted, where no runtime can be made any more."""
    last = (make_report(OWNER_UID, 0, NOW - timedelta(days=1), mounted=False),)
    seen = going(0, 1, conditions=[], spec=WRITEBACK, reports=last)
    pending = replace(make_pod(0, ready=False), node="")
    for pods in ((), (pending,)):
        ended = replace(seen, pods=pods, replayed=frozenset({0}))
        assert freedom(ended) == condition("Free", True, "Terminating")
    # Its next agent may have mounted, and not told, and a driver mounts by itself.
    own = seen.sample_set
    volume = render.volume(own.identity, spec_of(own), render.driver_secret_key(RUNTIME), CLAIM_UID)
    by_csi = replace(seen, pods=(), children=replace(seen.children, volume=volume))
    for kept in (seen, by_csi):
        assert freedom(kept) == condition("Free", False, "StagedWrites")


def test_figures_tell_of_a_partition_whose_node_has_left_the_cluster() -> None:
    seen = going(0, 1, conditions=[], spec=WRITEBACK, nodes=(), pods=(), reports=())
    was_mounted = replace(seen.sample_set, status=replace(seen.status, cache=FIGURES))
    assert "on node node-0; to lose it:" in message_of(replace(seen, sample_set=was_mounted))


@pytest.mark.parametrize(
    "reports", [(), (make_report(OWNER_UID, 0, NOW - timedelta(days=1), mounted=False),)]
)
def test_a_writeback_set_that_was_never_mounted_is_deleted_at_once(reports: tuple[NodeStatus, ...]) -> None:
    pods = (make_pod(0, ready=False),)
    seen = going(0, 1, conditions=[], spec=WRITEBACK, nodes=(), pods=pods, reports=reports)
    assert freedom(seen) == condition("Free", True, "Terminating")
    assert [(a.kind, a.key) for a in decide(seen).actions] == [("StatefulSet", RUNTIME)]


def test_a_partition_that_was_scaled_away_empty_keeps_nothing() -> None:
    last = make_report(OWNER_UID, 1, NOW - timedelta(days=1), writeback=True, mounted=False)
    reports = (make_report(OWNER_UID, 0, NOW), last)
    node = {"metadata": {"name": "node-1", "labels": make_labels(1)}}
    seen = going(0, 1, conditions=[], spec=WRITEBACK, reports=reports)
    assert decide(replace(seen, nodes=(*seen.nodes, node))).actions == CLEARS


def test_a_partition_that_was_scaled_away_is_waited_for_while_its_pod_is_there() -> None:
    """That of a dead node goes when somebody removes it."""
    for seconds, is_kept in ((60, False), (61, True)):
        last = make_report(OWNER_UID, 1, NOW - timedelta(seconds=seconds), writeback=True)
        reports = (make_report(OWNER_UID, 0, NOW), last)
        seen = going(0, 2, replicas=1, conditions=[], spec=WRITEBACK, reports=reports)
        free = freedom(seen)
        assert free is not None
        assert (free.reason == "StagedWrites") is is_kept


def test_a_report_from_before_the_clock_was_set_back_does_not_say_how_it_is_now() -> None:
    report = make_report(OWNER_UID, 0, NOW - timedelta(seconds=30), staged_age=30)
    assert decide(going(0, 1, conditions=[], spec=WRITEBACK, reports=(report,))).actions == CLEARS
    for seconds, is_fresh_ in ((-61, False), (-60, True), (0, True), (60, True), (61, False)):
        report = make_report(OWNER_UID, 0, NOW - timedelta(seconds=seconds))
        assert is_fresh(report, NOW) is is_fresh_


LEFT_UNSAID: list[dict[str, Any]] = [
    {"reports": ()},
    {"reports": (make_report(OWNER_UID, 1, NOW - timedelta(seconds=61)),)},
    {"replayed": frozenset({0, 1})},
]


@pytest.mark.parametrize("silent", LEFT_UNSAID)
def test_a_set_is_not_made_smaller_by_what_leaving_partitions_do_not_say(silent: dict[str, Any]) -> None:
    for spec, is_kept in ((WRITEBACK, True), ({}, False)):
        todo = decide(observe("PartialReady", 2, SYNCED, spec=spec, **silent))
        assert (not [a for a in todo.actions if isinstance(a, WriteRun)]) is is_kept
    seen = observe("PartialReady", 2, SYNCED, spec=WRITEBACK, **silent)
    assert "on node node-1; to lose it:" in message_of(seen, "Scaling")
    # It never came up: nothing can be there.
    pending = observe("PartialReady", 1, SYNCED, spec=WRITEBACK, replicas=2)
    assert resized(1) in decide(pending).actions


def test_what_is_recorded_of_writes_on_nodes_stays_until_agents_have_reported() -> None:
    """The bus came back empty, and this service was started anew."""
    staged = condition("StagedWrites", True, "StagedWrites", "no store has it")
    seen = observe("Ready", 1, SYNCED, staged, spec=WRITEBACK, reports=(), nodes_with_writes=("old",))
    home = {"metadata": {"name": "old", "labels": {HOME: "0"}}}
    seen = replace(seen, nodes=(*seen.nodes, home))
    assert left_writes(seen) == staged
    assert home_changes(seen) == []
    # An agent that was never there knows nothing of it.
    elsewhere = replace(seen, reports=(make_report(OWNER_UID, 0, NOW),))
    still = left_writes(elsewhere)
    assert still is not None
    assert "written: an amount that no agent has reported on node old, where" in still.message
    assert home_changes(elsewhere) == []
    found = decide(elsewhere).status
    assert found is not None
    assert found.nodes_with_writes == ("old",)
    another = StagedElsewhere(node="gone", staged_bytes=1)
    both = left_writes(replace(seen, reports=(make_report(OWNER_UID, 0, NOW, staged_elsewhere=[another]),)))
    assert both is not None
    assert "1 B on node gone, an amount that no agent has reported on node old," in both.message
    there = make_report(OWNER_UID, 1, NOW - timedelta(days=1), node="old", mounted=False)
    answered = replace(seen, reports=(make_report(OWNER_UID, 0, NOW), there))
    assert left_writes(answered) == condition("StagedWrites", False, "NothingStaged")
    assert home_changes(answered) == ["old"]
    after = decide(answered).status
    assert after is not None
    assert after.nodes_with_writes == ()
    # What the bus lists after a start may be older than what is recorded, and is not said twice.
    listed = decide(replace(answered, replayed=frozenset({1}))).status
    assert listed is not None
    assert listed.nodes_with_writes == ("old",)
    left = there.model_copy(update={"staged_bytes": 1})
    named = left_writes(replace(answered, replayed=frozenset({1}), reports=(answered.reports[0], left)))
    assert named is not None
    assert "written: 1 B on node old, where" in named.message
    deleted = going(0, 1, conditions=[], spec=WRITEBACK, reports=(), nodes=())
    own = replace(deleted.sample_set, status=replace(deleted.status, conditions=(staged,)))
    assert message_of(replace(deleted, sample_set=own)) == "no store has it"
    own = replace(own, status=replace(own.status, nodes_with_writes=("old",)))
    told = replace(deleted, sample_set=own, reports=(make_report(OWNER_UID, 0, NOW),))
    assert " an amount that no agent has reported on node old;" in message_of(told)


def kept_from_going(
    reports: tuple[NodeStatus, ...], recorded: tuple[str, ...], is_deleted: bool
) -> ObservedSet:
    """A writeback set that its users keep from being deleted, or whose spec is refused."""
    staged = (condition("StagedWrites", True, "StagedWrites", "no store has it"),) if recorded else ()
    if is_deleted:
        seen = going(1, 1, users=("a",), conditions=[], reports=reports)
        own = seen.sample_set
    else:
        seen = observe("Ready", 1, SYNCED, reports=reports)
        own = replace(seen.sample_set, spec=None, problem=Problem(Reason.INVALID_SPEC, "no"))
    status = replace(own.status, conditions=staged, runtime={"specReplicas": 1}, was_writeback=True)
    return replace(seen, sample_set=replace(own, status=replace(status, nodes_with_writes=recorded)))


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "refused"])
def test_nodes_with_writes_are_recorded_while_a_set_is_kept_or_refused(is_deleted: bool) -> None:
    """Its pods go on writing, and uploading: the bus may lose every report before it goes."""
    uploaded = make_report(OWNER_UID, 1, NOW, node="gone", mounted=False)
    for reports, recorded, after in (
        ((make_report(OWNER_UID, 0, NOW), uploaded), ("gone",), ()),
        ((make_report(OWNER_UID, 0, NOW, staged_elsewhere=[LEFT]),), (), ("gone",)),
        ((), ("gone",), ("gone",)),
    ):
        seen = kept_from_going(reports, recorded, is_deleted)
        status = decide(seen).status
        assert status is not None
        assert status.nodes_with_writes == after
        assert status.holds("StagedWrites") is bool(after)


def test_a_set_that_becomes_free_records_that_no_node_has_writes() -> None:
    """A user that comes in the last moment keeps it: nothing is looked for that was uploaded long ago."""
    uploaded = make_report(OWNER_UID, 1, NOW, node="gone", mounted=False)
    reports = (make_report(OWNER_UID, 0, NOW), uploaded)
    seen = replace(kept_from_going(reports, ("gone",), is_deleted=True), users=())
    status = decide(seen).status
    assert status is not None
    assert status.holds("Free")
    assert status.nodes_with_writes == ()
    assert status.condition("StagedWrites") == condition("StagedWrites", False, "NothingStaged")
    # What its agents cannot measure at their end counts as nothing.
    ending = tuple(each.model_copy(update={"staged_unknown": True}) for each in reports)
    later = replace(seen, sample_set=replace(seen.sample_set, status=status), reports=ending)
    last = decide(later).status
    assert last is not None
    assert last.nodes_with_writes == ()


def home_changes(seen: ObservedSet) -> list[str]:
    """Nodes whose labels change."""
    return [a.key.name for a in decide(seen).actions if isinstance(a, Patch) and a.kind == "Node"]


def without_runtime(seen: ObservedSet, **gone: Any) -> ObservedSet:
    return replace(seen, pods=(), children=replace(seen.children, **{"stateful_set": None, **gone}))


def created(todo: SetPlan) -> list[tuple[str, Any]]:
    made = [action for action in todo.actions if isinstance(action, Create)]
    return [
        (action.kind, action.render()["spec"].get("replicas")) for action in made if action.kind != "Secret"
    ]


def test_a_runtime_that_somebody_deleted_is_made_again_to_upload_what_is_left() -> None:
    seen = going(0, 1, conditions=[], reports=STAGED)
    assert created(decide(seen)) == []
    assert created(decide(without_runtime(seen))) == [("StatefulSet", 1)]
    both = [("Service", None), ("StatefulSet", 1)]
    assert created(decide(without_runtime(seen, service=None))) == both
    # One more for the node that a partition has left, if it is still there: it prefers the node's label.
    far = replace(seen, reports=(make_report(OWNER_UID, 2, NOW, staged_bytes=1),))
    assert created(decide(without_runtime(far))) == [("StatefulSet", 1)]
    node = {"metadata": {"name": "node-2", "labels": {HOME: "2"}}}
    assert created(decide(without_runtime(replace(far, nodes=(*far.nodes, node))))) == [("StatefulSet", 2)]
    left = replace(seen, reports=(make_report(OWNER_UID, 0, NOW, staged_elsewhere=[LEFT]),))
    assert created(decide(without_runtime(left))) == [("StatefulSet", 1)]
    gone = {"metadata": {"name": "gone", "labels": {HOME: "0"}}}
    back = replace(left, nodes=(*left.nodes, gone))
    assert created(decide(without_runtime(back))) == [("StatefulSet", 2)]
    assert resized(2) in decide(back).actions
    assert "; let a runtime pod run on gone again, which uploads it, or lose it: kubectl" in message_of(back)
    # It is there, but not mounted yet.
    there = replace(make_pod(1, ready=False), node="gone")
    assert resized(2) not in decide(replace(back, pods=(*back.pods, there))).actions
    # Nobody has what is to be uploaded, or it is not known yet.
    assert created(decide(without_runtime(replace(seen, reports=())))) == []
    assert created(decide(without_runtime(replace(seen, are_records_known=False)))) == []
    given_up = without_runtime(going(0, 1, conditions=[], reports=STAGED, meta=GIVEN_UP))
    assert created(decide(given_up)) == []


def test_a_runtime_that_somebody_scaled_down_is_scaled_up_to_upload_what_is_left() -> None:
    seen = going(0, 1, replicas=0, conditions=[], reports=STAGED)
    up = Patch("StatefulSet", Key("default", "digits-runtime"), {"spec": {"replicas": 1}})
    assert decide(seen).actions == (up,)


@pytest.mark.parametrize("why", [{"users": ("a",)}, {"reports": STAGED}])
def test_the_runtime_of_a_deleted_set_that_waits_gets_the_pods_of_any_set(why: dict[str, Any]) -> None:
    """Of a bad image that was corrected in the meantime, nothing would ever be mounted or uploaded."""
    seen = going(0, 1, conditions=[], **why)
    for config, count in ((CONFIG, 0), (replace(CONFIG, image="runtime:2"), 1)):
        patches = [a for a in plan(seen, config, NOW).actions if isinstance(a, Patch)]
        assert [patch.kind for patch in patches] == ["StatefulSet"] * count
    [patch] = patches
    [container] = patch.patch["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "runtime:2"
    # Not where the Secret is refused, or nodes have other caches.
    for other in (
        replace(seen, engine_secret=None),
        replace(seen, children=replace(seen.children, volume=elsewhere(seen))),
    ):
        assert [a for a in plan(other, config, NOW).actions if isinstance(a, Patch)] == []


def elsewhere(seen: ObservedSet) -> dict[str, Any]:
    volume = dict(seen.children.volume or {})
    return {**volume, "spec": {**volume["spec"], "hostPath": {"path": "/old"}}}


@pytest.mark.parametrize("why", [{"users": ("a",)}, {"reports": STAGED}])
def test_why_the_runtime_of_a_deleted_set_that_waits_does_not_start_is_said(why: dict[str, Any]) -> None:
    pod = replace(make_pod(0, ready=False), trouble="ImagePullBackOff: runtime:1")
    message = message_of(going(0, 1, conditions=[], pods=(pod,), **why))
    assert message.endswith("; partition 0: ImagePullBackOff: runtime:1")


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({"engine_secret": None}, "Secret default/digits does not exist"),
        ({"unserved": Problem(Reason.NAMESPACE_NOT_SERVED, "serve it")}, "serve it"),
    ],
)
def test_why_there_can_be_no_runtime_to_upload_what_is_left_is_said(
    changes: dict[str, Any], obstacle: str
) -> None:
    seen = without_runtime(going(0, 1, conditions=[], reports=STAGED, **changes))
    todo = decide(seen)
    assert created(todo) == []
    assert todo.status is not None
    ready = todo.status.condition("Ready")
    assert ready is not None
    assert "no runtime pod can upload it: " in ready.message
    assert obstacle in ready.message


def test_a_deleted_set_in_use_gets_its_runtime_back() -> None:
    seen = without_runtime(going(1, 1, users=("a",)))
    todo = decide(seen)
    assert created(todo) == [("StatefulSet", 1)]
    assert todo.status is not None
    assert todo.status.condition("Mounted") == condition("Mounted", False, "NoPartitionMounted")
    assert todo.status.phase is SetPhase.PARTIAL_READY
    assert todo.status.runtime["runtimeReady"] == "0/1"
    assert freedom(seen) == condition("Free", False, "InUse")
    # What agents have reported does not matter for that.
    assert created(decide(replace(seen, are_records_known=False, reports=()))) == [("StatefulSet", 1)]
    up = Patch("StatefulSet", RUNTIME, {"spec": {"replicas": 1}})
    assert decide(going(0, 1, replicas=0, users=("a",))).actions == (up,)
    refused = without_runtime(going(1, 1, users=("a",), engine_secret=None))
    assert "a; no runtime pod can mount it: spec.secretRef: Secret default/digits does not" in message_of(
        refused
    )
    never = replace(seen.status, phase=SetPhase.BOUND)
    assert created(decide(replace(seen, sample_set=replace(seen.sample_set, status=never)))) == []


def test_a_set_whose_runtime_has_gone_and_is_not_made_again_is_not_mounted() -> None:
    """Its caches have moved, see `CacheMoved`."""
    seen = without_runtime(observe("Ready", 1, SYNCED, MOUNTED))
    moved = replace(seen.status, cache_directories=("/elsewhere",))
    todo = decide(replace(seen, sample_set=replace(seen.sample_set, status=moved)))
    assert created(todo) == []
    assert todo.status is not None
    assert todo.status.condition("Mounted") == condition("Mounted", False, "NoPartitionMounted")


def test_nothing_is_taken_away_by_what_was_known_of_users_a_moment_ago() -> None:
    seen = going(1, 1, pods=(make_pod(0),))
    assert decide(seen).actions != ()
    assert decide(replace(seen, are_users_fresh=False)) == SetPlan(seen.status, requeue_after=5.0)


def test_a_deleted_set_waits_while_its_users_are_unknown() -> None:
    seen = going(1, users=None)
    assert decide(seen) == SetPlan(seen.status, requeue_after=5.0)


@pytest.mark.parametrize("runs", [{}, {DELETE_RUN: RunState(phase=RunPhase.RUNNING)}])
def test_a_deleted_set_cancels_its_runs_and_empties_its_caches(runs: dict[str, RunState]) -> None:
    pods = (make_pod(0, ready=False), make_pod(1), make_pod(2))
    busy = {"r2": RunState(), "r1": RunState(), "r3": RunState(phase=RunPhase.FAILED)}
    seen = going(60, 3, pods=pods, runs={**busy, **runs})
    assert removal(seen) == terminating(
        CancelRun(RunKey(OWNER_UID, "r1")),
        CancelRun(RunKey(OWNER_UID, "r2")),
        record(DELETE_RUN, 3, clear=ClearOperation(partitions=[1, 2])),
    )


UNLABEL = Patch("Node", Key("", "node-0"), {"metadata": {"labels": dict.fromkeys(make_labels(0))}})


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 1, "runs": CLEARED},
        {"seconds": 60.5},
        {"seconds": 1, "pods": (make_pod(0, ready=False),)},
    ],
    ids=["cleared", "too slow", "no agent"],
)
def test_a_set_whose_caches_are_empty_loses_its_labels_and_pods(changes: dict[str, Any]) -> None:
    seen = going(ready=1, children=children_with_uids(*ALL), **changes)
    assert removal(seen) == terminating(UNLABEL, RUNTIME_GONE)
    unlabelled = replace(seen, nodes=({"metadata": {"name": "node-0", "labels": {"zone": "a"}}},))
    assert removal(unlabelled) == terminating(RUNTIME_GONE)


def test_a_child_that_is_being_deleted_is_waited_for() -> None:
    gone = children_with_uids(*ALL, deletionTimestamp=ago(1))
    assert removal(going(1, 1, children=gone)) == terminating(UNLABEL)
    for left in (("volume", "service"), ("volume",)):
        gone = children_with_uids(*left, deletionTimestamp=ago(1))
        assert removal(going(1, children=gone)) == terminating()


def test_a_node_that_still_has_a_label_is_unlabelled_without_a_stateful_set() -> None:
    seen = going(1, 1, children=children_with_uids("volume"))
    assert removal(seen) == terminating(UNLABEL)


def test_pods_are_waited_for_but_not_forever() -> None:
    rest = children_with_uids("volume", "claim", "secret", "service")
    pods = (replace(make_pod(0), has_ended=True), make_pod(1))
    assert removal(going(119, children=rest, pods=pods)) == terminating()
    assert removal(going(119, children=rest, pods=pods[:1])) == terminating(*REST)
    assert removal(going(120, children=rest, pods=pods)) == terminating(*REST)


def test_the_volume_goes_last() -> None:
    assert removal(going(1, children=children_with_uids("volume", "service"))) == terminating(SERVICE)
    assert removal(going(1, children=children_with_uids("volume"))) == terminating(VOLUME)


@pytest.mark.parametrize(("seconds", "anyway"), [(600, False), (600.5, True)])
def test_a_set_without_children_is_released(seconds: float, anyway: bool) -> None:
    assert removal(going(seconds, children=Children())) == SetPlan(
        last_status("Terminating", announcements=(fact("Deleted"),)),
        actions=(ForgetSet(OWNER_UID),),
        release={"finalizers": ["other"]},
        release_anyway=anyway,
        requeue_after=5.0,
    )


def test_a_deleted_set_touches_no_object_of_others() -> None:
    stranger = make_observed("Ready", meta={"uid": "another"}).children
    assert removal(going(1, children=stranger)).actions == (ForgetSet(OWNER_UID),)


def test_a_deleted_set_without_our_finalizer_is_left_alone() -> None:
    meta = {"deletionTimestamp": ago(1), "finalizers": ["other"]}
    assert removal(make_observed("Ready", meta=meta)) == SetPlan()
