"""Workers beside their data, by the real scheduler; the test plays the kubelets and dataset-controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.dataset_names import node_label
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetDegraded
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import NODES, PODS, SAMPLE_SETS, Object
from paddlewheel.testkit.kubernetes import toleration
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, make_sample_set
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

SET = "digits"


def job_of(name: str, namespace: str, workers: int, cpu: str, **ref: Any) -> Object:
    container = {"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": cpu}}}
    worker = make_role(
        workers,
        containers=[container],
        tolerations=[toleration(namespace)],
        # In place of the set's claim, which is not bound here.
        volumes=[{"name": SET, "emptyDir": {}}],
        # No kubelet confirms here that a pod has ended.
        terminationGracePeriodSeconds=0,
    )
    ref = {"name": SET, "mountPath": "/data", **ref}
    return make_paddle_job(name, sampleSetRef=ref, cleanPodPolicy="Always", worker=worker)


async def cache_on(jobs: JobServiceHarness, nodes: list[str]) -> None:
    """A set that is ready; its partition i is on the i-th node."""
    label = node_label(jobs.namespace, SET)
    for partition, node in enumerate(nodes):
        await jobs.cluster.patch(NODES, Key("", node), {"metadata": {"labels": {label: str(partition)}}})
    await make_sample_set(jobs.cluster, jobs.key(SET), partitions=len(nodes))
    measured = [{"partition": i, "node": node, "cachedPercent": 50} for i, node in enumerate(nodes)]
    status = {"phase": "Ready", "cacheStatus": {"nodes": measured}}
    await jobs.set_status(jobs.key(SET), status, SAMPLE_SETS)


async def placed(jobs: JobServiceHarness, key: Key, workers: int) -> list[str]:
    """Nodes of its workers by rank, once all have one."""

    async def there() -> list[str] | None:
        pods = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in await jobs.objects(PODS)}
        found = [pods[f"{key.name}-worker-{index}"] for index in range(workers)]
        return found if all(found) else None

    found: list[str] = await eventually(there, what=f"{key} has nodes")
    return found


async def test_workers_run_beside_their_data_spill_over_or_wait_as_asked(
    jobs: JobServiceHarness, nodes: list[str]
) -> None:
    first, second, empty = nodes
    await cache_on(jobs, [first, second])
    await jobs.start()

    beside = await jobs.create(job_of("beside", jobs.namespace, 2, "4"))
    assert await placed(jobs, beside, 2) == [first, second]
    await jobs.set_pods(beside, "Running")
    await jobs.wait_condition(beside, "DataLocal", "BesideData")

    spilled = await jobs.create(job_of("spilled", jobs.namespace, 1, "6"))
    assert await placed(jobs, spilled, 1) == [empty]
    await jobs.set_pods(spilled, "Running")
    said = await jobs.wait_condition(spilled, "DataLocal", "SpilledOver")
    assert f"spilled-worker-0 is on {empty}, its partition on {first}" in said["message"]

    bound = await jobs.create(job_of("bound", jobs.namespace, 1, "6", placement="Required"))
    waits = await jobs.wait_condition(bound, "Running", "Unschedulable")
    assert "node affinity/selector" in waits["message"]
    await jobs.to_end(beside)
    assert await placed(jobs, bound, 1) == [first]


async def test_ranks_are_restarted_when_a_node_does_not_get_the_mount_of_their_data_back(
    jobs: JobServiceHarness, nodes: list[str]
) -> None:
    """All of them, from the last checkpoint; a mount that comes back at once restarts no rank."""
    first, second, _ = nodes
    await cache_on(jobs, [first, second])
    await jobs.start()
    key = await jobs.create(job_of("train", jobs.namespace, 2, "4"))
    assert await placed(jobs, key, 2) == [first, second]
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    before = await uids(jobs)

    await lose_mount(jobs, first, seconds_ago=0)
    await keep_mounts(jobs)
    await lose_mount(jobs, second, seconds_ago=60)
    await jobs.wait_facts(key, "JobAccepted", "JobStarting", "JobRunning", "JobRestarted")
    status = await jobs.status(key)
    assert (status["epoch"], status["restarts"]) == (1, {"MountLost": 1})
    await keep_mounts(jobs)

    async def all_new() -> bool:
        now = await uids(jobs)
        return len(now) == 2 and not now & before

    await eventually(all_new, what="both ranks are replaced")
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")


async def uids(jobs: JobServiceHarness) -> set[str]:
    """The uids of all pods."""
    return {pod["metadata"]["uid"] for pod in await jobs.objects(PODS)}


async def lose_mount(jobs: JobServiceHarness, node: str, seconds_ago: float) -> None:
    """Write and publish what dataset-controller does after such a report of an agent."""
    since = seconds_stamp(datetime.now(UTC) - timedelta(seconds=seconds_ago))
    lost = [{"node": node, "since": since, "reason": "MountLost", "message": "the client has ended"}]
    status = {"phase": "PartialReady", "runtimeStatus": {"readyReplicas": 1, "lostMounts": lost}}
    await jobs.set_status(jobs.key(SET), status, SAMPLE_SETS)
    uid, now = uid_of(await jobs.cluster.get(SAMPLE_SETS, jobs.key(SET))), datetime.now(UTC)
    told = SampleSetDegraded(
        sample_set=ObjectRef(namespace=jobs.namespace, name=SET, uid=uid), reason="PartitionsNotReady"
    )
    id_ = f"{uid}/{now.timestamp()}"
    await jobs.bus.publish(
        make_event(told, id=id_, source="test", namespace=jobs.namespace, uid=uid, time=now)
    )


async def keep_mounts(jobs: JobServiceHarness) -> None:
    """All nodes have them again."""
    status = {"phase": "Ready", "runtimeStatus": {"readyReplicas": 2, "lostMounts": None}}
    await jobs.set_status(jobs.key(SET), status, SAMPLE_SETS)
