"""The harness drives a controller: queue, time, faults, restarts. The controller here is a small example."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, Object, Resource
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.harness import Fakes, Harness, Wake

KEY = Key("default", "job")
JOB: Object = {"metadata": {"name": "job", "namespace": "default"}, "spec": {}}


class Counting:
    """Counts its passes over a job in the status up to three, then publishes."""

    def __init__(self, fakes: Fakes, wake_of: Callable[[Resource], Wake]) -> None:
        self.fakes = fakes
        self.passes = 0
        self.limit = 3
        self.broken: Exception | None = None
        self.jobs = Informer(fakes.cluster, PADDLE_JOBS, clock=fakes.clock)
        self.recorder = EventRecorder(fakes.cluster, "counting", "test", fakes.clock)
        self.reconcilers = {PADDLE_JOBS: self.reconcile}
        self._wake = wake_of(PADDLE_JOBS)

    def background(self) -> list[Coroutine[Any, Any, None]]:
        return [self.jobs.run(lambda change: self._wake(key_of(change.obj))), self._break()]

    async def wait_synced(self) -> None:
        await self.jobs.wait_synced()

    async def reconcile(self, key: Key) -> Result:
        self.passes += 1
        job = self.jobs.get(key)
        assert job is not None
        count = job.get("status", {}).get("count", 0)
        if count == self.limit:
            return Result(requeue_after=60.0)
        status = {
            "count": count + 1,
            "conditions": [{"type": "Counted", "status": "False", "reason": "Active"}],
        }
        await self.fakes.cluster.patch(PADDLE_JOBS, key, {"status": status}, subresource="status")
        if count + 1 == self.limit:
            await self.fakes.bus.publish(make_gated(1))
            self.recorder.normal(PADDLE_JOBS, job, "Scaled", "three")
        return Result()

    async def _break(self) -> None:
        while self.broken is None:
            await asyncio.sleep(0)
        raise self.broken


@pytest.fixture
async def harness() -> AsyncIterator[Harness[Counting]]:
    async with Harness(Counting, JOBS).running() as running:
        yield running


async def count(harness: Harness[Counting]) -> int:
    return int((await harness.status(KEY)).get("count", 0))


async def test_one_pass_sees_what_was_just_created(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    await harness.reconcile(KEY)
    assert await count(harness) == 1


async def test_settle_passes_until_nothing_is_written(harness: Harness[Counting]) -> None:
    result = await harness.settle(await harness.create(JOB))
    assert (await count(harness), harness.replica.passes, result) == (3, 4, Result(60.0))
    assert harness.facts() == ["JobGated"]
    assert await harness.kubernetes_events() == [("Normal", "Scaled", "three")]
    assert await harness.condition(KEY, "Counted") == {
        "type": "Counted",
        "status": "False",
        "reason": "Active",
    }


async def test_what_never_settles_fails(harness: Harness[Counting]) -> None:
    harness.replica.limit = 1000
    await harness.create(JOB)
    with pytest.raises(AssertionError, match="does not settle"):
        await harness.settle(KEY)


async def test_a_queue_that_never_empties_fails(harness: Harness[Counting]) -> None:
    harness.replica.limit = 1000
    await harness.create(JOB)
    with pytest.raises(AssertionError, match="never empties"):
        await harness.drain_queue()


async def test_the_queue_holds_what_the_watch_woke(harness: Harness[Counting]) -> None:
    assert harness.woken == []
    await harness.create(JOB)
    await harness.catch_up()
    assert harness.woken == [KEY]
    await harness.drain_queue()
    assert (harness.woken, await count(harness), harness.delays) == ([], 3, {KEY: 60.0})


async def test_delayed_keys_are_reconciled_when_they_are_due(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    await harness.drain_queue()
    passes = harness.replica.passes
    await harness.advance(59)
    assert harness.replica.passes == passes
    await harness.advance(1)
    assert harness.replica.passes == passes + 1


@pytest.mark.parametrize(("error", "after"), [(Retry("Busy", after=7), 7.0), (Conflict("moved on"), 1.0)])
async def test_a_failed_reconcile_is_due_again(
    harness: Harness[Counting], error: Exception, after: float
) -> None:
    await harness.create(JOB)
    with harness.failing(error, "patch-status", PADDLE_JOBS, times=1) as failed:
        await harness.drain_queue()
        assert (failed, harness.delays, await count(harness)) == ([KEY], {KEY: after}, 0)
        await harness.advance(after)
    assert await count(harness) == 3


async def test_other_errors_of_a_reconcile_reach_the_test(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    with (
        harness.failing(Permanent("Invalid", "refused"), "patch-status", PADDLE_JOBS),
        pytest.raises(Permanent),
    ):
        await harness.drain_queue()


async def test_faults_are_limited_to_what_is_named_and_to_the_block(harness: Harness[Counting]) -> None:
    other: Object = {"metadata": {"name": "other", "namespace": "default"}}
    with harness.failing(Retry("Away"), "create", PADDLE_JOBS, name="job") as failed:
        await harness.create(other)
        await harness.create(JOB, CONFIG_MAPS)
        with pytest.raises(Retry):
            await harness.create(JOB)
    await harness.create(JOB)
    assert failed == [KEY]
    assert await harness.names(PADDLE_JOBS) == ["job", "other"]


async def test_faults_nest(harness: Harness[Counting]) -> None:
    away = Retry("Away")
    with (
        harness.recorded_calls() as calls,
        harness.failing(away, "get", PADDLE_JOBS),
        pytest.raises(Retry),
    ):
        await harness.get(KEY)
    assert calls == [("get", "paddlejobs", "job")]


async def test_writes_are_counted_without_kubernetes_events(harness: Harness[Counting]) -> None:
    with harness.counted_writes() as writes:
        await harness.settle(await harness.create(JOB))
        await harness.kubernetes_events()
    assert writes == {("create", "paddlejobs"): 1, ("patch-status", "paddlejobs"): 3}


async def test_a_restart_begins_with_empty_memory_and_the_same_objects(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    await harness.drain_queue()
    first = harness.replica
    await harness.restart()
    assert harness.replica is not first
    assert harness.delays == {}
    await harness.drain_queue()
    assert (harness.replica.passes, await count(harness)) == (1, 3)


async def test_replicas_share_cluster_and_bus(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    async with Harness(Counting, JOBS, harness.fakes).running() as second:
        await second.drain_queue()
        assert (second.replica.passes, harness.facts()) == (4, ["JobGated"])
    assert harness.replica.passes == 0


async def test_a_background_task_that_fails_fails_the_test(harness: Harness[Counting]) -> None:
    harness.replica.broken = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        await harness.catch_up()
    with pytest.raises(ValueError, match="a bug"):
        await harness.restart()


async def test_a_background_task_that_failed_unnoticed_fails_the_block() -> None:
    async def run() -> None:
        async with Harness(Counting, JOBS).running() as harness:
            harness.replica.broken = ValueError("a bug")
            for _ in range(10):
                await asyncio.sleep(0)

    with pytest.raises(ValueError, match="a bug"):
        await run()


async def test_publishing_fails_while_the_bus_is_down(harness: Harness[Counting]) -> None:
    await harness.create(JOB)
    with harness.bus_down(), pytest.raises(Retry):
        await harness.settle(KEY)
    assert harness.facts() == []


async def test_the_queue_takes_as_many_keys_as_there_are(harness: Harness[Counting]) -> None:
    keys = [
        await harness.create({"metadata": {"name": f"job-{n}", "namespace": "default"}}) for n in range(40)
    ]
    await harness.drain_queue()
    assert [(await harness.status(key))["count"] for key in keys] == [3] * 40
