"""The memory bus helps tests of services in ways that the contract of all buses does not name."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.ports import Delivery, Reading, Subscription
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS, RUNS_BUCKET
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import event_filter, work_subject
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

CHUNK = work_subject("s", "r", 0, 0)


def make_gated(id_: str = "1") -> Event:
    return make_event(
        JobGated(), id=id_, source="t", namespace="ns", uid="u", time=datetime(2026, 1, 1, tzinfo=UTC)
    )


async def test_a_bus_that_is_down_raises_retry_everywhere() -> None:
    bus = MemoryBus()
    bus.down = True
    kv = bus.key_value(RUNS_BUCKET)
    for call in (
        bus.publish(make_gated()),
        kv.get("a"),
        kv.put("a", b""),
        kv.create("a", b""),
        kv.update("a", b"", 1),
        kv.delete("a"),
        kv.entries(">"),
        bus.work.put(CHUNK, b""),
        bus.work.get(CHUNK),
        bus.work.drop(CHUNK),
        bus.work.purge(CHUNK),
    ):
        with pytest.raises(Retry, match="BusUnreachable"):
            await call
    assert not await bus.healthy()
    bus.down = False
    await bus.publish(make_gated())
    assert await bus.healthy()


async def test_stored_events_can_be_looked_at() -> None:
    bus = MemoryBus()
    await bus.publish(make_gated())
    assert bus.events(JOBS.name) == [make_gated()]
    assert bus.stored(DEAD_LETTERS.name) == []


async def test_an_id_is_forgotten_after_the_duplicate_window() -> None:
    clock = ManualClock()
    bus = MemoryBus(clock)
    await bus.publish(make_gated())
    await clock.advance(JOBS.duplicate_window - 1)
    await bus.publish(make_gated())
    assert len(bus.events(JOBS.name)) == 1
    await clock.advance(2)
    await bus.publish(make_gated())
    assert len(bus.events(JOBS.name)) == 2


async def test_retries_follow_the_given_clock() -> None:
    clock = ManualClock()
    bus = MemoryBus(clock)
    attempts: list[int] = []

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise Retry("Busy", after=3600)

    await bus.publish(make_gated())
    task = asyncio.create_task(bus.consume(Subscription("d", JOBS.name, (event_filter("jobs"),)), handle))
    await eventually(lambda: attempts == [1])
    await clock.advance(3600)
    await eventually(lambda: attempts == [1, 2])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_undeclared_stream_is_refused() -> None:
    async def handle(_: Delivery) -> None: ...

    with pytest.raises(Permanent, match="UnknownStream"):
        await MemoryBus().consume(Subscription("d", "PW_ELSE", (">",)), handle)


async def test_ended_messages_leave_no_state_behind() -> None:
    clock = ManualClock()
    bus = MemoryBus(clock)
    for number in range(5):
        await bus.publish(make_gated(str(number)))
    reading = Reading(("pw.evt.jobs.>",), clock.now(), follow=False, durable="d")
    async with aclosing(bus.read(reading)) as events:
        for _ in range(5):
            await anext(events)
        assert [event async for event in events] == []
    assert bus._reader._kept["d"].attempts == {}
    await clock.advance(JOBS.duplicate_window)
    await bus.publish(make_gated("later"))
    assert list(bus._streams[JOBS.name]._ids) == ["later"]
