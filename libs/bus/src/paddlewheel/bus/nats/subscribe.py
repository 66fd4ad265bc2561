"""Subscriptions of core NATS, without JetStream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


async def subscribed(
    connection: Connection, *subjects: str, queue: str = "", limit: int = 0
) -> AsyncGenerator[Msg | None, None]:
    """Yield None when the subscriptions are active, then each message. Ends with the connection.

    Args:
        queue: name of the queue group, of which one member receives each message; "" = none.
        limit: the number of messages that wait for the caller. Further ones are dropped; 0 = no limit.

    Raises:
        Retry: the subscriptions were not made.
    """
    arrived: asyncio.Queue[Msg | None] = asyncio.Queue()

    async def take(msg: Msg) -> None:
        if limit and arrived.qsize() >= limit:
            log.warning("messages are dropped: the reader is slower than they arrive", subject=msg.subject)
            return
        arrived.put_nowait(msg)

    client = await connection.client()
    stop_listening = connection.on_lost(lambda: arrived.put_nowait(None))
    subscriptions = []
    try:
        async with connection.calling(f"subscribe to {', '.join(subjects)}"):
            for subject in subjects:
                subscriptions.append(await client.subscribe(subject, queue=queue, cb=take))
            await client.flush()
        yield None
        while (msg := await arrived.get()) is not None:
            yield msg
    finally:
        stop_listening()
        for subscription in subscriptions:
            await unsubscribe(subscription)


async def unsubscribe(subscription: Subscription) -> None:
    """End a subscription, also if the connection is lost."""
    with contextlib.suppress(nats.errors.Error, OSError):
        await subscription.unsubscribe()
