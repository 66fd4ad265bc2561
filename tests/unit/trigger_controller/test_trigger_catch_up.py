"""A replica whose cache lags acknowledges no event of a Trigger that another replica has seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import NotFound, PaddlewheelError, Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import TRIGGERS, Objects
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually
from trigger_controller import catch_up
from trigger_controller.catch_up import CatchUp
from trigger_controller.timing import CACHE_CHECK_MAX_INTERVAL_SECONDS


class Replica:
    """Its cache does not change until it is let go."""

    def __init__(self, clock: Clock) -> None:
        self.cluster = MemoryCluster()
        self.store = Informer(self.cluster, TRIGGERS, clock=ManualClock())
        self.catch_up = CatchUp(self.cluster, self.store, "", clock)
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
    monkeypatch.setattr(catch_up, "CACHE_CHECK_INTERVAL_SECONDS", 0.01)
    made = Replica(SystemClock())
    yield made
    for task in made.tasks:
        await end(task)


class SlowServer:
    """Every list takes `seconds`, then it raises `error` if there is one."""

    def __init__(self, replica: Replica, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.error: PaddlewheelError | None = None
        self.lists = 0
        self._clock = clock
        monkeypatch.setattr(replica.cluster, "list", self._list)

    async def _list(self, *_: object, **__: object) -> Objects:
        self.lists += 1
        if self.seconds:
            await self._clock.sleep(self.seconds)
        if self.error:
            raise self.error
        return []

    async def ends(self, event: asyncio.Task[None], within: float) -> bool:
        """Whether the event is handled within so many seconds of the clock."""
        for _ in range(round(within / 0.5)):
            await self._turn()
            if event.done():
                return True
            await self._clock.advance(0.5)
        await self._turn()
        return event.done()

    async def _turn(self) -> None:
        """Let every task run that waits for no clock."""
        for _ in range(20):
            await asyncio.sleep(0)


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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slow(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Replica, SlowServer]]:
    """A replica whose clock and API server the test controls. There is no Trigger."""
    made = Replica(clock)
    yield made, SlowServer(made, clock, monkeypatch)
    for task in made.tasks:
        await end(task)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("ApiServerUnreachable", "away"),
        Retry("TooManyRequests", "storage is (re)initializing"),
        Permanent("Forbidden", "the server has not read its roles yet"),
        NotFound("the server has not read its CRDs yet"),
    ],
)
async def test_events_go_on_as_soon_as_the_api_server_is_back(
    slow: tuple[Replica, SlowServer], error: PaddlewheelError
) -> None:
    """The time of the outage is not a time that lists took."""
    replica, server = slow
    server.error = error
    early = replica.received()
    assert not await server.ends(early, 15)
    late = replica.received()
    assert not await server.ends(late, 15)
    server.error, lists = None, server.lists

    assert await server.ends(early, 2)
    assert await server.ends(late, 0)
    assert await server.ends(replica.received(), 0)
    assert server.lists == lists + 2


async def test_a_list_that_hung_delays_later_events_for_a_limited_time(
    slow: tuple[Replica, SlowServer],
) -> None:
    replica, server = slow
    server.seconds = 50.0
    assert await server.ends(replica.received(), 50)
    server.seconds = 0.0
    assert await server.ends(replica.received(), CACHE_CHECK_MAX_INTERVAL_SECONDS)


async def test_lists_take_a_fifth_of_the_time(slow: tuple[Replica, SlowServer]) -> None:
    replica, server = slow
    server.seconds = 1.0
    assert await server.ends(replica.received(), 1)
    event = replica.received()
    assert not await server.ends(event, 4)
    assert server.lists == 2
    assert await server.ends(event, 1)
