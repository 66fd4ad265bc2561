"""A job deleted and applied again under its name, while objects of the deleted one still exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.timing import FIRST_STATUS_GRACE_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.objects import controller_uid, uid_of
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, SERVICES, Object, Resource
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

HELD = ["example.com/held"]
"""Keeps an object after its deletion, as the grace period of a pod does."""


def held_job(workers: int, **spec: Any) -> Object:
    """Its pods end slowly."""
    worker = make_role(workers)
    worker["template"]["metadata"] = {"finalizers": HELD}
    return make_paddle_job(worker=worker, **spec)


async def applied_again(harness: JobHarness, former: Object, job: Object, kept: Iterable[Key] = ()) -> Key:
    """The key of the new job, of which no pass was made yet.

    Args:
        kept: ConfigMaps of the former one that are not deleted at once.
    """
    key = await harness.to_running(former)
    for child in kept:
        await harness.patch(child, {"metadata": {"finalizers": HELD}}, CONFIG_MAPS)
    await harness.delete(key)
    await harness.drain_queue()
    assert not await harness.exists(key)
    return await harness.create(job)


async def let_go(harness: JobHarness, name: str, resource: Resource = PODS) -> None:
    """The former object is gone at last."""
    await harness.patch(Key("default", name), {"metadata": {"finalizers": None}}, resource)
    await harness.catch_up()
    await harness.advance(0.2)


async def owners(harness: JobHarness, resource: Resource = PODS) -> set[str]:
    return {uid for obj in await harness.objects(resource) for uid in controller_uid(obj)}


@pytest.mark.parametrize("network", ["PodIP", "Service"])
async def test_pods_of_the_former_job_are_waited_for_quietly(harness: JobHarness, network: str) -> None:
    size = 20
    key = await applied_again(
        harness, held_job(size), make_paddle_job(intranet=network, worker=make_role(size))
    )
    names = await harness.pod_names()
    assert len(names) == size
    with harness.recorded_calls() as calls:
        await harness.drain_queue()
        status = await harness.status(key)
        assert (status["phase"], status["reason"]) == ("Pending", "FormerJobEnding")
        for name in names[1:]:
            await let_go(harness, name)
        assert await harness.pod_names() == names[:1], "they start together"
    assert not [call for call in calls if call[:2] == ("create", "pods")]
    assert not [call for call in calls if call[:2] == ("create", "services")]
    assert len([call for call in calls if call[:2] == ("patch-status", "paddlejobs")]) == 1

    await let_go(harness, names[0])
    assert await harness.pod_names() == names
    assert await owners(harness) == {uid_of(await harness.get(key))}
    await harness.run_pods()
    await harness.drain_queue()
    assert (await harness.status(key))["phase"] == "Running"
    assert "Blocked" not in {c["type"] for c in (await harness.status(key))["conditions"]}
    assert "Warning" not in {event.type for event in await harness.kubernetes_events()}


async def test_no_pod_starts_with_the_addresses_of_the_former_job(harness: JobHarness) -> None:
    """Without a gate a pod reads the ConfigMap of this name as soon as it starts."""
    config = Key("default", "demo")
    job = make_paddle_job(worker=make_role(1))
    key = await applied_again(harness, make_paddle_job(worker=make_role(2)), job, [config])
    await harness.drain_queue()
    assert await harness.pod_names() == []
    assert (await harness.status(key))["reason"] == "FormerJobEnding"
    await let_go(harness, "demo", CONFIG_MAPS)
    assert await harness.pod_names() == ["demo-worker-0"]
    await harness.run_pods()
    await harness.drain_queue()
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "1"
    assert await owners(harness, CONFIG_MAPS) == {uid_of(await harness.get(key))}


async def test_former_objects_under_names_that_are_not_needed_hold_nothing_up(harness: JobHarness) -> None:
    key = await applied_again(harness, held_job(3), make_paddle_job(ps=make_role(1)))
    await harness.drain_queue()
    assert "demo-ps-0" in await harness.pod_names()
    await harness.advance(FIRST_STATUS_GRACE_SECONDS)
    assert (await harness.status(key))["reason"] == "PodsPending"


async def test_what_the_garbage_collector_has_not_reached_yet_is_waited_for_too(harness: JobHarness) -> None:
    owner = {"kind": "PaddleJob", "name": "demo", "uid": "of-the-former", "controller": True}
    service = {
        "metadata": {
            "namespace": "default",
            "name": "demo-worker-1",
            "labels": {"paddle-res-name": "demo-worker-1"},
            "ownerReferences": [owner],
        }
    }
    await harness.cluster.create(SERVICES, service)
    key = await harness.create(make_paddle_job(intranet="Service", worker=make_role(2)))
    await harness.drain_queue()
    assert (await harness.status(key))["reason"] == "FormerJobEnding"
    assert await harness.pod_names() == []
    await harness.delete(Key("default", "demo-worker-1"), SERVICES)
    await harness.catch_up()
    await harness.advance(0.2)
    assert len(await harness.pod_names()) == 2


async def test_a_former_pod_that_does_not_go_is_named(harness: JobHarness) -> None:
    key = await applied_again(harness, held_job(1), make_paddle_job(worker=make_role(1)))
    await harness.drain_queue()
    assert (await harness.status(key))["reason"] == "FormerJobEnding"
    await harness.advance(31)
    status = await harness.status(key)
    assert status["reason"] == "PodStuckTerminating"
    assert status["message"].startswith("pod demo-worker-0 was deleted")
    await let_go(harness, "demo-worker-0")
    assert (await harness.status(key))["reason"] == "PodsPending"
    assert await owners(harness) == {uid_of(await harness.get(key))}


@pytest.mark.parametrize("owner", [{"kind": "Job", "name": "demo"}, {"kind": "PaddleJob", "name": "other"}])
async def test_a_pod_of_another_object_is_none_of_the_former_job(harness: JobHarness, owner: Object) -> None:
    metadata = {
        "namespace": "default",
        "name": "demo-worker-0",
        "labels": {"paddle-res-name": "demo-worker-0", "paddle-res-type": "worker"},
        "ownerReferences": [{**owner, "uid": "another", "controller": True}],
    }
    await harness.cluster.create(PODS, {"metadata": metadata, "spec": {"containers": []}})
    key = await harness.create(make_paddle_job(worker=make_role(1)))
    await harness.drain_queue()
    assert (await harness.status(key))["reason"] == "OwnedByAnother"
