"""Reading from a server that fails for a moment, repeats itself, is slow, or is late."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from nats.js.api import ConsumerConfig, ConsumerInfo

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Unavailable
from paddlewheel.testkit.facts import make_gated

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ALL = Reading(("pw.evt.jobs.>",), LONG_AGO)
DURABLE = replace(ALL, durable="sub-me")
PATIENCE = 15.0


def number_of(delivery: Delivery) -> int:
    assert isinstance(delivery.event.data, JobGated)
    return int(delivery.event.data.message)


async def read_numbers(bus: NatsBus, reading: Reading, most: int) -> list[int]:
    """The next `most` events, or those until the reading ends."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE), aclosing(bus.read(reading)) as events:
        async for delivery in events:
            found.append(number_of(delivery))
            if len(found) == most:
                break
    return found


async def test_an_event_is_delivered_although_narrowing_its_consumer_failed(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure, failures = bus._provision.consumer, [Unavailable("BusUnreachable", "a leader is elected")]

    async def fail_once(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if config.filter_subjects != list(DURABLE.subjects) and failures:
            raise failures.pop()
        return await ensure(stream, config)

    async def narrow(delivery: Delivery) -> tuple[str, ...]:
        return (delivery.subject,)

    monkeypatch.setattr(bus._provision, "consumer", fail_once)
    for number in range(3):
        await bus.publish(make_gated(number))
    assert await read_numbers(bus, replace(DURABLE, refine=narrow), most=3) == [0, 1, 2]
    assert not failures
