"""Runtimes in the namespace of the release: deletion of the set's namespace, orphans, and the move."""

from __future__ import annotations

from functools import partial

import pytest
from tests.integration.dataset_controller.conftest import DataServiceHarness

from dataset_controller.domain.names import MOVE_ANNOTATION
from paddlewheel.contracts.dataset_names import runtime_service_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube import ports
from paddlewheel.testkit.wait import eventually

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


async def is_clean(data: DataServiceHarness) -> bool:
    """Nothing of a runtime is in the namespace of the release."""
    runtime = data.runtime_key()
    named = (
        (ports.STATEFUL_SETS, runtime),
        (ports.SERVICES, Key(data.home, runtime_service_name(runtime.name))),
        (ports.SECRETS, runtime),
    )
    return not any([await data.exists(key, resource) for resource, key in named])


async def is_gone(data: DataServiceHarness, namespace: str) -> bool:
    try:
        await data.cluster.get(ports.NAMESPACES, Key("", namespace))
    except NotFound:
        return True
    return False


async def test_a_restricted_namespace_with_a_set_is_deleted(data: DataServiceHarness) -> None:
    """The pods that mount the volume are privileged, and none of them is there."""
    await data.move_home()
    labels = {"metadata": {"labels": RESTRICTED}}
    await data.cluster.patch(ports.NAMESPACES, Key("", data.namespace), labels)
    await data.start()
    key = await data.create_set(partitions=2)
    await data.wait_phase(key, "Ready")
    for resource in (ports.STATEFUL_SETS, ports.SERVICES, ports.PODS):
        assert await data.objects(resource) == []
    assert [each["metadata"]["name"] for each in await data.objects(ports.SECRETS)] == ["digits"]

    await data.cluster.delete(ports.NAMESPACES, Key("", data.namespace))
    await eventually(lambda: is_gone(data, data.namespace), within=120)
    assert await is_clean(data)
    assert await data.labels() == []


@pytest.mark.parametrize("is_created_again", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_the_runtime_of_a_set_that_was_removed_by_force_is_removed(
    data: DataServiceHarness, is_created_again: bool
) -> None:
    await data.move_home()
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready")
    before = await data.get(data.runtime_key(), ports.STATEFUL_SETS)
    await data.stop()
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"metadata": {"finalizers": None}})
    await eventually(lambda: is_absent(data, key, ports.PERSISTENT_VOLUME_CLAIMS))
    await remove_volume(data)
    if is_created_again:
        await data.create_set_only()
    await data.start()
    if not is_created_again:
        await eventually(lambda: is_clean(data))
        return
    await data.wait_phase(key, "Ready")
    after = await data.get(data.runtime_key(), ports.STATEFUL_SETS)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def is_absent(data: DataServiceHarness, key: Key, resource: ports.Resource) -> bool:
    return not await data.exists(key, resource)


async def remove_volume(data: DataServiceHarness) -> None:
    """The data of a set that was removed by force is retained until an administrator removes the volume."""
    for volume in await data.cluster.list(ports.PERSISTENT_VOLUMES):
        if volume["spec"]["claimRef"]["namespace"] == data.namespace:
            name = Key("", volume["metadata"]["name"])
            await data.cluster.delete(ports.PERSISTENT_VOLUMES, name)
            await eventually(partial(is_absent, data, name, ports.PERSISTENT_VOLUMES))


@pytest.mark.long
async def test_a_set_of_an_earlier_release_moves_when_its_pods_have_ended_or_on_request(
    data: DataServiceHarness,
) -> None:
    """The volume and the claim stay, so the pods that use it need no change."""
    await data.start()
    sets = [await data.create_set(name) for name in ("digits", "used")]
    for key in sets:
        await data.wait_phase(key, "Ready")
    await data.stop()
    for key in sets:
        await make_old(data, key)
    volumes = {volume["metadata"]["uid"] for volume in await data.objects(ports.PERSISTENT_VOLUME_CLAIMS)}
    await use(data, "used")
    await data.move_home()
    await data.start()

    await eventually(lambda: is_moved(data, "digits"))
    pending = await data.wait_condition(sets[1], "RuntimeMigrationPending", "InUse")
    assert "train" in pending["message"]
    assert await data.exists(data.key("used-runtime"), ports.STATEFUL_SETS)

    await data.cluster.patch(
        ports.SAMPLE_SETS, sets[1], {"metadata": {"annotations": {MOVE_ANNOTATION: "now"}}}
    )
    await eventually(lambda: is_moved(data, "used"))
    for key in sets:
        await data.wait_phase(key, "Ready")
    after = {volume["metadata"]["uid"] for volume in await data.objects(ports.PERSISTENT_VOLUME_CLAIMS)}
    assert after == volumes
    await data.cluster.delete(ports.SAMPLE_SETS, sets[0])
    await data.wait_gone(sets[0])


@pytest.mark.long
async def test_a_set_of_an_earlier_release_that_is_deleted_leaves_nothing(data: DataServiceHarness) -> None:
    """Its runtime moves first: only its next pods clear the caches."""
    await data.start()
    key = await data.create_set(partitions=2)
    await data.wait_phase(key, "Ready")
    await data.stop()
    await make_old(data, key)
    await use(data, "digits")
    await data.move_home()
    await data.start()
    await data.wait_condition(key, "RuntimeMigrationPending", "InUse")
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await data.wait_condition(key, "Ready", "InUse")

    await data.cluster.delete(ports.PODS, data.key("train"), grace_seconds=0)
    await data.wait_gone(key, within=120)
    assert data.runtime.runs("clear")
    assert await is_clean(data)
    for resource in (ports.STATEFUL_SETS, ports.SERVICES):
        assert await data.objects(resource) == []


async def make_old(data: DataServiceHarness, key: Key) -> None:
    """Leave the runtime's objects as an earlier release did: with the set as their owner."""
    claim = await data.get(key, ports.PERSISTENT_VOLUME_CLAIMS)
    owners = claim["metadata"]["ownerReferences"]
    unmarked = {"paddlepaddle.org/sampleset": None, "paddlepaddle.org/sampleset-uid": None}
    runtime = data.key(f"{key.name}-runtime")
    for resource, name in (
        (ports.STATEFUL_SETS, runtime),
        (ports.SERVICES, data.key(f"{runtime.name}-service")),
        (ports.SECRETS, runtime),
    ):
        change = {"metadata": {"ownerReferences": owners, "annotations": unmarked}}
        await data.cluster.patch(resource, name, change)


async def use(data: DataServiceHarness, claim: str) -> None:
    """A pod that uses the claim, on a node."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    nodes = await data.cluster.list(ports.NODES)
    spec = {
        "nodeName": nodes[0]["metadata"]["name"],
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [volume],
    }
    await data.create({"metadata": {"name": "train"}, "spec": spec}, ports.PODS)


async def is_moved(data: DataServiceHarness, name: str) -> bool:
    """Its StatefulSet is in the namespace of the release, and no object of the runtime in that of the set."""
    old = data.key(f"{name}-runtime")
    left = (
        (ports.STATEFUL_SETS, old),
        (ports.SERVICES, data.key(f"{old.name}-service")),
        (ports.SECRETS, old),
    )
    is_there = [await data.exists(key, resource) for resource, key in left]
    return not any(is_there) and await data.exists(data.runtime_key(name), ports.STATEFUL_SETS)
