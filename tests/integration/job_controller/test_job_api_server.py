"""job-controller on an API server that is killed, calls a webhook that fails, and deletes a thousand jobs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, SERVICES, Object
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.testkit.admission import Asked, FailingWebhook, failing_webhook
from paddlewheel.testkit.fast_clock import FastClock
from paddlewheel.testkit.kubernetes import kill_api_server, own_servers
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

WATCHED = {"paddlepaddle.org/paddlejob": "watched"}
"""Label of the pods that the webhook is asked about."""
MANY = 1000
THOUSAND_JOBS_TIMEOUT_SECONDS = 400.0
"""The time that a thousand jobs may take on a machine that does other things."""


# Other tests could not work beside these, so they have servers of their own.
control_plane, api_server = own_servers("jobs")


def unscheduled(replicas: int) -> dict[str, Any]:
    """A role whose pods wait for their scheduling gate, however slow the machine is."""
    return make_role(replicas, schedulingGates=[{"name": "example.org/closed"}])


# A webhook that fails


@pytest.fixture
async def webhook(
    control_plane: Cluster, cluster: ApiCluster, namespace: str, tmp_path: Path
) -> AsyncIterator[FailingWebhook]:
    """A webhook for pods of the job `watched` in the test's namespace."""
    pods = Asked(namespace, "", "v1", "pods", "CREATE", WATCHED)
    async with failing_webhook(
        cluster, control_plane, pods, tmp_path / "ca", lambda: _is_in_force(cluster, namespace)
    ) as failing:
        yield failing


async def _is_in_force(cluster: ApiCluster, namespace: str) -> bool:
    pod = make_paddle_job("probe", namespace)["spec"]["worker"]["template"] | {
        "metadata": {"namespace": namespace, "name": "probe", "labels": WATCHED}
    }
    try:
        await cluster.create(PODS, pod)
    except Retry:
        return True
    await cluster.delete(PODS, Key(namespace, "probe"), grace_seconds=0)
    return False


async def test_a_pod_webhook_that_answers_500_is_named_and_holds_up_no_other_job(
    jobs: JobServiceHarness, webhook: FailingWebhook
) -> None:
    clock = FastClock()  # that of the service
    await jobs.start()
    began = clock.monotonic()
    key = await jobs.create(make_paddle_job("watched", worker=unscheduled(20)))
    blocked = await jobs.wait_condition(key, "Blocked", "FailedCreate")
    assert "InternalError: " in blocked["message"]
    assert "policy.example.com" in blocked["message"]
    other = await jobs.create(make_paddle_job("other", worker=unscheduled(2)))
    await jobs.wait_pods(other, 2)
    await jobs.set_pods(other, "Running")
    await jobs.wait_phase(other, "Running")
    await jobs.to_end(other)
    # After 1, 2, 4, 8 ... seconds: the tries of a pod grow with the logarithm of the time.
    await eventually(lambda: max(webhook.asked.values()) >= 4)
    allowed = 2 + math.log2(clock.monotonic() - began + 1)
    assert max(webhook.asked.values()) <= allowed
    assert len(webhook.asked) <= 16, "what refuses so many pods would refuse the others too"
    assert await jobs.pods(key) == []
    shown = await jobs.status(key)
    assert (shown["phase"], shown["reason"], shown["message"]) == (
        "Pending",
        "FailedCreate",
        blocked["message"],
    )

    webhook.is_broken = False
    await jobs.wait_pods(key, 20, within=120)
    await jobs.wait_condition(key, "Blocked", "Recovered")
    warned = {event.reason for event in await jobs.kubernetes_events() if event.type == "Warning"}
    assert warned == {"FailedCreate"}


# Many at once


@pytest.mark.timeout(900)
async def test_a_thousand_jobs_deleted_at_once_go_with_all_they_have_and_hold_up_no_new_one(
    jobs: JobServiceHarness,
) -> None:
    await jobs.start()
    keys = await gather_bounded(jobs.create(_one_of_many(index)) for index in range(MANY))
    await jobs.wait_objects(PODS, MANY, within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    await jobs.wait_objects(SERVICES, MANY // 10, within=THOUSAND_JOBS_TIMEOUT_SECONDS)

    await gather_bounded(jobs.cluster.delete(PADDLE_JOBS, key) for key in keys)
    fresh = await jobs.create(make_paddle_job("fresh", worker=unscheduled(2)))
    await jobs.wait_pods(fresh, 2, within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    await jobs.set_pods(fresh, "Running")
    await jobs.wait_phase(fresh, "Running", within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    await jobs.wait_objects(PADDLE_JOBS, 1, within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    await jobs.wait_objects(PODS, 2, within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    await jobs.wait_objects(SERVICES, 0, within=THOUSAND_JOBS_TIMEOUT_SECONDS)

    def all_are_told() -> bool:
        return Counter(jobs.facts())["JobDeleted"] >= MANY

    await eventually(all_are_told, within=THOUSAND_JOBS_TIMEOUT_SECONDS)
    assert Counter(jobs.facts())["JobDeleted"] == MANY
    configs = {config["metadata"]["name"] for config in await jobs.objects(CONFIG_MAPS)}
    assert configs <= {"fresh", "kube-root-ca.crt"}
    await jobs.to_end(fresh)


def _one_of_many(index: int) -> Object:
    """Every tenth has a Service and a ConfigMap from the beginning."""
    network = "Service" if index % 10 == 0 else "PodIP"
    return make_paddle_job(f"many-{index}", intranet=network, worker=unscheduled(1))


# The API server is killed: last, for afterwards the controller manager takes a while to lead again


async def test_jobs_survive_kill_9_of_the_api_server(jobs: JobServiceHarness, control_plane: Cluster) -> None:
    """Watches are cut and calls fail at any moment; each pod is made, each fact published once."""
    await jobs.start()
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember_pods(jobs, made))
    try:
        running = await jobs.to_running("runs")
        jobs_before = len(made)
        keys = [
            await jobs.create(make_paddle_job(f"starts-{i}", cleanPodPolicy="Never", worker=unscheduled(12)))
            for i in range(4)
        ]
        await eventually(lambda: len(made) >= jobs_before + 5, every=0.005)
        kill_api_server(control_plane)
        await eventually(lambda: _answers(jobs, running))
        for key in keys:
            await jobs.wait_pods(key, 12)
        await jobs.to_end(running)
        for key in keys:
            await jobs.set_pods(key, "Running")
            await jobs.wait_phase(key, "Running")
            await jobs.to_end(key)
        for key in (running, *keys):
            await jobs.wait_facts(key, "JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")
        await eventually(lambda: len(made) >= 2 + 4 * 12, what="all pods were seen")
    finally:
        await end(watching)
    assert len(made) == 2 + 4 * 12
    assert all(len(uids) == 1 for uids in made.values())


async def _answers(jobs: JobServiceHarness, key: Key) -> bool:
    try:
        return await jobs.exists(key)
    except Retry:
        return False


async def _remember_pods(jobs: JobServiceHarness, made: dict[str, set[str]]) -> None:
    async for change in jobs.cluster.watch(PODS, jobs.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["name"], set()).add(meta["uid"])
