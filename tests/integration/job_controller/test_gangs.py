"""Gangs of Kubernetes itself, on a real API server with the real scheduler; the test plays the kubelets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import PADDLE_JOBS, POD_GROUPS, PODS, Object
from paddlewheel.testkit.kubernetes import set_pod_status, toleration
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.usefixtures("nodes")
WORKERS = 4
"""The cores of a pod are 4; the three nodes of 8 cores have room for six."""
SHORT = "the gang of 4 is short by 2 pods on cpu, so none starts"


def gang_job(name: str, namespace: str, replicas: int = WORKERS, **spec: Any) -> Object:
    container = {
        "name": "main",
        "image": "example/train:1",
        "resources": {"requests": {"cpu": "4", "memory": "64Mi"}},
    }
    worker = make_role(
        replicas,
        containers=[container],
        tolerations=[toleration(namespace)],
        # No kubelet confirms here that a pod has ended.
        terminationGracePeriodSeconds=0,
    )
    usual = {"schedulingPolicy": {}, "cleanPodPolicy": "Never", "worker": worker}
    return make_paddle_job(name, **usual | spec)


async def placed(jobs: JobServiceHarness, key: Key) -> list[str]:
    """Names of the job's living pods that have a node."""
    pods = await jobs.objects(PODS)
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{key.name}-") and pod["spec"].get("nodeName")
    ]


async def wait_placed(jobs: JobServiceHarness, key: Key, count: int = WORKERS) -> None:
    async def there() -> bool:
        return len(await placed(jobs, key)) == count

    await eventually(there, what=f"{count} pods of {key.name} have nodes")


async def wait_said(jobs: JobServiceHarness, key: Key, words: str) -> None:
    """The scheduler reports first that resources are missing, and later how many."""

    async def is_said() -> bool:
        return words in (await jobs.status(key))["message"]

    await eventually(is_said, what=words)


async def wait_at_least(jobs: JobServiceHarness, key: Key, count: int) -> None:
    """Wait until the gang in the status has this size: it is written after the pods are made."""

    async def is_said() -> bool:
        return bool((await jobs.status(key)).get("gang", {}).get("minAvailable") == count)

    await eventually(is_said, what=f"{count} pods at least")


async def run(jobs: JobServiceHarness, key: Key) -> None:
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")


async def test_of_two_jobs_that_need_the_room_neither_starts_by_halves(jobs: JobServiceHarness) -> None:
    await jobs.start()
    keys = await asyncio.gather(*(jobs.create(gang_job(name, jobs.namespace)) for name in ("red", "blue")))

    async def is_waiting(key: Key) -> bool:
        status = await jobs.status(key)
        return status.get("reason") == "GangUnschedulable" and not await placed(jobs, key)

    async def one_waits() -> tuple[Key, Key] | None:
        waiting = [key for key in keys if await is_waiting(key)]
        if len(waiting) != 1:
            return None
        return waiting[0], next(key for key in keys if key != waiting[0])

    second, first = await eventually(one_waits, what="one gang waits")
    await wait_placed(jobs, first)
    assert await placed(jobs, second) == []
    await wait_said(jobs, second, SHORT)
    status = await jobs.status(second)
    assert status["gang"]["kind"] == "Native"
    assert (status["gang"]["minAvailable"], status["gang"]["phase"]) == (WORKERS, "Pending")
    await run(jobs, first)

    async def is_scheduled() -> bool:
        return bool((await jobs.status(first))["gang"]["phase"] == "Scheduled")

    await eventually(is_scheduled, what="its PodGroup is scheduled")
    assert await placed(jobs, second) == []
    await jobs.to_end(first)
    await jobs.wait_gone(first, POD_GROUPS)
    await wait_placed(jobs, second)
    await run(jobs, second)
    await jobs.to_end(second)
    await jobs.wait_gone(second, POD_GROUPS)
    assert await jobs.objects(POD_GROUPS) == []


@pytest.mark.long
async def test_a_restarted_gang_waits_whole_in_the_same_pod_group(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(gang_job("gang", jobs.namespace, backoffLimit=1))
    await wait_placed(jobs, key)
    await run(jobs, key)
    group = await jobs.get(key, POD_GROUPS)
    # What takes the room as soon as the job gives it up.
    rival = await jobs.create(gang_job("rival", jobs.namespace, schedulingPolicy=None))
    await wait_placed(jobs, rival, 2)
    await set_pod_status(jobs.cluster, jobs.key("gang-worker-2"), "Failed", exit_code=1)
    await wait_placed(jobs, rival, WORKERS)
    await jobs.wait_condition(key, "Running", "GangUnschedulable")
    assert (await jobs.status(key))["epoch"] == 1
    await jobs.wait_pods(key, WORKERS)
    assert await placed(jobs, key) == []
    await jobs.set_pods(rival, "Succeeded")
    await wait_placed(jobs, key)
    assert (await jobs.get(key, POD_GROUPS))["metadata"]["uid"] == group["metadata"]["uid"]
    await run(jobs, key)
    await jobs.to_end(key)


@pytest.mark.long
async def test_a_gang_that_finds_no_room_starts_when_it_is_made_smaller(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(gang_job("wide", jobs.namespace, replicas=8))
    await jobs.wait_condition(key, "Running", "GangUnschedulable")
    await wait_said(jobs, key, "short by 2 pods on cpu")
    assert await placed(jobs, key) == []
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 6}}})
    await wait_placed(jobs, key, 6)
    await run(jobs, key)
    await wait_at_least(jobs, key, 6)
    assert (await jobs.status(key))["restarts"] == {"Scaled": 1}


@pytest.mark.long
async def test_an_elastic_job_is_scheduled_once_there_is_room_for_its_least(jobs: JobServiceHarness) -> None:
    await jobs.start()
    wanted = gang_job("stretch", jobs.namespace, 8)
    wanted["spec"]["worker"]["requests"] = WORKERS
    key = await jobs.create(wanted)
    await wait_placed(jobs, key, 6)
    await wait_at_least(jobs, key, WORKERS)


@pytest.mark.long
async def test_a_pod_is_replaced_by_itself_after_others_have_succeeded(jobs: JobServiceHarness) -> None:
    await jobs.start()
    alone = {"restartScope": "Pod"}
    key = await jobs.create(gang_job("alone", jobs.namespace, 3, backoffLimit=1, failurePolicy=alone))
    await wait_placed(jobs, key, 3)
    await run(jobs, key)
    await set_pod_status(jobs.cluster, jobs.key("alone-worker-0"), "Succeeded")
    failed = await jobs.get(jobs.key("alone-worker-1"), PODS)
    await set_pod_status(jobs.cluster, jobs.key("alone-worker-1"), "Failed", exit_code=1)

    async def replaced() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in await jobs.objects(PODS)}
        pod = pods.get("alone-worker-1", failed)
        is_new = pod["metadata"]["uid"] != failed["metadata"]["uid"]
        return is_new and bool(pod["spec"].get("nodeName"))

    await eventually(replaced, what="the new pod has a node")


@pytest.mark.long
async def test_a_pod_group_that_is_deleted_by_hand_does_no_harm(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(gang_job("hand", jobs.namespace, backoffLimit=1))
    await wait_placed(jobs, key)
    await run(jobs, key)
    group = await jobs.get(key, POD_GROUPS)
    await jobs.cluster.delete(POD_GROUPS, key)
    await set_pod_status(jobs.cluster, jobs.key("hand-worker-0"), "Failed", exit_code=1)

    async def made_again() -> bool:
        uids = [found["metadata"]["uid"] for found in await jobs.objects(POD_GROUPS)]
        return uids not in ([], [group["metadata"]["uid"]])

    await eventually(made_again, what="the PodGroup is made again")
    await wait_placed(jobs, key)
    await run(jobs, key)


async def test_a_foreign_pod_group_is_refused(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(gang_job("gang", jobs.namespace))
    await wait_placed(jobs, key)
    await jobs.take_away(key, POD_GROUPS, key)


@pytest.mark.long
async def test_the_api_server_refuses_to_change_the_size_of_a_pod_group(jobs: JobServiceHarness) -> None:
    """So a gang of another size is replaced."""
    await jobs.start()
    key = await jobs.create(gang_job("fixed", jobs.namespace))
    await jobs.wait_pods(key, WORKERS)
    with pytest.raises(Permanent, match="immutable"):
        await jobs.cluster.patch(POD_GROUPS, key, {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
