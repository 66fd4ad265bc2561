"""Runs a handler over a durable consumer, and stops it when too many messages are parked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimitError
from paddlewheel.bus.consume.dead_letters import Replayed, replays
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.consume.keyed_ordering import KeyedOrdering, Room
from paddlewheel.bus.consume.settle import DeadLetters, Message, Settler, release_in_order
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Handler, Subscription
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import finish

DEAD_LETTERS_CHECK_INTERVAL_SECONDS = 5.0
"""Seconds between checks of a stopped consumer for replayed or dropped dead letters."""
CLOSE_TIMEOUT_SECONDS = 8.0
"""Seconds after which a consumer that stops has ended, even if the server does not answer."""

_RECEIVE_SHARE = 0.5
"""The share of that time for messages that are still arriving; the rest is for releasing messages."""

PROGRESS_REPORTS_PER_DELIVERY = 3
"""Reports of progress to the server before a delivery that is being handled would time out."""

log = LibraryLogger(__name__)


class Source(Protocol):
    """The messages of a consumer. It may be used again after `close`."""

    async def fetch(self, room: int) -> Sequence[Message]:
        """Wait for at least one message, return at most `room`; reconnects by itself."""
        ...

    async def close(self, into: list[Message]) -> None:
        """Stop pulling. Messages that were delivered and not fetched are added to `into` as they arrive,
        because this call may be cancelled."""
        ...


@dataclass(frozen=True)
class Consumer:
    """One durable consumer: new messages from `fresh`, replayed dead letters from `replayed`. `stopped` names
    the durables of this process whose consumers have stopped."""

    subscription: Subscription
    handle: Handler
    fresh: Source
    replayed: Source
    dead: DeadLetters
    clock: Clock
    instruments: Instruments
    handlers: Handlers
    stopped: list[str]


async def run_consumer(consumer: Consumer) -> None:
    """Fetch, handle and settle until cancelled; unsettled messages are then released to the server."""
    settler = Settler(
        consumer.subscription,
        consumer.handle,
        consumer.dead,
        consumer.clock,
        consumer.instruments,
        consumer.handlers,
    )
    while True:
        why = await _deliver(consumer, settler)
        await _wait_for_room(consumer, why)
        settler.limit.reset()


async def _deliver(consumer: Consumer, settler: Settler) -> str:
    """Deliver until cancelled, or until no further message may be parked; returns the reason."""
    wanted, ordering = consumer.subscription, KeyedOrdering(settler.settle)
    why = ""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep_in_progress(consumer, ordering), name="in-progress marks")
            tasks.create_task(_take_replayed(consumer, ordering, tasks), name="replays")
            await _take(consumer.fresh, ordering, Room(wanted.max_in_flight), tasks)
    except* DeadLetterLimitError as full:
        why = str(full.exceptions[0])
    finally:
        # Messages that are not released wait for `ack_wait`. `finish` survives repeated cancellation.
        await finish(_release_all(consumer, ordering))
    return why


async def _release_all(consumer: Consumer, ordering: KeyedOrdering) -> None:
    """Stop pulling, then release: a message released during a pull would be redelivered at once."""
    unfetched: list[Message] = []
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began + CLOSE_TIMEOUT_SECONDS):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(began + CLOSE_TIMEOUT_SECONDS * _RECEIVE_SHARE):
                    await asyncio.gather(consumer.fresh.close(unfetched), consumer.replayed.close(unfetched))
            await release_in_order((*ordering.held(), *unfetched))
    except TimeoutError:
        log.warning(
            "consumer was not closed in time; its messages are redelivered later",
            durable=consumer.subscription.durable,
        )


async def _take(source: Source, ordering: KeyedOrdering, room: Room, tasks: asyncio.TaskGroup) -> None:
    while True:
        for message in await source.fetch(await room.left()):
            ordering.accept(message, room, tasks)


async def _take_replayed(consumer: Consumer, ordering: KeyedOrdering, tasks: asyncio.TaskGroup) -> None:
    room = Room(replays(consumer.subscription).max_in_flight)
    while True:
        for message in await consumer.replayed.fetch(await room.left()):
            ordering.accept(Replayed(message), room, tasks)


async def _keep_in_progress(consumer: Consumer, ordering: KeyedOrdering) -> None:
    while True:
        await consumer.clock.sleep(consumer.subscription.ack_wait / PROGRESS_REPORTS_PER_DELIVERY)
        consumer.handlers.log_late()
        for message in ordering.held():
            await message.in_progress()


async def _wait_for_room(consumer: Consumer, why: str) -> None:
    """Wait until enough dead letters were replayed or dropped (docs/decisions/0011)."""
    durable, most = consumer.subscription.durable, consumer.subscription.max_parked
    log.error(
        "consumer stopped until its dead letters are replayed or dropped",
        durable=durable,
        why=why,
        fix=f"paddlewheel dlq list --durable {durable}; replay or drop until fewer than {most} are left, "
        "or restart the service",
    )
    consumer.stopped.append(durable)
    try:
        with consumer.instruments.stopped(durable):
            await consumer.clock.sleep(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
            while not await _has_room(consumer):
                await consumer.clock.sleep(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
    finally:
        consumer.stopped.remove(durable)
    log.warning("consumer resumed", durable=durable)


async def _has_room(consumer: Consumer) -> bool:
    try:
        return await consumer.dead.has_room(consumer.subscription.max_parked)
    except Retry:
        return False
