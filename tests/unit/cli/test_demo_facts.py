"""The demo counts the facts that it shows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from paddlewheel.cli.demo.facts import Facts
from paddlewheel.core.tasks import end
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def test_every_fact_that_is_shown_is_counted_once() -> None:
    bus, shown = MemoryBus(), list[str]()
    facts = Facts(bus, LONG_AGO, lambda delivery: shown.append(delivery.event.id))
    listening = asyncio.create_task(facts.listen())
    for number in (1, 2, 3, 3):
        await bus.publish(make_gated(number))
    assert await facts.compare({"uid/gated/3"}, within=10) == (3, 3)
    await end(listening)
    assert shown == ["uid/gated/1", "uid/gated/2", "uid/gated/3"]


async def test_a_fact_that_was_recorded_and_is_not_on_the_bus_is_missed() -> None:
    bus = MemoryBus()
    facts = Facts(bus, LONG_AGO, lambda _: None)
    listening = asyncio.create_task(facts.listen())
    await bus.publish(make_gated(1))
    assert await facts.compare({"uid/gated/1", "uid/ready/1"}, within=0.05) == (2, 1)
    await end(listening)


async def test_a_fact_on_the_bus_that_is_not_received_is_missed() -> None:
    bus = MemoryBus()
    await bus.publish(make_gated(1))
    assert await Facts(bus, LONG_AGO, lambda _: None).compare(set(), within=0.05) == (1, 0)


async def test_a_fact_on_its_way_is_waited_for() -> None:
    bus = MemoryBus()
    await bus.publish(make_gated(1))
    facts = Facts(bus, LONG_AGO, lambda _: None)
    comparing = asyncio.create_task(facts.compare(set(), within=30))
    await eventually(lambda: facts._news._waiters)
    listening = asyncio.create_task(facts.listen())
    assert await comparing == (1, 1)
    await end(listening)
