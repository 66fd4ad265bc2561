"""A replica whose cache lags acknowledges no event of a Trigger that another replica has seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import TRIGGERS
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually
from trigger_controller import catch_up
from trigger_controller.catch_up import CatchUp


class Replica:
    """Its cache does not change until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catch_up, "CACHE_CHECK_INTERVAL_SECONDS", 0.01)
        self.cluster = MemoryCluster()
        self.store = Informer(self.cluster, TRIGGERS, clock=ManualClock())
        self.catch_up = CatchUp(self.cluster, self.store, "", SystemClock())
        self.tasks: list[asyncio.Task[None]] = []

    def received(self) -> asyncio.Task[None]:
        """An event, which is looked up in the cache once this is done."""
        self.tasks.append(asyncio.create_task(self.catch_up.wait()))
        return self.tasks[-1]

    async def goes_on(self) -> None:
        self.tasks.append(asyncio.create_task(self.store.run(lambda _: self.catch_up.changed())))
        await self.store.wait_synced()


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    made = Replica(monkeypatch)
    yield made
    for task in made.tasks:
        await end(task)


async def lists(replica: Replica, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the cache was compared so many times."""
    count, check = 0, CatchUp._is_current

    async def counted(self: CatchUp) -> bool:
        nonlocal count
        try:
            return await check(self)
        finally:
            count += 1

    monkeypatch.setattr(CatchUp, "_is_current", counted)
    await eventually(lambda: count >= number)
    monkeypatch.setattr(CatchUp, "_is_current", check)


async def test_an_event_waits_until_the_cache_has_the_trigger(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.cluster.create(TRIGGERS, make_trigger())
    event = replica.received()
    await lists(replica, 2, monkeypatch)
    assert not event.done()
    await replica.goes_on()
    await event


async def test_an_event_waits_for_the_new_spec_and_not_for_a_status(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await replica.cluster.create(TRIGGERS, make_trigger())
    replica.store.wrote({**made, "metadata": {**made["metadata"], "resourceVersion": "0"}})
    await replica.received()
    replica.store.wrote({**made, "metadata": {**made["metadata"], "generation": 0}})
    event = replica.received()
    await lists(replica, 2, monkeypatch)
    assert not event.done()


async def test_a_deleted_trigger_is_not_waited_for(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    await replica.cluster.create(TRIGGERS, make_trigger())
    event = replica.received()
    await lists(replica, 1, monkeypatch)
    [made] = await replica.cluster.list(TRIGGERS)
    await replica.cluster.delete(TRIGGERS, key_of(made))
    await event


async def test_events_wait_while_the_api_server_is_away(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("ApiServerUnreachable", "away")

    with monkeypatch.context() as patched:
        patched.setattr(replica.cluster, "list", away)
        event = replica.received()
        await lists(replica, 2, monkeypatch)
        assert not event.done()
    await event


async def test_events_that_arrive_together_share_a_check(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, check = 0, CatchUp._is_current

    async def counted(self: CatchUp) -> bool:
        nonlocal count
        count += 1
        return await check(self)

    monkeypatch.setattr(CatchUp, "_is_current", counted)
    await asyncio.gather(*(replica.received() for _ in range(30)))
    assert count <= 2
