"""What the tests of the bus on a real server share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from paddlewheel.bus.access import Access
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Bus, Delivery, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.tasks import end
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually, patiently

T = TypeVar("T")
ALL_JOBS = Subscription("faults", JOBS.name, (event_filter("jobs"),), ack_wait=2.0)
OBJECTS = 10
ALL = Subscription("all-jobs", JOBS.name, ("pw.evt.jobs.>",))


@asynccontextmanager
async def bus_of(access: Access) -> AsyncIterator[NatsBus]:
    """A client, closed at the end."""
    bus = NatsBus(access)
    try:
        yield bus
    finally:
        await bus.close()


def make_fact(number: int, uid: str = "") -> Event:
    """Fact `number`, of an object of its own or of `uid`."""
    return make_gated(number, uid or f"uid-{number}")


def make_spread(number: int) -> Event:
    """Facts of `OBJECTS` objects in turn."""
    return make_gated(number, f"uid-{number % OBJECTS}")


async def until_done(
    action: Callable[..., Awaitable[T]], *args: object, within: float = 300, **named: object
) -> T:
    """What a service does: try again on Retry."""
    return await patiently(lambda: action(*args, **named), within=within)


async def publish_all(bus: NatsBus, numbers: range, done: list[int]) -> None:
    for number in numbers:
        await until_done(bus.publish, make_spread(number))
        done.append(number)


async def grown(collection: Sized, beyond: int) -> None:
    await eventually(lambda: len(collection) > beyond)


async def restart(server: NatsServer) -> None:
    await asyncio.to_thread(server.restart)


@asynccontextmanager
async def running(*work: Awaitable[object]) -> AsyncIterator[None]:
    """Run in the background."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        yield
    finally:
        await end(*tasks)


async def stored_ids(bus: NatsBus) -> list[str]:
    js = await bus._connection.jetstream()
    state = (await js.stream_info(JOBS.name)).state
    messages = [await js.get_msg(JOBS.name, seq=n) for n in range(state.first_seq, state.last_seq + 1)]
    return [(m.headers or {})["ce-id"] for m in messages]


async def nothing_pending(bus: NatsBus) -> bool:
    try:
        info = await (await bus._connection.jetstream()).consumer_info(JOBS.name, ALL_JOBS.durable)
    except Exception:
        return False
    return not info.num_ack_pending and not info.num_pending


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        assert isinstance(delivery.event.data, JobGated)
        self.numbers.append(int(delivery.event.data.message))


async def letters(bus: NatsBus) -> list[DeadLetter]:
    async with aclosing(bus.dead_letters.list()) as found:
        return [letter async for letter in found]


async def all_parked(bus: NatsBus, number: int) -> bool:
    return len(await letters(bus)) == number


async def parked_after(bus: NatsBus, sequence: int, number: int) -> bool:
    return len([letter for letter in await letters(bus) if letter.sequence > sequence]) == number


async def is_ill(bus: Bus) -> bool:
    return not await bus.healthy()
