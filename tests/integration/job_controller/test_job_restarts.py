"""Restarts, suspension and time to live on a real API server and a real NATS; the test plays the kubelet."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import CONFIG_MAPS, LEASES, PADDLE_JOBS, PODS
from paddlewheel.operator.sharding import Shard
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

EPOCH = "paddlepaddle.org/epoch"
EPOCHS = 2
REPLICAS, SHARE = ("one", "two"), 3
Incarnations = defaultdict[tuple[str, str], dict[str, list[tuple[str, float]]]]
"""(pod, epoch) -> uid -> changes with their times, for the message of a failure."""


async def test_killed_at_random_moments_of_restarts_it_counts_every_failure_once(
    jobs: JobServiceHarness,
) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}")
    made: Incarnations = defaultdict(dict)
    kills: list[float] = []
    watching = asyncio.create_task(_remember(jobs, made))
    try:
        service = await jobs.start_process()
        job = make_paddle_job("victim", cleanPodPolicy="Never", backoffLimit=EPOCHS, worker=make_role(4))
        key = await jobs.create(job)
        await jobs.wait_pods(key, 4)
        for epoch in range(1, EPOCHS + 1):
            await _run(jobs, key)
            await set_pod_status(jobs.cluster, jobs.key("victim-worker-2"), "Failed", exit_code=1)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            kills.append(time.time())
            await service.kill()
            await service.start()
            await eventually(partial(_has_epoch, jobs, key, epoch))
        await _run(jobs, key)
        await jobs.to_end(key)
        await eventually(lambda: jobs.facts(key)[-1:] == ["JobSucceeded"])
        await eventually(lambda: len(made) >= 4 * (EPOCHS + 1), what="all pods were seen")
    finally:
        await end(watching)
    status = await jobs.status(key)
    assert (status["epoch"], status["restarts"]) == (EPOCHS, {"PodFailed": EPOCHS})
    assert (await jobs.cluster.get(CONFIG_MAPS, key))["data"]["PADDLEWHEEL_EPOCH"] == str(EPOCHS)
    assert len(made) == 4 * (EPOCHS + 1)
    twice = {place: pods for place, pods in made.items() if len(pods) != 1}
    assert not twice, f"one pod for each rank and epoch, with kills at {kills}: {twice}"
    again = ["JobRestarted", "JobStarting", "JobRunning"]
    assert jobs.facts(key) == ["JobAccepted", *again[1:], *again * EPOCHS, "JobSucceeded"]


async def _remember(jobs: JobServiceHarness, made: Incarnations) -> None:
    async for change in jobs.cluster.watch(PODS, jobs.namespace):
        meta = change.obj["metadata"]
        changes = made[meta["name"], meta["annotations"].get(EPOCH, "0")].setdefault(meta["uid"], [])
        changes.append((change.type, time.time()))


async def _run(jobs: JobServiceHarness, key: Key) -> None:
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")


async def _has_epoch(jobs: JobServiceHarness, key: Key, epoch: int) -> bool:
    pods = await jobs.objects(PODS)
    return [pod["metadata"]["annotations"].get(EPOCH) for pod in pods] == [str(epoch)] * 4


async def test_a_replica_killed_in_the_middle_of_gang_restarts_loses_nothing_to_the_other(
    jobs: JobServiceHarness,
) -> None:
    made: Incarnations = defaultdict(dict)
    watching = asyncio.create_task(_remember(jobs, made))
    try:
        one, _ = [await jobs.start_process(name, REPLICAS_SHARE="true") for name in REPLICAS]
        shares = {name: _some_of(jobs, name) for name in REPLICAS}
        keys = [key for share in shares.values() for key in share]
        for key in keys:
            job = make_paddle_job(key.name, cleanPodPolicy="Never", backoffLimit=1, worker=make_role(2))
            await jobs.create(job)
        for key in keys:
            await jobs.wait_pods(key, 2)
            await _run(jobs, key)
        for key in keys:
            await _fail(jobs, key)
        # Recorded by the first pass; ended and replaced by later ones.
        await eventually(partial(_has_restarted, jobs, shares["one"]), every=0.01)
        await one.kill()
        await eventually(partial(_have_epoch, jobs, keys), what="all jobs are in epoch 1")
        for key in keys:
            await _run(jobs, key)
            await jobs.to_end(key)
        again = ("JobStarting", "JobRunning")
        for key in keys:
            await jobs.wait_facts(key, "JobAccepted", *again, "JobRestarted", *again, "JobSucceeded")
            assert (await jobs.status(key))["restarts"] == {"PodFailed": 1}
        await eventually(lambda: len(made) >= 2 * 2 * len(keys), what="all pods were seen")
    finally:
        await end(watching)
    assert len(made) == 2 * 2 * len(keys)
    twice = {place: pods for place, pods in made.items() if len(pods) != 1}
    assert not twice, f"one pod for each rank and epoch: {twice}"


def _some_of(jobs: JobServiceHarness, replica: str) -> list[Key]:
    """Names of jobs that fall to this replica while both live."""
    shard = Shard(replica, lambda: frozenset(REPLICAS))
    names = (jobs.key(f"job-{index}") for index in count())
    return list(islice(filter(shard.owns, names), SHARE))


async def _fail(jobs: JobServiceHarness, key: Key) -> None:
    await set_pod_status(jobs.cluster, jobs.key(f"{key.name}-worker-1"), "Failed", exit_code=1)


async def _has_restarted(jobs: JobServiceHarness, keys: list[Key]) -> bool:
    """At least one of them."""
    return any([(await jobs.status(key)).get("epoch") for key in keys])


async def _have_epoch(jobs: JobServiceHarness, keys: list[Key]) -> bool:
    """Every job has the pods of its second world, and no others."""
    pods = await jobs.objects(PODS)
    return [pod["metadata"]["annotations"].get(EPOCH) for pod in pods] == ["1"] * 2 * len(keys)


async def test_a_suspended_job_goes_on_and_a_finished_one_is_deleted_in_time(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(make_paddle_job("pausing", worker=make_role(2), ttlSecondsAfterFinished=2))
    await jobs.wait_pods(key, 2)
    await _run(jobs, key)
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"suspend": True}})
    await jobs.wait_pods(key, 0)
    await jobs.wait_condition(key, "Suspended", "Suspended")
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"suspend": False}})
    await jobs.wait_pods(key, 2)
    await _run(jobs, key)
    await jobs.set_pods(key, "Succeeded")
    await jobs.wait_gone(key, within=90)
    begun = ["JobStarting", "JobRunning"]
    await jobs.wait_facts(
        key,
        *("JobAccepted", *begun, "JobRestarted", "JobSuspended", "JobResumed", *begun),
        *("JobSucceeded", "JobDeleted"),
    )


@pytest.mark.long
async def test_a_rank_that_fails_while_the_lease_of_another_node_is_not_renewed_has_lost_its_peer(
    jobs: JobServiceHarness,
) -> None:
    """job-controller may read the Leases of nodes with the rights of the chart."""
    await jobs.start_process()
    node = f"node-{uuid.uuid4().hex[:8]}"
    spec = {"holderIdentity": node, "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    lease = Key("kube-node-lease", node)
    await jobs.cluster.create(
        LEASES, {"metadata": {"name": node, "namespace": lease.namespace}, "spec": spec}
    )
    server, worker = make_role(nodeName=node), make_role(nodeName=f"{node}-2")
    key = await jobs.create(make_paddle_job("lost-peer", cleanPodPolicy="Never", ps=server, worker=worker))
    await jobs.wait_pods(key, 2)
    await _run(jobs, key)
    ended = ended_status(exit_code=1)
    ended["containerStatuses"][0] |= {"image": "", "imageID": "", "restartCount": 0}
    pod = jobs.key("lost-peer-worker-0")
    await jobs.cluster.patch(PODS, pod, {"status": ended}, subresource="status")
    await eventually(partial(_was_restarted, jobs, key), within=180, what="a restart")
    assert (await jobs.status(key))["restarts"] == {"NodeLost": 1}
    await jobs.cluster.delete(LEASES, lease)


async def _was_restarted(jobs: JobServiceHarness, key: Key) -> bool:
    status = await jobs.status(key)
    assert status.get("phase") != "Failed", status
    return bool(status.get("restarts"))
