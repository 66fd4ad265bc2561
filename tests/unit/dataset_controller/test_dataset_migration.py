"""Runtimes in the namespace of the release, and how those of earlier releases get there."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    CONFIG,
    NOW,
    make_observed,
    make_pod,
    make_set,
    node_figures,
)
from tests.unit.dataset_controller.conftest import FAR_RUNTIME, HOME, RUNTIME, SET, DataHarness, OpenData

from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.parse import parse_set
from dataset_controller.domain.sampleset.plan import plan
from dataset_controller.watch import make_watch, sets_of_runtimes
from paddlewheel.contracts.dataset_names import runtime_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Create, Delete, Patch
from paddlewheel.testkit.samplesets import make_report, make_sample_set, make_secret

OLD_SERVICE = Key("default", "digits-runtime-service")
OLD_OBJECTS = (
    (RUNTIME, ports.STATEFUL_SETS),
    (OLD_SERVICE, ports.SERVICES),
    (RUNTIME, ports.SECRETS),
)
MOVING = {
    "type": "RuntimeMigrationPending",
    "status": "True",
    "reason": "RuntimeMoving",
    "message": "",
    "lastTransitionTime": "2026-01-01T12:00:00Z",
}


# --- sets of other namespaces


async def test_a_sets_namespace_has_its_claim_only(far: DataHarness) -> None:
    await far.ready_set(partitions=2)
    for resource in (ports.STATEFUL_SETS, ports.SERVICES, ports.PODS):
        assert await far.cluster.list(resource, "default") == []
    assert [secret["metadata"]["name"] for secret in await far.cluster.list(ports.SECRETS, "default")] == [
        "digits"
    ]
    assert await far.exists(SET, ports.PERSISTENT_VOLUME_CLAIMS)
    pods = await far.cluster.list(
        ports.PODS, HOME, label_selector="paddlepaddle.org/sampleset=default.digits"
    )
    assert [pod["metadata"]["name"] for pod in pods] == [f"{FAR_RUNTIME.name}-{i}" for i in range(2)]
    assert await far.labels() == {"node-0": "0", "node-1": "1"}


async def test_a_change_of_a_runtime_elsewhere_wakes_its_set(far: DataHarness) -> None:
    await far.ready_set()
    for key, resource in ((FAR_RUNTIME, ports.STATEFUL_SETS), (service_of(FAR_RUNTIME), ports.SERVICES)):
        await far.delete(key, resource)
        await far.drive()
        assert await far.exists(key, resource)
    far.kubernetes.unready.add(f"{FAR_RUNTIME.name}-0")
    await far.drive()
    await far.expect_phase("PartialReady")


async def test_a_deleted_set_leaves_nothing_in_the_namespace_of_the_release(far: DataHarness) -> None:
    await far.ready_set()
    await far.delete(SET)
    await far.wait(10)
    assert not await far.exists(SET)
    await expect_nothing_left(far)


@pytest.mark.parametrize("is_created_again", [False, True])
async def test_the_runtime_of_a_set_that_was_removed_by_force_is_removed(
    far: DataHarness, is_created_again: bool
) -> None:
    await far.ready_set()
    await far.patch(SET, {"metadata": {"finalizers": None}})
    await far.delete(SET)
    await far.delete(SET, ports.PERSISTENT_VOLUME_CLAIMS)
    [volume] = await far.objects(ports.PERSISTENT_VOLUMES)
    await far.delete(Key("", volume["metadata"]["name"]), ports.PERSISTENT_VOLUMES)
    if is_created_again:
        await far.create(make_sample_set())
        await far.wait(10)
        await far.expect_phase("Ready")
    else:
        await far.delete(FAR_RUNTIME, ports.STATEFUL_SETS)
        await far.wait(10)
        await expect_nothing_left(far)


async def test_a_runtime_whose_set_exists_is_no_orphan(far: DataHarness) -> None:
    await far.ready_set()
    before = await far.get(FAR_RUNTIME, ports.STATEFUL_SETS)
    await far.patch(FAR_RUNTIME, {"metadata": {"labels": {"touched": "yes"}}}, ports.STATEFUL_SETS)
    await far.drive()
    after = await far.get(FAR_RUNTIME, ports.STATEFUL_SETS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_resync_reconciles_the_sets_of_all_runtimes(far: DataHarness) -> None:
    """When a replica ends, another one gets its sets, also those that are gone. No object changes then."""
    await far.ready_set()
    watch = make_watch(far.cluster, "", HOME, far.clock)
    task = asyncio.create_task(watch.run(lambda *_: None))
    await watch.wait_synced()
    await end(task)
    assert sets_of_runtimes(watch) == {SET}


async def test_a_service_of_one_namespace_sees_the_runtimes_in_its_own(open_data: OpenData) -> None:
    async with open_data(namespace="default", pod_namespace=HOME) as data:
        await data.ready_set()
        runtime = await data.get(FAR_RUNTIME, ports.STATEFUL_SETS)
        annotations = {**runtime["metadata"]["annotations"], "paddlepaddle.org/sampleset": "another/digits"}
        other = Key(HOME, runtime_name("another", "digits", HOME))
        meta = {"name": other.name, "namespace": HOME, "annotations": annotations}
        await data.create({**runtime, "metadata": {**runtime["metadata"], **meta}}, ports.STATEFUL_SETS)
        await data.drive()
        assert await data.exists(other, ports.STATEFUL_SETS), "its set is not this service's"


def service_of(runtime: Key) -> Key:
    return Key(runtime.namespace, f"{runtime.name}-service")


async def expect_nothing_left(data: DataHarness) -> None:
    for resource in (ports.STATEFUL_SETS, ports.SERVICES, ports.SECRETS):
        assert await data.cluster.list(resource, HOME) == []


# --- the move, as a table


def old(**changes: Any) -> ObservedSet:
    """A set whose runtime an earlier release has created in the set's namespace."""
    seen = make_observed("Ready", ready=2, spec={"partitions": 2}, **changes)
    return replace(seen, runtime=FAR_RUNTIME)


def with_annotation(seen: ObservedSet) -> ObservedSet:
    obj = copy.deepcopy(dict(seen.sample_set.obj))
    obj["metadata"]["annotations"] = {"paddlepaddle.org/move-runtime": "now"}
    return replace(seen, sample_set=parse_set(obj))


def runtime_actions(seen: ObservedSet) -> list[tuple[str, str, Key]]:
    kinds = ("StatefulSet", "Service")
    return [
        (type(a).__name__, a.kind, a.key)
        for a in plan(seen, CONFIG, NOW).actions
        if isinstance(a, Create | Patch | Delete) and a.kind in kinds
    ]


def pending(seen: ObservedSet) -> tuple[str, str] | None:
    status = plan(seen, CONFIG, NOW).status
    assert status is not None
    found = status.condition("RuntimeMigrationPending")
    return None if found is None else (found.reason, found.message)


def with_old_layout(seen: ObservedSet) -> ObservedSet:
    """The volume is at the path of an early release."""
    volume = copy.deepcopy(dict(seen.children.volume or {}))
    volume["spec"]["hostPath"]["path"] = "/var/lib/paddlewheel/mnt/uid-1"
    return replace(seen, children=replace(seen.children, volume=volume))


RECORDED = {"conditions": [MOVING]}
DELETED = [("Delete", "StatefulSet", RUNTIME)]


@pytest.mark.parametrize(
    ("seen", "reason", "actions"),
    [
        (old(users=("train-0",)), "InUse", []),
        (old(users=None), "InUse", []),
        (with_annotation(old(users=("train-0",))), "RuntimeMoving", DELETED),
        (old(), "RuntimeMoving", DELETED),
        (old(status=RECORDED, users=("train-0",)), "InUse", []),
        (old(status=RECORDED, are_users_fresh=False), "RuntimeMoving", []),
        (old(engine_secret=None), "SecretNotFound", []),
        (with_old_layout(old()), "VolumeLayoutChanged", []),
        (with_old_layout(with_annotation(old())), "VolumeLayoutChanged", []),
    ],
)
def test_a_runtime_moves_when_its_data_is_not_used(
    seen: ObservedSet, reason: str, actions: list[tuple[str, str, Key]]
) -> None:
    """It never ends where no new one could be created."""
    told = pending(seen)
    assert told is not None
    assert told[0] == reason
    assert runtime_actions(seen) == actions


def test_the_message_names_the_users_and_the_command() -> None:
    told = pending(old(users=("a", "b", "c", "d", "e")))
    assert told is not None
    assert "Now pods use the data: a, b, c and 2 more." in told[1]
    assert told[1].endswith("kubectl -n default annotate sampleset digits paddlepaddle.org/move-runtime=now")


def test_the_next_runtime_waits_for_the_last_pod_of_the_old_one() -> None:
    """Two agents of one node would unmount each other's mount."""
    seen = old(status=RECORDED)
    stopped = replace(seen, children=replace(seen.children, stateful_set=None, service=None))
    assert runtime_actions(replace(stopped, pods=(make_pod(1),))) == []
    ended = replace(stopped, pods=())
    assert [(verb, kind, key.namespace) for verb, kind, key in runtime_actions(ended)] == [
        ("Create", "Service", HOME),
        ("Create", "StatefulSet", HOME),
    ]
    reason, _ = pending(ended) or ("", "")
    assert reason == "RuntimeMoving", "until one of the next pods has mounted"


def test_an_old_runtime_is_neither_scaled_nor_given_another_template() -> None:
    """dataset-controller may only delete in the namespaces of users."""
    seen = old(users=("a",))
    grown = make_observed("Ready", ready=2, spec={"partitions": 3}, users=("a",))
    assert runtime_actions(replace(grown, runtime=FAR_RUNTIME)) == []
    changed = plan(seen, replace(CONFIG, image="runtime:2"), NOW).actions
    assert not [a for a in changed if isinstance(a, Patch) and a.kind == "StatefulSet"]


def test_a_secret_outside_the_namespace_of_the_release_gets_no_keys() -> None:
    """Users of the namespace can read it, and may have created it."""
    seen = old(users=("a",))
    secret = render.secret(seen.sample_set.identity, RUNTIME, {"engine.name": "old"})
    todo = plan(replace(seen, children=replace(seen.children, secret=secret)), CONFIG, NOW)
    assert not [a for a in todo.actions if getattr(a, "kind", "") == "Secret"]


@pytest.mark.parametrize(("namespace", "is_updated"), [("default", True), ("vault", False)])
def test_the_secret_of_a_volume_outside_gets_keys_of_its_own_namespace_only(
    namespace: str, is_updated: bool
) -> None:
    """A volume of the CSI driver of an earlier release names a Secret in the namespace of the set."""
    spec = {"partitions": 1, "secretRef": {"name": "engine", "namespace": namespace}}
    shared = make_secret("engine", namespace=namespace)
    shared["metadata"]["annotations"] = {"batch.paddlepaddle.org/shared-with": "default"}
    seen = replace(
        make_observed("Ready", ready=1, spec=spec), runtime=FAR_RUNTIME, engine_secret=shared, has_csi=True
    )
    own, key = seen.sample_set, Key("default", "digits-runtime-volume")
    assert own.spec is not None
    volume = render.volume(own.identity, own.spec, key, "claim-uid")
    secret = render.volume_secret(own.identity, key, {"name": "old"})
    secret["metadata"]["uid"] = "secret-uid"
    children = replace(seen.children, volume=volume, volume_secret=secret, stateful_set=None)
    todo = plan(replace(seen, children=children, pods=()), CONFIG, NOW)
    patches = [a for a in todo.actions if isinstance(a, Patch) and a.key == key]
    assert [patch.uid for patch in patches] == (["secret-uid"] if is_updated else [])


def test_partitions_that_have_still_to_upload_are_created_again() -> None:
    """A set was made smaller, and waits for the writes of the partition that leaves, while it moves."""
    spec = {"partitions": 1, "csi": {"juiceFSMountOptions": {"writeback": True}}}
    status = {"cacheStatus": {"nodes": [node_figures(0, 100), node_figures(1, 100)]}}
    reports = [make_report("uid-1", i, NOW, writeback=True, staged_bytes=2**30) for i in range(2)]
    moved = replace(
        old(), sample_set=make_set("Ready", spec=spec, status=status), reports=tuple(reports), pods=()
    )
    moved = replace(moved, children=replace(moved.children, stateful_set=None))
    [made] = [
        a for a in plan(moved, CONFIG, NOW).actions if isinstance(a, Create) and a.kind == "StatefulSet"
    ]
    assert made.render()["spec"]["replicas"] == 2


def test_a_request_to_move_is_removed_after_the_move() -> None:
    seen = make_observed("Ready", ready=1)
    assert plan(with_annotation(seen), CONFIG, NOW).metadata == {
        "annotations": {"paddlepaddle.org/move-runtime": None}
    }
    assert plan(with_annotation(replace(seen, runtime=FAR_RUNTIME)), CONFIG, NOW).metadata is None


# --- the move, in a cluster


@asynccontextmanager
async def upgraded(*, is_used: bool = False, **spec: Any) -> AsyncIterator[DataHarness]:
    """The new release, with a Ready set that an earlier one has left in its old place."""
    async with DataHarness().opened() as earlier:
        uid = await earlier.ready_set(partitions=2, **spec)
        await earlier.runtime.report(uid, 2)
    fakes = earlier.fakes
    own = await earlier.get(SET)
    [owner] = (await earlier.get(SET, ports.PERSISTENT_VOLUME_CLAIMS))["metadata"]["ownerReferences"]
    assert owner["uid"] == own["metadata"]["uid"]
    unmarked = {"paddlepaddle.org/sampleset": None, "paddlepaddle.org/sampleset-uid": None}
    for key, resource in OLD_OBJECTS:
        meta = {"ownerReferences": [owner], "annotations": unmarked}
        await fakes.cluster.patch(resource, key, {"metadata": meta})
    if is_used:
        await fakes.cluster.create(ports.PODS, user())
    async with DataHarness(fakes, pod_namespace=HOME).opened() as data:
        yield data


USER = Key("default", "train-0")


def user() -> Object:
    """A pod that uses the claim."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "digits"}}
    return {
        "metadata": {"name": USER.name, "namespace": USER.namespace},
        "spec": {"nodeName": "node-0", "volumes": [volume]},
        "status": {"phase": "Running"},
    }


async def expect_moved(data: DataHarness, uids: set[str]) -> None:
    """Volume and claim are the same, and nothing of the runtime is in the set's namespace."""
    assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)
    for key, resource in OLD_OBJECTS:
        assert not await data.exists(key, resource)
    assert (
        uids_of(await data.objects(ports.PERSISTENT_VOLUMES))
        | uids_of(await data.objects(ports.PERSISTENT_VOLUME_CLAIMS))
        == uids
    )
    await data.expect_phase("Ready")
    conditions = (await data.status(SET))["conditions"]
    assert "RuntimeMigrationPending" not in {each["type"] for each in conditions}


def uids_of(objects: list[Object]) -> set[str]:
    return {obj["metadata"]["uid"] for obj in objects}


async def test_a_set_that_is_not_used_moves_by_itself() -> None:
    async with upgraded() as data:
        uids = uids_of(await data.objects(ports.PERSISTENT_VOLUMES))
        uids |= uids_of(await data.objects(ports.PERSISTENT_VOLUME_CLAIMS))
        before = await data.get(RUNTIME, ports.STATEFUL_SETS)
        await data.wait(40)
        await expect_moved(data, uids)
        after = await data.get(FAR_RUNTIME, ports.STATEFUL_SETS)
        assert places_of(after) == places_of(before)


def places_of(stateful_set: Object) -> dict[str, str]:
    """The directories of the nodes that the pods use."""
    [container] = stateful_set["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value", "") for each in container["env"]}
    return {name: values[f"CACHE_RUNTIME_{name}"] for name in ("MOUNT_PATH", "CACHE_DIRS", "SET_UID")}


async def test_a_set_that_is_used_keeps_its_runtime_until_the_pods_end() -> None:
    async with upgraded(is_used=True) as data:
        uids = uids_of(await data.objects(ports.PERSISTENT_VOLUMES))
        uids |= uids_of(await data.objects(ports.PERSISTENT_VOLUME_CLAIMS))
        await data.wait(60)
        await data.expect_condition("RuntimeMigrationPending", "InUse")
        await data.expect_phase("Ready")
        assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
        assert await data.labels() == {"node-0": "0", "node-1": "1"}
        assert not await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)

        await data.delete(USER, ports.PODS)
        await data.wait(60)
        await expect_moved(data, uids)


async def test_a_set_moves_on_request_while_it_is_used() -> None:
    async with upgraded(is_used=True) as data:
        uids = uids_of(await data.objects(ports.PERSISTENT_VOLUMES))
        uids |= uids_of(await data.objects(ports.PERSISTENT_VOLUME_CLAIMS))
        await data.wait(40)
        await data.patch(SET, {"metadata": {"annotations": {"paddlepaddle.org/move-runtime": "now"}}})
        await data.wait(40)
        await expect_moved(data, uids)


async def test_a_set_in_its_old_place_is_deleted_as_any_other() -> None:
    async with upgraded(is_used=True) as data:
        await data.wait(10)
        await data.delete(SET)
        await data.wait(10)
        await data.expect_condition("Ready", "InUse")
        await data.delete(USER, ports.PODS)
        await data.wait(20)
        assert not await data.exists(SET)
        for key, resource in OLD_OBJECTS:
            assert not await data.exists(key, resource)
        await expect_nothing_left(data)


async def test_a_move_continues_after_a_restart() -> None:
    async with upgraded(is_used=True) as data:
        uids = uids_of(await data.objects(ports.PERSISTENT_VOLUMES))
        uids |= uids_of(await data.objects(ports.PERSISTENT_VOLUME_CLAIMS))
        await data.patch(SET, {"metadata": {"annotations": {"paddlepaddle.org/move-runtime": "now"}}})
        for _ in range(4):
            await data.reconcile(SET)
            await data.restart()
        await data.wait(40)
        await expect_moved(data, uids)


WRITEBACK = {"juiceFSMountOptions": {"writeback": True}}


@pytest.mark.parametrize("csi", [None, WRITEBACK])
async def test_a_set_that_is_deleted_moves_first(csi: dict[str, Any] | None) -> None:
    """Only agents of the present release report what is staged, and empty their caches."""
    async with upgraded(is_used=True, **({"csi": csi} if csi else {})) as data:
        uid = (await data.get(SET))["metadata"]["uid"]
        await data.wait(100)
        await data.delete(SET)
        await data.wait(10)
        await data.expect_condition("Ready", "InUse")
        await data.delete(USER, ports.PODS)
        await data.wait(20)
        await data.runtime.report(uid, 2)
        await data.wait(120)
        assert not await data.exists(SET)
        assert data.runtime.runs("clear")
        await expect_nothing_left(data)


async def test_a_deleted_set_does_not_wait_for_a_runtime_that_cannot_start() -> None:
    async with upgraded() as data:
        data.kubernetes.unready |= {f"{FAR_RUNTIME.name}-{i}" for i in range(2)}
        await data.wait(20)
        await data.delete(SET)
        for _ in range(420):
            await data.wait(1 if await data.exists(SET) else 0)
        assert not await data.exists(SET)
        await expect_nothing_left(data)


async def orphan_pods(data: DataHarness) -> list[Key]:
    """Delete the old StatefulSet without its pods."""
    keys = [Key("default", pod["metadata"]["name"]) for pod in await data.cluster.list(ports.PODS, "default")]
    keys.remove(USER)
    for key in keys:
        await data.patch(key, {"metadata": {"ownerReferences": None}}, ports.PODS)
    await data.delete(RUNTIME, ports.STATEFUL_SETS)
    return keys


async def test_a_pod_of_the_old_runtime_that_does_not_end_is_named_with_the_command() -> None:
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        keys = await orphan_pods(data)
        await data.wait(60)
        condition = await data.expect_condition("RuntimeMigrationPending", "RuntimeMoving")
        assert "kubectl -n default delete pod digits-runtime-0 digits-runtime-1" in condition["message"]
        assert await data.labels() == {"node-0": "0", "node-1": "1"}
        for key in keys:
            await data.delete(key, ports.PODS)
        await data.wait(60)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)
        await data.expect_phase("Ready")


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Failed"}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"deletionTimestamp": "2020-01-01T12:00:00Z", "finalizers": ["keep"]}},
    ],
)
async def test_a_pod_that_has_ended_or_is_on_a_dead_node_holds_up_no_move(change: dict[str, Any]) -> None:
    """A kubelet that is gone never confirms the end of its pods."""
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        [first, second] = await orphan_pods(data)
        await data.delete(first, ports.PODS)
        await data.cluster.patch(
            ports.PODS, second, change, subresource="status" if "status" in change else ""
        )
        await data.wait(60)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


# --- what users of the namespace may create


async def create_forged(data: DataHarness, *, pods: int) -> None:
    """An "old runtime" with the uid of the set, which users of the namespace can read."""
    uid = (await data.get(SET))["metadata"]["uid"]
    labels = {"app.kubernetes.io/managed-by": "dataset-controller"}
    meta = {
        "name": RUNTIME.name,
        "namespace": "default",
        "labels": labels,
        "annotations": {"paddlepaddle.org/sampleset-uid": uid},
    }
    await data.create({"metadata": meta, "data": {}}, ports.SECRETS)
    real = await data.get(FAR_RUNTIME, ports.STATEFUL_SETS)
    await data.create({"metadata": meta, "spec": {**real["spec"], "replicas": 0}}, ports.STATEFUL_SETS)
    for index in range(pods):
        name = f"{RUNTIME.name}-{index}"
        pod_meta = {"name": name, "namespace": "default", "labels": labels | {"name": RUNTIME.name}}
        status = {"phase": "Running"}
        await data.create(
            {"metadata": pod_meta, "spec": {"nodeName": "node-2"}, "status": status}, ports.PODS
        )


async def share_engine(data: DataHarness) -> None:
    """The set's keys are in a Secret of another namespace."""
    secret = make_secret("engine", namespace="vault")
    secret["metadata"]["annotations"] = {"batch.paddlepaddle.org/shared-with": "default"}
    await data.create(secret, ports.SECRETS)
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    await data.expect_phase("Ready")


@pytest.mark.parametrize("is_runtime_gone", [False, True])
async def test_a_forged_runtime_gets_no_keys(far: DataHarness, is_runtime_gone: bool) -> None:
    await share_engine(far)
    await create_forged(far, pods=0)
    await far.create(user(), ports.PODS)
    if is_runtime_gone:
        await far.delete(FAR_RUNTIME, ports.STATEFUL_SETS)
    await far.wait(40)
    forged = await far.get(RUNTIME, ports.SECRETS)
    assert not forged["data"]


async def test_a_forged_runtime_replaces_no_real_one(far: DataHarness) -> None:
    await share_engine(far)
    await create_forged(far, pods=1)
    await far.wait(40)
    assert await far.exists(FAR_RUNTIME, ports.STATEFUL_SETS)
    await far.expect_phase("Ready")
    assert await far.labels() == {"node-0": "0"}


async def test_forged_pods_do_not_hide_the_runtime_of_a_deleted_set(far: DataHarness) -> None:
    await share_engine(far)
    await create_forged(far, pods=1)
    await far.delete(SET)
    await far.wait(200)
    assert not await far.exists(SET)
    assert far.runtime.runs("clear")
    await expect_nothing_left(far)


async def test_keys_of_a_set_that_was_removed_by_force_before_it_was_bound_are_removed(
    far: DataHarness,
) -> None:
    """Secrets are not watched: what shows that something is left is there before them."""
    await far.create(make_secret(), ports.SECRETS)
    await far.create(make_sample_set())
    while not await far.exists(FAR_RUNTIME, ports.SECRETS):
        await far.reconcile(SET)
    await far.patch(SET, {"metadata": {"finalizers": None}})
    await far.delete(SET)
    await far.wait(30)
    await expect_nothing_left(far)
