"""Runtimes in the namespace of the release, and how those of earlier releases get there."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import CONFIG, NOW, make_observed, make_pod
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
from paddlewheel.testkit.samplesets import make_sample_set

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


RECORDED = {"conditions": [MOVING]}
DELETED = [("Delete", "StatefulSet", RUNTIME)]


@pytest.mark.parametrize(
    ("seen", "reason", "actions"),
    [
        (old(users=("train-0",)), "InUse", []),
        (old(users=None), "InUse", []),
        (with_annotation(old(users=("train-0",))), "RuntimeMoving", []),
        (old(), "RuntimeMoving", []),
        (old(status=RECORDED), "RuntimeMoving", DELETED),
        (old(status=RECORDED, users=("train-0",)), "InUse", []),
        (old(status=RECORDED, engine_secret=None), "SecretNotFound", []),
    ],
)
def test_a_runtime_moves_when_its_data_is_not_used(
    seen: ObservedSet, reason: str, actions: list[tuple[str, str, Key]]
) -> None:
    """The condition is recorded before anything is deleted."""
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
    assert pending(ended) is None


def test_an_old_runtime_is_neither_scaled_nor_given_another_template() -> None:
    """dataset-controller may only delete in the namespaces of users."""
    seen = old(users=("a",))
    grown = make_observed("Ready", ready=2, spec={"partitions": 3}, users=("a",))
    assert runtime_actions(replace(grown, runtime=FAR_RUNTIME)) == []
    changed = plan(seen, replace(CONFIG, image="runtime:2"), NOW).actions
    assert not [a for a in changed if isinstance(a, Patch) and a.kind == "StatefulSet"]


def test_the_secret_of_an_old_runtime_gets_new_keys_and_keeps_its_certificate() -> None:
    seen = old(users=("a",))
    secret = render.secret(seen.sample_set.identity, RUNTIME, {"engine.name": "old", "bus.tls.crt": "mine"})
    todo = plan(replace(seen, children=replace(seen.children, secret=secret)), CONFIG, NOW)
    [patch] = [a for a in todo.actions if isinstance(a, Patch) and a.kind == "Secret"]
    assert patch.key == RUNTIME
    assert patch.patch["data"]["engine.name"] == "dm9s"
    assert "bus.tls.crt" not in patch.patch["data"]


# --- the move, in a cluster


@asynccontextmanager
async def upgraded(*, is_used: bool = False) -> AsyncIterator[DataHarness]:
    """The new release, with a Ready set that an earlier one has left in its old place."""
    async with DataHarness().opened() as earlier:
        uid = await earlier.ready_set(partitions=2)
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
