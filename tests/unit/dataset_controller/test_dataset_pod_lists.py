"""Pods of a namespace, listed for many sets that are deleted together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dataset_controller.pod_lists import PodList, PodLists, User
from dataset_controller.timing import POD_LIST_IDLE_GRACE_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import PODS, Objects, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster

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


def ask(lists: PodLists, clock: ManualClock, *, ago: float = 0.0) -> asyncio.Task[PodList]:
    return asyncio.create_task(lists.since(NAMESPACE, clock.monotonic() - ago))


async def test_all_who_ask_while_a_list_is_under_way_share_the_next_one(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = ask(lists, clock)
    await when(clock, lambda: len(cluster.began) == 1)
    volumes = [{"persistentVolumeClaim": {"claimName": "digits"}}]
    pod = {"metadata": {"name": "user", "namespace": NAMESPACE}, "spec": {"volumes": volumes}}
    await cluster.create(PODS, pod)

    others = [ask(lists, clock) for _ in range(SETS)]
    await when(clock, lambda: all(task.done() for task in (first, *others)))

    assert len(cluster.began) == 2
    assert [task.result().users for task in others] == [{"digits": (User("user", is_placed=False),)}] * SETS


async def test_who_is_content_with_an_older_list_costs_none(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = ask(lists, clock)
    await when(clock, first.done)
    await clock.advance(3.0)

    second = ask(lists, clock, ago=5.0)
    await when(clock, second.done)

    assert second.result() is first.result()
    assert len(cluster.began) == 1


async def test_what_has_ended_uses_nothing(lists: PodLists, cluster: SlowCluster, clock: ManualClock) -> None:
    volumes = [{"persistentVolumeClaim": {"claimName": "digits"}}, {"emptyDir": {}}]
    for phase, node in (("Running", "node-0"), ("Succeeded", "node-0"), ("Failed", "node-0")):
        metadata = {"name": phase.lower(), "namespace": NAMESPACE}
        spec = {"volumes": volumes, "nodeName": node}
        await cluster.create(PODS, {"metadata": metadata, "spec": spec})
        status = {"status": {"phase": phase}}
        await cluster.patch(PODS, Key(NAMESPACE, phase.lower()), status, subresource="status")

    asked = ask(lists, clock)
    await when(clock, asked.done)

    assert asked.result().users == {"digits": (User("running", is_placed=True),)}


async def test_a_list_that_fails_fails_for_all_who_share_it(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = ask(lists, clock)
    await when(clock, lambda: len(cluster.began) == 1)
    cluster.error = Retry("ApiServerTimeout", "no answer")

    others = [ask(lists, clock) for _ in range(SETS)]
    await when(clock, lambda: all(task.done() for task in (first, *others)))

    assert {str(task.exception()) for task in others} == {str(cluster.error)}
    assert len(cluster.began) == 2


async def test_who_gives_up_leaves_the_list_to_the_others(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = ask(lists, clock)
    await when(clock, lambda: len(cluster.began) == 1)
    second = ask(lists, clock)

    await end(first)
    await when(clock, second.done)

    assert second.result().users == {}


async def test_pods_that_nobody_asks_for_are_forgotten(
    lists: PodLists, cluster: SlowCluster, clock: ManualClock
) -> None:
    first = ask(lists, clock)
    await when(clock, first.done)
    await clock.advance(POD_LIST_IDLE_GRACE_SECONDS + 1)
    await when(clock, asyncio.create_task(lists.since("team-b", clock.monotonic())).done)

    again = ask(lists, clock, ago=10 * POD_LIST_IDLE_GRACE_SECONDS)
    await when(clock, again.done)

    assert len(cluster.began) == 3
