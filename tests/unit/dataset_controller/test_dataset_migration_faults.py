"""The move of a runtime to the namespace of the release, when something goes wrong on the way."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import CONFIG, NOW, make_set
from tests.unit.dataset_controller.conftest import FAR_RUNTIME, HOME, RUNTIME, SET, DataHarness
from tests.unit.dataset_controller.test_dataset_migration import (
    OLD_OBJECTS,
    OLD_SERVICE,
    RECORDED,
    USER,
    create_forged,
    expect_nothing_left,
    old,
    pending,
    runtime_actions,
    share_engine,
    upgraded,
    user,
)

from dataset_controller.domain.sampleset.plan import plan
from paddlewheel.contracts.dataset_names import runtime_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent, Unavailable
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.operator.domain.plan import Create

OLD_PODS = [Key("default", f"digits-runtime-{i}") for i in range(2)]
ON_A_DEAD_NODE = {"metadata": {"deletionTimestamp": "2020-01-01T12:00:00Z", "finalizers": ["keep"]}}


async def refuse_reads(data: DataHarness, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The API server refuses to show the Secrets of the set's namespace."""
    real = data.cluster.get

    async def get(resource: Resource, key: Key) -> Object:
        if resource == ports.SECRETS and key.namespace == "default":
            raise error
        return await real(resource, key)

    monkeypatch.setattr(data.cluster, "get", get)


async def wait_gone(data: DataHarness, seconds: int) -> None:
    for _ in range(seconds):
        if not await data.exists(SET):
            return
        await data.wait(1)
    raise AssertionError(await data.status(SET))


# --- live sets


async def test_a_runtime_that_has_not_mounted_yet_ends_before_the_next_one_starts() -> None:
    """Two agents at once would format the database twice."""
    async with DataHarness().opened() as earlier:
        earlier.kubernetes.unready |= {"digits-runtime-0"}
        await earlier.start_set()
        await earlier.expect_phase("Bound")
    [owner] = (await earlier.get(SET, ports.PERSISTENT_VOLUME_CLAIMS))["metadata"]["ownerReferences"]
    unmarked = {"paddlepaddle.org/sampleset": None, "paddlepaddle.org/sampleset-uid": None}
    for key, resource in OLD_OBJECTS:
        meta = {"ownerReferences": [owner], "annotations": unmarked}
        await earlier.cluster.patch(resource, key, {"metadata": meta})
    await earlier.cluster.patch(ports.PODS, OLD_PODS[0], {"metadata": {"finalizers": ["grace-period"]}})
    async with DataHarness(earlier.fakes, pod_namespace=HOME).opened() as data:
        await data.wait(10)
        assert not await data.exists(RUNTIME, ports.STATEFUL_SETS)
        assert not await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)
        await data.patch(OLD_PODS[0], {"metadata": {"finalizers": None}}, ports.PODS)
        await data.wait(10)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


async def test_a_second_runtime_in_the_old_place_is_stopped() -> None:
    """An earlier release, to which the operator has returned for a while, has created it."""
    async with upgraded() as data:
        before = await data.get(RUNTIME, ports.STATEFUL_SETS)
        await data.wait(40)
        kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
        meta = {name: before["metadata"][name] for name in kept}
        await data.create({"metadata": meta, "spec": before["spec"]}, ports.STATEFUL_SETS)
        await data.wait(20)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)
        assert not await data.exists(RUNTIME, ports.STATEFUL_SETS)


@pytest.mark.parametrize("phase", ["Failed", "Running"])
async def test_a_pod_in_the_namespace_of_the_release_is_no_runtime(phase: str) -> None:
    async with upgraded(is_used=True) as data:
        labels = {"app.kubernetes.io/managed-by": "dataset-controller", "name": FAR_RUNTIME.name}
        meta = {"name": f"{FAR_RUNTIME.name}-0", "namespace": HOME, "labels": labels}
        await data.wait(5)
        await data.create({"metadata": meta, "spec": {"nodeName": "node-2"}}, ports.PODS)
        await data.set_status(Key(HOME, f"{FAR_RUNTIME.name}-0"), {"phase": phase}, ports.PODS)
        await data.wait(30)
        assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
        assert not await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


def test_a_runtime_whose_claim_is_not_bound_does_not_end() -> None:
    seen = old()
    claim = copy.deepcopy(dict(seen.children.claim or {}))
    claim["status"] = {"phase": "Lost"}
    seen = replace(seen, children=replace(seen.children, claim=claim))
    assert runtime_actions(seen) == []
    assert (pending(seen) or ("", ""))[0] == "WaitingForVolume"


def test_runtimes_move_one_after_the_other() -> None:
    """A mistake that keeps new pods from starting, such as a wrong image, costs one set its
    runtime."""
    waiting = old(other_moving="team-a/imagenet")
    assert runtime_actions(waiting) == []
    reason, message = pending(waiting) or ("", "")
    assert (reason, message) == (
        "WaitingForTurn",
        "the runtime moves after that of SampleSet team-a/imagenet",
    )


async def test_a_set_that_cannot_move_holds_up_others_for_a_limited_time() -> None:
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        stuck = await data.get(SET)
        other = {
            **stuck,
            "metadata": {"name": "other", "namespace": "default", "uid": "uid-of-other"},
            "status": RECORDED | {"phase": "Ready"},
        }
        other["status"]["conditions"][0]["lastTransitionTime"] = stuck["metadata"]["creationTimestamp"]
        await data.cluster.create(ports.SAMPLE_SETS, other)
        await data.cluster.patch(
            ports.SAMPLE_SETS, Key("default", "other"), {"status": other["status"]}, subresource="status"
        )
        runtime = runtime_name("default", "other", HOME)
        data.kubernetes.unready |= {f"{runtime}-{index}" for index in range(2)}
        await data.delete(USER, ports.PODS)
        await data.wait(60)
        await data.expect_condition("RuntimeMigrationPending", "WaitingForTurn")
        await data.wait(300)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


async def test_a_stateful_set_that_waits_for_pods_of_a_dead_node_holds_up_no_move() -> None:
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        await data.patch(RUNTIME, {"metadata": {"finalizers": ["foregroundDeletion"]}}, ports.STATEFUL_SETS)
        await data.delete(RUNTIME, ports.STATEFUL_SETS)
        for key in OLD_PODS:
            await data.patch(key, ON_A_DEAD_NODE, ports.PODS)
        await data.delete(USER, ports.PODS)
        await data.wait(60)
        assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


async def test_a_pod_that_is_late_on_a_living_node_is_waited_for() -> None:
    """Its agent may be busy with an unmount."""
    async with upgraded() as data:
        for node in await data.objects(ports.NODES):
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            await data.set_status(Key("", node["metadata"]["name"]), ready, ports.NODES)
        await data.patch(OLD_PODS[0], ON_A_DEAD_NODE, ports.PODS)
        await data.wait(60)
        condition = await data.expect_condition("RuntimeMigrationPending", "RuntimeMoving")
        assert "delete pod digits-runtime-0" in condition["message"]
        assert not await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


# --- deleted sets


async def test_the_caches_of_all_partitions_are_cleared() -> None:
    """The pods of a moved runtime do not mount at the same moment."""
    async with upgraded(is_used=True) as data:
        await data.wait(60)
        data.kubernetes.unready.add(f"{FAR_RUNTIME.name}-1")
        await data.delete(SET)
        await data.wait(10)
        await data.delete(USER, ports.PODS)
        await data.wait(60)
        assert data.runtime.runs("clear") == []
        data.kubernetes.unready.clear()
        await data.wait(60)
        assert not await data.exists(SET)
        assert [run.clear and run.clear.partitions for run in data.runtime.runs("clear")] == [[0, 1]]


async def test_one_failed_read_of_a_secret_does_not_skip_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        await data.restart()
        with monkeypatch.context() as patch:
            await refuse_reads(data, patch, Unavailable("503"))
            await data.delete(SET)
            await data.delete(USER, ports.PODS)
            await data.wait(10)
        await data.wait(60)
        assert not await data.exists(SET)
        assert data.runtime.runs("clear")


@pytest.mark.parametrize("is_forbidden", [False, True])
async def test_the_namespace_of_a_set_that_waits_is_deleted(
    monkeypatch: pytest.MonkeyPatch, is_forbidden: bool
) -> None:
    """The namespace controller deletes what is in the namespace in any order, also our RoleBinding."""
    async with upgraded(is_used=True) as data:
        await data.wait(5)
        await data.expect_condition("RuntimeMigrationPending", "InUse")
        await data.delete(SET)
        for key, resource in (
            (SET, ports.SECRETS),
            (RUNTIME, ports.SECRETS),
            (OLD_SERVICE, ports.SERVICES),
            (RUNTIME, ports.STATEFUL_SETS),
            (SET, ports.PERSISTENT_VOLUME_CLAIMS),
            (USER, ports.PODS),
        ):
            await data.delete(key, resource)
        if is_forbidden:
            await refuse_reads(data, monkeypatch, Permanent("Forbidden", "secrets is forbidden"))
        else:
            await data.restart()
        await wait_gone(data, 600)


async def test_a_deletion_without_a_move_waits_for_the_old_pods() -> None:
    """The user's Secret is gone, so no other runtime can be created."""
    async with upgraded() as data:
        await data.delete(SET, ports.SECRETS)
        await data.patch(OLD_PODS[0], {"metadata": {"finalizers": ["grace-period"]}}, ports.PODS)
        await data.wait(310)
        await data.delete(SET)
        await data.wait(60)
        assert await data.exists(SET)
        await data.patch(OLD_PODS[0], {"metadata": {"finalizers": None}}, ports.PODS)
        await data.wait(20)
        assert not await data.exists(SET)
        await expect_nothing_left(data)


def test_a_deleted_set_gets_no_secret_before_its_service() -> None:
    deleted = make_set(
        "Ready", spec={"partitions": 2}, meta={"deletionTimestamp": "2026-01-01T11:59:00Z"}, status=RECORDED
    )
    seen = old(are_records_known=False)
    nothing = replace(seen.children, stateful_set=None, service=None, secret=None)
    seen = replace(seen, sample_set=deleted, pods=(), children=nothing)
    created = [each.kind for each in plan(seen, CONFIG, NOW).actions if isinstance(each, Create)]
    assert created == ["Service", "Secret"]


# --- imitations


async def test_keys_that_are_taken_back_leave_the_namespace_of_the_release_too(far: DataHarness) -> None:
    await share_engine(far)
    await create_forged(far, pods=0)
    await far.create(user(), ports.PODS)
    await far.delete(FAR_RUNTIME, ports.STATEFUL_SETS)
    await far.wait(20)
    unshared: dict[str, Any] = {"metadata": {"annotations": {"batch.paddlepaddle.org/shared-with": None}}}
    await far.patch(Key("vault", "engine"), unshared, ports.SECRETS)
    await far.wait(310)
    left = (await far.get(FAR_RUNTIME, ports.SECRETS)).get("data") or {}
    assert not [name for name in left if name.startswith("engine.")]


async def test_a_forged_stateful_set_with_a_finalizer_does_not_keep_a_deleted_set(far: DataHarness) -> None:
    await share_engine(far)
    await create_forged(far, pods=0)
    await far.patch(RUNTIME, {"metadata": {"finalizers": ["mine"]}}, ports.STATEFUL_SETS)
    await far.delete(SET)
    await far.wait(60)
    assert not await far.exists(SET)
    await expect_nothing_left(far)
