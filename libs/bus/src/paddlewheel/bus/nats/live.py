"""Facts as they are published, by subscriptions alone: nothing is asked for and nothing is stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from pydantic import TypeAdapter

from paddlewheel.bus.admin.teams import within
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import PAUSE
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import overlaps
from paddlewheel.contracts import wire
from paddlewheel.contracts.base import Timestamp
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

_TIME: TypeAdapter[datetime] = TypeAdapter(Timestamp)

log = LibraryLogger(__name__)


class LiveReader:
    """Reader of the live facts of some namespaces. Facts published while it is not connected are missed."""

    def __init__(self, connection: Connection, namespaces: tuple[str, ...], clock: Clock) -> None:
        self._connection = connection
        self._namespaces = namespaces
        self._clock = clock

    async def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        if not reading.is_live:
            raise Permanent("LiveOnly", "a client that watches namespaces receives live facts only")
        subjects, is_first = self._subjects(reading), True
        await self._reach(reading.open_within)
        while True:
            try:
                async with aclosing(subscribed(self._connection, *subjects)) as messages:
                    async for msg in messages:
                        if msg is not None and (delivery := _delivery(msg)):
                            yield delivery
                        elif msg is None and is_first and reading.caught_up:
                            reading.caught_up()
                        is_first = False
            except Retry as error:
                log.warning("facts are not received for now", why=str(error))
            await self._clock.sleep(PAUSE)

    async def _reach(self, limit: float | None) -> None:
        """Wait for the bus. Raises Unavailable after `limit` seconds, or Permanent."""
        try:
            async with asyncio.timeout(limit):
                while True:
                    with contextlib.suppress(Retry):
                        await self._connection.client()
                        return
                    await self._clock.sleep(PAUSE)
        except TimeoutError:
            why = f"no answer within open_within={limit} s{self._connection.trouble}"
            raise Unavailable("BusUnreachable", why) from None

    def _subjects(self, reading: Reading) -> tuple[str, ...]:
        """Raises Permanent when all facts are of other namespaces."""
        everything = {
            within(subject, namespace)
            for subject in reading.subjects
            for namespace in self._namespaces
            if overlaps(subject, within(subject, namespace))
        }
        if not everything:
            names = ", ".join(self._namespaces)
            raise Permanent("NotWatched", f"{', '.join(reading.subjects)}: only {names} can be watched")
        return tuple(sorted(everything))


async def subscribed(connection: Connection, *subjects: str) -> AsyncGenerator[Msg | None, None]:
    """None when the server sends what is published on the subjects, then each message. Ends with the
    connection. Raises Retry."""
    arrived: asyncio.Queue[Msg | None] = asyncio.Queue()

    async def take(msg: Msg) -> None:
        arrived.put_nowait(msg)

    client = await connection.client()
    stop_listening = connection.on_lost(lambda: arrived.put_nowait(None))
    subscriptions = []
    try:
        async with connection.calling(f"subscribe to {', '.join(subjects)}"):
            for subject in subjects:
                subscriptions.append(await client.subscribe(subject, cb=take))
            await client.flush()
        yield None
        while (msg := await arrived.get()) is not None:
            yield msg
    finally:
        stop_listening()
        for subscription in subscriptions:
            with contextlib.suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()


def _delivery(msg: Msg) -> Delivery | None:
    """None for a message that cannot be read."""
    headers = msg.headers or {}
    try:
        event = wire.decode(msg.subject, msg.data, headers)
    except Permanent as error:
        log.warning("unreadable message skipped", subject=msg.subject, why=str(error))
        return None
    at = headers.get("Nats-Time-Stamp")
    stored_at = _TIME.validate_python(at) if at else event.time
    return Delivery(event, msg.subject, 1, int(headers.get("Nats-Sequence", "0")), stored_at)
