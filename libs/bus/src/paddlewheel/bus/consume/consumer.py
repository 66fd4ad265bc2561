"""Running a handler over a durable consumer: fetch, handle, settle; stop rather than park everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimitError
from paddlewheel.bus.consume.dead_letters import Replayed, replays
from paddlewheel.bus.consume.keyed_ordering import Lanes, Room
from paddlewheel.bus.consume.settle import DeadLetters, Message, Settler
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Handler, Subscription
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

LOOK_EVERY = 5.0
"""Seconds between looks of a stopped consumer whether its dead letters were dealt with."""

_MARKS_PER_ACK_WAIT = 3

log = LibraryLogger(__name__)


class Source(Protocol):
    """Where a consumer's messages come from. Usable again after `close`."""

    async def fetch(self, room: int) -> Sequence[Message]:
        """Wait for at least one message, return at most `room`; reconnects by itself."""
        ...

    async def close(self) -> Sequence[Message]:
        """Ask for no more; returns what came and was never fetched, in order."""
        ...


@dataclass(frozen=True)
class Consumer:
    """One durable consumer: new messages from `fresh`, replayed dead letters from `again`.

    `stopped` names the durables of this process that stand still.
    """

    subscription: Subscription
    handle: Handler
    fresh: Source
    again: Source
    dead: DeadLetters
    clock: Clock
    instruments: Instruments
    stopped: list[str]


async def run_consumer(consumer: Consumer) -> None:
    """Fetch, handle and settle until cancelled; what is then unsettled goes back to the server."""
    settler = Settler(
        consumer.subscription, consumer.handle, consumer.dead, consumer.clock, consumer.instruments
    )
    while True:
        why = await _deliver(consumer, settler)
        await _stand_still(consumer, why)
        settler.cap.reset()


async def _deliver(consumer: Consumer, settler: Settler) -> str:
    """Until cancelled, or until no more may be parked: returns why."""
    wanted, lanes = consumer.subscription, Lanes(settler.settle)
    why = ""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep_ours(lanes, wanted.ack_wait, consumer.clock), name="in-progress marks")
            tasks.create_task(_take_again(consumer, lanes, tasks), name="replays")
            await _take(consumer.fresh, lanes, Room(wanted.max_in_flight), tasks)
    except* DeadLetterLimitError as full:
        why = str(full.exceptions[0])
    finally:
        # In this order: what is given back while more is asked for would come again at once, and the server
        # delivers again in the order in which it was given back.
        unfetched = [*await consumer.fresh.close(), *await consumer.again.close()]
        for message in (*lanes.held(), *unfetched):
            await message.release()
    return why


async def _take(source: Source, lanes: Lanes, room: Room, tasks: asyncio.TaskGroup) -> None:
    while True:
        for message in await source.fetch(await room.left()):
            lanes.accept(message, room, tasks)


async def _take_again(consumer: Consumer, lanes: Lanes, tasks: asyncio.TaskGroup) -> None:
    room = Room(replays(consumer.subscription).max_in_flight)
    while True:
        for message in await consumer.again.fetch(await room.left()):
            lanes.accept(Replayed(message), room, tasks)


async def _keep_ours(lanes: Lanes, ack_wait: float, clock: Clock) -> None:
    while True:
        await clock.sleep(ack_wait / _MARKS_PER_ACK_WAIT)
        for message in lanes.held():
            await message.in_progress()


async def _stand_still(consumer: Consumer, why: str) -> None:
    """Until somebody has dealt with the dead letters (docs/decisions/0011)."""
    durable, most = consumer.subscription.durable, consumer.subscription.max_parked
    log.error(
        "consumer stopped until its dead letters are dealt with",
        durable=durable,
        why=why,
        remedy=f"paddlewheel dlq list --durable {durable}; replay or drop until fewer than {most} are left, "
        "or restart the service",
    )
    consumer.stopped.append(durable)
    try:
        with consumer.instruments.stopped(durable):
            await consumer.clock.sleep(LOOK_EVERY)
            while not await _has_room(consumer):
                await consumer.clock.sleep(LOOK_EVERY)
    finally:
        consumer.stopped.remove(durable)
    log.warning("consumer goes on", durable=durable)


async def _has_room(consumer: Consumer) -> bool:
    try:
        return await consumer.dead.has_room(consumer.subscription.max_parked)
    except Retry:
        return False
