"""Pods that are lost before they began, or that do not depend on each other: counted and delayed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from paddlewheel.contracts.generated.jobs_v1 import JobRestarted
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PODS, Object
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

FIRST, SECOND, THIRD = (Key("default", f"demo-worker-{index}") for index in range(3))
POD_SCOPE: dict[str, Any] = {"failurePolicy": {"restartScope": "Pod"}}
DISRUPTIONS = {
    "EvictionByEvictionAPI": "Evicted",
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeLost",
    "": "PodDeleted",
}


CORRECTED = [{"name": "main", "image": "example/train:2"}]


def job(workers: int = 2, **spec: Any) -> Object:
    return make_paddle_job(**{"worker": make_role(workers)} | spec)


async def take(harness: JobHarness, *pods: Key, reason: str = "") -> None:
    """Another controller deletes these pods at the same time."""
    for pod in pods:
        if reason:
            target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            await harness.set_status(pod, {"conditions": [target]}, PODS)
        await harness.delete(pod, PODS)


async def delete_whenever_there(harness: JobHarness, pod: Key, seconds: int) -> int:
    """How often the pod is created within this time while another client deletes it at once."""
    times = 0
    for _ in range(seconds):
        for _ in range(4):
            await harness.drain_queue()
            if await harness.exists(pod, PODS):
                times += 1
                await harness.delete(pod, PODS)
        await harness.advance(1)
    return times


async def test_a_pod_that_is_deleted_before_it_began_is_made_at_growing_intervals(
    harness: JobHarness,
) -> None:
    key = await harness.create(job())
    await harness.settle(key)
    await harness.patch(FIRST, {"spec": {"nodeName": "node-0"}}, PODS)
    assert await delete_whenever_there(harness, SECOND, 50) <= 5
    running = await harness.condition(key, "Running")
    assert running["reason"] == "Restarting"
    assert "others are made at" in running["message"]
    assert running["message"].endswith("pod demo-worker-1 was deleted")


async def test_deletions_before_the_beginning_never_end_a_job(harness: JobHarness) -> None:
    key = await harness.create(job())
    await harness.settle(key)
    await harness.patch(FIRST, {"spec": {"nodeName": "node-0"}}, PODS)
    assert 11 < await delete_whenever_there(harness, SECOND, 3_000) < 16
    status, running = await harness.status(key), await harness.condition(key, "Running")
    assert (status["phase"], running["reason"]) == ("Pending", "Restarting")
    assert running["message"].endswith("pod demo-worker-1 was deleted")
    assert status.get("budgets") is None


async def test_a_pod_that_nodes_refuse_is_made_at_growing_intervals_and_the_others_stay(
    harness: JobHarness,
) -> None:
    key = await harness.create(job())
    await harness.settle(key)
    await harness.patch(FIRST, {"spec": {"nodeName": "node-0"}}, PODS)
    first = (await harness.get(FIRST, PODS))["metadata"]["uid"]
    made = set[str]()
    for _ in range(3_000):
        if await harness.exists(SECOND, PODS):
            made.add((await harness.get(SECOND, PODS))["metadata"]["uid"])
            refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node has no room"}
            await harness.set_status(SECOND, refused, PODS)
        await harness.drain_queue()
        await harness.advance(1)
    assert 11 < len(made) < 16
    assert (await harness.get(FIRST, PODS))["metadata"]["uid"] == first
    assert (await harness.condition(key, "Running"))["message"].endswith(
        "pod demo-worker-1 failed (OutOfcpu): Node has no room"
    )


@pytest.mark.parametrize("scope", [{}, POD_SCOPE], ids=["before the beginning", "restart scope Pod"])
async def test_losses_of_different_ranks_do_not_delay_each_other(harness: JobHarness, scope: Object) -> None:
    ranks = [Key("default", f"demo-worker-{index}") for index in range(12)]
    key = await harness.create(job(len(ranks), **scope))
    await harness.settle(key)
    if scope:
        await harness.run_pods()
        await harness.settle(key)
    for number, rank in enumerate(ranks, start=1):
        await take(harness, rank, reason="EvictionByEvictionAPI")
        await harness.settle(key)
        assert rank.name in await harness.pod_names(), f"rank {number} was lost for the first time"
        await harness.advance(60)
    assert await harness.restarts(key) == (0, {"Evicted": len(ranks)})


async def test_the_pod_of_a_rank_that_is_lost_again_waits_and_that_of_another_rank_does_not(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(job(3, **POD_SCOPE))
    for _ in range(3):
        await take(harness, SECOND)
        await harness.drain_queue()
        await harness.advance(20)
        await harness.run_pods()
    await take(harness, SECOND)
    await harness.settle(key)
    assert SECOND.name not in await harness.pod_names()
    await take(harness, THIRD)
    await harness.settle(key)
    assert await harness.pod_names() == [FIRST.name, THIRD.name]
    running = await harness.condition(key, "Running")
    assert running["message"].endswith("pod demo-worker-1 was deleted"), "it is the pod that waits"
    await harness.advance(41)
    assert SECOND.name in await harness.pod_names()


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"paddlepaddle.org/restart": "now"}}},
        {"spec": {"worker": {"template": {"spec": {"containers": CORRECTED}}}}},
    ],
    ids=["annotation", "template"],
)
async def test_a_change_by_the_user_ends_the_delay_of_a_rank_that_was_lost_often(
    harness: JobHarness, change: Object
) -> None:
    key = await harness.create(job())
    await harness.settle(key)
    await delete_whenever_there(harness, FIRST, 200)
    assert FIRST.name not in await harness.pod_names(), "it waits"
    await harness.patch(key, change)
    await harness.settle(key)
    assert FIRST.name in await harness.pod_names()
    await harness.delete(FIRST, PODS)
    await harness.settle(key)
    assert FIRST.name in await harness.pod_names(), "its first loss since then"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_change_by_the_user_ends_the_delay_of_an_epoch(harness: JobHarness, workers: int) -> None:
    key = await harness.to_running(job(workers, backoffLimit=9))
    for _ in range(3):
        await harness.end_pods(FIRST.name, phase="Failed", exit_code=1)
        await harness.settle(key)
        before = await harness.pod_names()
        await harness.advance(20)
        await harness.run_pods()
        await harness.settle(key)
    await harness.end_pods(FIRST.name, phase="Failed", exit_code=1)
    await harness.settle(key)
    assert (before, await harness.pod_names()) == ([], []), "the second and each further failure"
    await harness.patch(key, {"spec": {"worker": {"template": {"spec": {"containers": CORRECTED}}}}})
    await harness.settle(key)
    assert len(await harness.pod_names()) == workers


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_change_by_the_user_ends_the_delay_of_pods_that_never_began(
    harness: JobHarness, workers: int
) -> None:
    key = await harness.create(job(workers))
    await harness.settle(key)
    for _ in range(4):
        await take(harness, *[Key("default", name) for name in await harness.pod_names()])
        await harness.settle(key)
        await harness.advance(21)
    assert await harness.pod_names() == []
    await harness.patch(key, {"spec": {"worker": {"template": {"spec": {"containers": CORRECTED}}}}})
    await harness.settle(key)
    assert len(await harness.pod_names()) == workers


async def test_the_other_pods_stay_when_one_is_deleted_before_it_began(harness: JobHarness) -> None:
    key = await harness.create(job())
    await harness.settle(key)
    first = (await harness.get(FIRST, PODS))["metadata"]["uid"]
    await take(harness, SECOND)
    await harness.settle(key)
    assert (await harness.get(FIRST, PODS))["metadata"]["uid"] == first
    assert await harness.pod_names() == [FIRST.name, SECOND.name]
    assert await harness.restarts(key) == (0, {"PodDeleted": 1})


async def test_pods_that_are_lost_together_before_the_beginning_count_once(harness: JobHarness) -> None:
    key = await harness.create(job(3))
    await harness.settle(key)
    await take(harness, FIRST, SECOND, THIRD, reason="EvictionByEvictionAPI")
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {"Evicted": 1})
    assert len(await harness.pod_names()) == 3, "the first time at once"


@pytest.mark.parametrize(("reason", "cause"), DISRUPTIONS.items())
async def test_with_restart_scope_pod_a_disruption_is_counted_and_told(
    harness: JobHarness, reason: str, cause: str
) -> None:
    key = await harness.to_running(job(**POD_SCOPE))
    await take(harness, SECOND, reason=reason)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {cause: 1})
    assert await harness.pod_names() == [FIRST.name, SECOND.name]
    told = [event.data for event in harness.published if isinstance(event.data, JobRestarted)]
    assert [(fact.reason, fact.epoch) for fact in told] == [(cause, 0)]


async def test_with_restart_scope_pod_a_rule_judges_a_disruption(harness: JobHarness) -> None:
    rules = [{"action": "Fail", "reasons": ["Evicted"]}]
    key = await harness.to_running(job(failurePolicy={"restartScope": "Pod", "rules": rules}))
    await take(harness, SECOND, reason="EvictionByEvictionAPI")
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "FailureRule"


async def test_with_restart_scope_pod_a_drain_is_one_restart_of_its_pods(harness: JobHarness) -> None:
    key = await harness.to_running(job(3, **POD_SCOPE))
    await take(harness, FIRST, THIRD, reason="EvictionByEvictionAPI")
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {"Evicted": 1})
    assert len(await harness.pod_names()) == 3
    message = (await harness.status(key))["lastRestart"]["message"]
    assert message == "pod demo-worker-0 was evicted, and 1 more pod"


async def test_with_restart_scope_pod_disruptions_have_no_limit(harness: JobHarness) -> None:
    key = await harness.to_running(job(**POD_SCOPE))
    for times in range(1, 13):
        await take(harness, SECOND)
        await harness.drain_queue()
        await harness.advance(700)
        await harness.run_pods()
        await harness.drain_queue()
        assert await harness.restarts(key) == (0, {"PodDeleted": times})
        await harness.advance(700)
    assert (await harness.status(key))["phase"] == "Running"
