"""Pods of a namespace, listed for many sets that are deleted together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dataset_controller.pod_lists import PAUSE, PodLists
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import PODS, Objects, Resource

NAMESPACE = "team-a"
SETS = 50


class SlowCluster(MemoryCluster):
    """Each LIST takes a second, and sees what is there when it ends."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.error: Retry | None = None
        self.began: list[float] = []
        self._slow = clock

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        self.began.append(self._slow.monotonic())
        await self._slow.sleep(1.0)
        if self.error is not None:
            raise self.error
        return await super().list(resource, namespace)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> SlowCluster:
    return SlowCluster(clock)


@pytest.fixture
def lists(cluster: SlowCluster, clock: ManualClock) -> PodLists:
    return PodLists(cluster, clock)


async def when(clock: ManualClock, is_done: Callable[[], bool]) -> None:
    for _ in range(100):
        if is_done():
            return
        await clock.advance(0.5)
    raise AssertionError("it has not come about")


async def test_all_who_ask_while_a_list_is_under_way_share_the_next_one(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = asyncio.create_task(lists.of(NAMESPACE))
    await when(clock, lambda: len(cluster.began) == 1)
    await cluster.create(PODS, {"metadata": {"name": "user", "namespace": NAMESPACE}})

    others = [asyncio.create_task(lists.of(NAMESPACE)) for _ in range(SETS)]
    await when(clock, lambda: all(task.done() for task in (first, *others)))

    assert len(cluster.began) == 2
    assert [[pod["metadata"]["name"] for pod in task.result()] for task in others] == [["user"]] * SETS


async def test_a_list_that_fails_fails_for_all_who_share_it(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    cluster.error = Retry("ApiServerTimeout", "no answer")
    asked = [asyncio.create_task(lists.of(NAMESPACE)) for _ in range(SETS)]
    await when(clock, lambda: all(task.done() for task in asked))

    assert {str(task.exception()) for task in asked} == {str(cluster.error)}
    assert len(cluster.began) <= 2


async def test_listing_takes_a_fifth_of_the_time_at_most(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = asyncio.create_task(lists.of(NAMESPACE))
    await when(clock, first.done)
    ended = clock.monotonic()

    second = asyncio.create_task(lists.of(NAMESPACE))
    await when(clock, second.done)

    assert cluster.began[1] - ended >= PAUSE - 0.5


async def test_another_namespace_does_not_wait(lists: PodLists, clock: ManualClock) -> None:
    await when(clock, asyncio.create_task(lists.of(NAMESPACE)).done)
    began = clock.monotonic()

    await when(clock, asyncio.create_task(lists.of("team-b")).done)

    assert clock.monotonic() - began < PAUSE


async def test_who_gives_up_leaves_the_list_to_the_others(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = asyncio.create_task(lists.of(NAMESPACE))
    await when(clock, lambda: len(cluster.began) == 1)
    second = asyncio.create_task(lists.of(NAMESPACE))

    await end(first)
    await when(clock, second.done)

    assert second.result() == []
