"""What the tests of every bus share: the bus under test, facts, and handlers that record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Handler, RawMessage, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

AnyBus = MemoryBus | NatsBus
BUSES = ("memory", "nats", pytest.param("nats-direct", marks=pytest.mark.long))
ALL_JOBS = Subscription("test-jobs", JOBS.name, (event_filter("jobs"),))


@dataclass
class Probe:
    """A bus under test, and what tests need in addition to its ports: its contents, and ways to harm it."""

    bus: AnyBus
    stored: Callable[[str], Awaitable[list[RawMessage]]]
    forget_consumer: Callable[[str, str], Awaitable[None]]
    lose_facts: Callable[[], None]
    drop_first: Callable[[], Awaitable[None]]
    go_away: Callable[[], None]
    limit: Callable[[str, int], Awaitable[None]]


def make_gated(number: int, uid: str = "uid-1", *, id_: str = "") -> Event:
    """Fact `number` of one job; the number is told apart by the message."""
    job = ObjectRef(namespace="default", name="digits", uid=uid)
    data = JobGated(job=job, reason="SampleSetNotReady", message=str(number))
    return make_event(
        data,
        id=id_ or f"{uid}/gated/{number}",
        source="test",
        namespace="default",
        uid=uid,
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )


def number_of(delivery: Delivery) -> int:
    assert isinstance(delivery.event.data, JobGated)
    return int(delivery.event.data.message)


@dataclass
class Seen:
    """A handler that writes down what it got and then does as told."""

    deliveries: list[Delivery] = field(default_factory=list)
    trouble: Callable[[Delivery], Exception | None] = lambda _: None

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if error := self.trouble(delivery):
            raise error

    @property
    def numbers(self) -> list[int]:
        return [number_of(d) for d in self.deliveries]


@asynccontextmanager
async def consuming(
    probe: Probe, handler: Handler, subscription: Subscription = ALL_JOBS
) -> AsyncIterator[None]:
    task = asyncio.create_task(probe.bus.consume(subscription, handler))
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def settled(probe: Probe, handler: Seen, subscription: Subscription = ALL_JOBS) -> None:
    """A second consumer of the same name gets nothing but a new message: all before has ended."""
    await probe.bus.publish(make_gated(999, uid="last"))
    async with consuming(probe, handler, subscription):
        await eventually(lambda: 999 in handler.numbers)


async def letters(probe: Probe, durable: str | None = None) -> list[DeadLetter]:
    async with aclosing(probe.bus.dead_letters.list(durable)) as found:
        return [letter async for letter in found]


def refusing(*numbers: int) -> Seen:
    return Seen(
        trouble=lambda d: Permanent("NoSuchSet", "Menge fehlt: größer") if number_of(d) in numbers else None
    )


async def park(probe: Probe, *numbers: int, subscription: Subscription = ALL_JOBS) -> list[DeadLetter]:
    """Facts of one object that its durable refused, and nothing else left to do."""
    for number in numbers:
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, refusing(*numbers), subscription):

        async def all_parked() -> list[DeadLetter] | None:
            found = await letters(probe, subscription.durable)
            return found if len(found) == len(numbers) else None

        found = await eventually(all_parked)
    after = Seen()
    await settled(probe, after, subscription)
    assert after.numbers == [999]
    return found
