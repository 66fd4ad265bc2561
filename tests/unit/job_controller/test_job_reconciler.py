"""The reconciler over memory adapters: life of a job, counted writes, crashes, foreign children."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.app import RESOURCES, claim
from job_controller.timing import FIRST_STATUS_GRACE_SECONDS
from job_controller.watch import BY_OWNER
from paddlewheel.contracts.generated.jobs_v1 import JobSucceeded
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, NotFound, Retry
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_id, id_of, uid_of
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object, Resource
from paddlewheel.operator.domain.plan import Create
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.failures import Owner
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

WORKERS = ["demo-worker-0", "demo-worker-1"]


def collective(**spec: Any) -> Object:
    return make_paddle_job(**({"worker": make_role(2)} | spec))


async def test_a_job_from_manifest_to_completed(harness: JobHarness) -> None:
    key = await harness.begin(collective(cleanPodPolicy="Never"))
    status = await harness.status(key)
    assert (status["phase"], status["mode"]) == ("Pending", "Collective")
    assert status["worker"]["pending"] == 2
    assert [r["name"] for r in status["worker"]["refs"]] == WORKERS
    assert (await harness.get(key))["metadata"]["finalizers"] == ["finalizers.paddlepaddle.org"]

    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.config(key))["PADDLE_TRAINER_ENDPOINTS"] == "10.0.0.1:36000,10.0.0.2:36000"
    assert (await harness.status(key))["startTime"] == "2026-01-01T00:00:01Z"
    assert await harness.service_names() == []

    await harness.clock.advance(90)
    await harness.end_pods(message='{"accuracy": 0.97}')
    await harness.settle(key)
    status = await harness.status(key)
    assert status["phase"] == "Completed"
    assert status["completionTime"] == "2026-01-01T00:01:31Z"
    assert status["results"] == {"accuracy": 0.97}
    assert status["worker"]["succeeded"] == 2
    assert (await harness.condition(key, "Complete"))["status"] == "True"
    assert (await harness.condition(key, "Running"))["status"] == "False"
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning", "JobSucceeded"]
    succeeded = harness.published[-1].data
    assert isinstance(succeeded, JobSucceeded)
    assert (succeeded.seconds, succeeded.results) == (90.0, {"accuracy": 0.97})
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert all((await harness.announced(key)).values())


async def test_the_first_status_says_how_an_autoscaler_finds_the_workers(harness: JobHarness) -> None:
    with harness.counted_writes() as writes:
        key = await harness.begin(collective(ps=make_role(1)))
    assert writes["patch-status", "paddlejobs"] == 1
    selector = (await harness.status(key))["selector"]
    found = await harness.cluster.list(PODS, "default", label_selector=selector)
    assert [pod["metadata"]["name"] for pod in found] == WORKERS
    servers = await harness.begin(make_paddle_job("servers", ps=make_role(1)))
    assert "selector" not in await harness.status(servers)


async def test_nothing_is_written_when_nothing_changed(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    with harness.counted_writes() as writes:
        for _ in range(3):
            await harness.reconcile(key)
    assert not writes
    assert len(harness.facts()) == 3


async def test_writes_of_a_whole_life_are_counted(harness: JobHarness) -> None:
    with harness.counted_writes() as writes:
        key = await harness.to_running(make_paddle_job(worker=make_role(20), cleanPodPolicy="Never"))
        await harness.end_pods()
        await harness.settle(key)
    # Kubelet's part: each pod is run once and ended once.
    assert writes.pop(("patch-status", "pods")) == 40
    assert writes == {
        ("create", "paddlejobs"): 1,
        ("patch", "paddlejobs"): 1,
        ("create", "pods"): 20,
        ("create", "configmaps"): 1,
        # Running, with the facts that it was accepted and starting, and succeeded.
        ("patch-status", "paddlejobs"): 2,
    }


REQUESTS = {
    "PodIP": [
        ("get", "configmaps"),
        ("patch", "paddlejobs"),
        ("create", "pods"),
        ("create", "configmaps"),
        ("patch-status", "paddlejobs"),
    ],
    "Service": [
        ("patch", "paddlejobs"),
        ("create", "configmaps"),
        ("create", "services"),
        ("create", "pods"),
        ("patch-status", "paddlejobs"),
    ],
}
"""The requests of job-controller in each network. The purpose of each one is in docs/decisions/0051."""


@pytest.mark.parametrize("network", REQUESTS)
async def test_the_requests_for_a_job_of_one_pod_until_it_runs(harness: JobHarness, network: str) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(1), intranet=network))
    with harness.recorded_calls() as calls:
        await harness.settle(key)
        await harness.run_pods()
        await harness.settle(key)
    # What is done to pods that exist is the kubelet's part.
    requests = [(verb, plural) for verb, plural, _ in calls if plural != "pods" or verb == "create"]
    assert requests == REQUESTS[network]


async def test_all_pods_are_created_in_one_pass_and_once_though_the_caches_lag(
    harness: JobHarness,
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(30)))
    await harness.catch_up()
    for _ in range(3):
        # Not a turn of the loop between the passes but what the calls themselves take.
        await harness.reconcile_stale(key)
    assert harness.cluster.writes["create", "pods"] == 30
    assert len(await harness.pod_names()) == 30


async def test_a_crash_between_pods_and_status_neither_doubles_nor_loses(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.reconcile(key)
    await harness.clock.advance(FIRST_STATUS_GRACE_SECONDS)
    with harness.failing(Retry("Killed"), "patch-status", PADDLE_JOBS), pytest.raises(Retry):
        await harness.reconcile(key)
    assert await harness.pod_names() == WORKERS
    assert harness.facts() == []
    await harness.restart()
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    assert harness.cluster.writes["create", "pods"] == 2
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning"]


async def test_a_crash_in_the_middle_of_the_pods_goes_on_where_it_stopped(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(6)))
    pass_ = asyncio.create_task(harness.reconcile(key))

    def die(verb: Verb, resource: Resource, child: Key) -> None:
        if (verb, resource, child.name) == ("create", PODS, "demo-worker-3"):
            pass_.cancel()
            raise Retry("Killed")

    with harness.intercepted(die), pytest.raises(asyncio.CancelledError):
        await pass_
    assert 0 < harness.cluster.writes["create", "pods"] < 6
    await harness.restart()
    await harness.settle(key)
    assert harness.cluster.writes["create", "pods"] == 6
    assert len(await harness.pod_names()) == 6


async def test_our_own_pod_from_before_a_crash_counts_as_created(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    pod_owner = await harness.get(key)
    job = uid_of(pod_owner)
    pod = await harness.get(Key("default", "demo-worker-0"), PODS)
    # Just started, its caches still empty.
    pods = Informer(harness.cluster, PODS, clock=harness.clock, indexes={BY_OWNER: controller_id})
    executor = Executor(harness.cluster, RESOURCES, {PODS.kind: pods}, harness.clock, claim)
    applied = await executor.apply(Owner(job, 1), [Create(PODS.kind, pod)])
    assert (applied.created, applied.troubles) == (("Pod",), ())
    assert [uid_of(p) for p in pods.by_index(BY_OWNER, id_of(pod_owner))] == [uid_of(pod)]
    assert harness.cluster.writes["create", "pods"] == 2


async def test_children_wake_their_job(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    harness.forget_woken()
    await harness.end_pods("demo-worker-0")
    await harness.catch_up()
    assert set(harness.delays) == {key}
    await harness.end_pods("demo-worker-1")
    await harness.catch_up()
    assert harness.woken == [key]


async def test_an_impossible_job_is_refused_once(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job("a" * 60, worker=make_role(1)))
    await harness.settle(key)
    condition = await harness.condition(key, "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
    assert "metadata.name" in condition["message"]
    assert await harness.pod_names() == []
    assert harness.facts() == []
    events = await harness.kubernetes_events()
    assert [e[:2] for e in events] == [("Warning", "InvalidSpec")]


async def test_unknown_words_are_shown_as_conditions_until_corrected(harness: JobHarness) -> None:
    key = await harness.create(collective(intranet="Podip", cleanPodPolicy="OnFailed"))
    await harness.settle(key)
    assert (await harness.condition(key, "NetworkWordUnknown"))["status"] == "True"
    assert (await harness.condition(key, "CleanPodPolicyUnknown"))["status"] == "True"
    await harness.patch(key, {"spec": {"intranet": "PodIP"}})
    await harness.settle(key)
    assert (await harness.condition(key, "NetworkWordUnknown"))["status"] == "False"


async def test_concurrent_edits_are_read_again_not_overwritten(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.catch_up()
    await harness.patch(key, {"metadata": {"labels": {"edited": "1"}}})
    with pytest.raises(Conflict):
        await harness.reconcile_stale(key)
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS


async def test_writing_to_a_job_that_is_gone_is_a_conflict_not_a_bug(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.catch_up()
    await harness.delete(key)
    with pytest.raises(Conflict, match="default/demo is gone"):
        await harness.reconcile_stale(key)


async def test_a_job_that_goes_before_its_status_is_written_is_a_conflict_too(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.reconcile(key)
    await harness.clock.advance(FIRST_STATUS_GRACE_SECONDS)
    with (
        harness.failing(NotFound("gone"), "patch-status", PADDLE_JOBS),
        pytest.raises(Conflict, match="default/demo is gone"),
    ):
        await harness.reconcile(key)
