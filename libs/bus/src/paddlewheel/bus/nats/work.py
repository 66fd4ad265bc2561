"""The work queue over JetStream's work-queue retention."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncGenerator

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import PAUSE, NatsMessage
from paddlewheel.bus.nats.errors import FeedLostError
from paddlewheel.bus.nats.feed import Feed, open_feed
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.publish import StreamPublisher
from paddlewheel.bus.nats.work_requests import WorkConsumer, ask_for, ask_to_purge, purge
from paddlewheel.bus.ports import RawMessage, WorkItem
from paddlewheel.bus.streams import WORK, stream_of
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


class NatsWorkQueue:
    """WorkQueue on stream `PW_WORK`."""

    def __init__(
        self, connection: Connection, provision: Provision, publisher: StreamPublisher, clock: Clock
    ) -> None:
        self._connection = connection
        self._provision = provision
        self._publisher = publisher
        self._clock = clock
        self._secret = secrets.token_bytes()

    async def enqueue(self, subject: str, data: bytes, *, message_id: str) -> None:
        if stream_of(subject) != WORK:
            raise Permanent("NoStream", f"{subject} is not a work subject")
        await self._publisher.publish(RawMessage(subject, data, {MESSAGE_ID: self._own_id(message_id)}))

    async def pull(
        self,
        subject: str,
        *,
        ack_wait: float = 60.0,
        inactive_after: float = 300.0,
        max_in_flight: int = 2,
    ) -> AsyncGenerator[WorkItem, None]:
        wanted = WorkConsumer(
            subject=subject,
            ack_wait=ack_wait,
            inactive_after=inactive_after,
            max_in_flight=max_in_flight,
        )
        feed: Feed | None = None
        try:
            while True:
                try:
                    feed = feed or await self._open(wanted)
                    arrived = await feed.fetch(1)
                except (FeedLostError, Retry) as error:
                    log.warning("work queue interrupted", subject=subject, why=str(error))
                    await self._drop(feed)
                    feed = None
                    await self._clock.sleep(PAUSE)
                    continue
                for msg in arrived:
                    yield NatsWorkItem(NatsMessage(self._connection, msg, feed.generation))
        finally:
            await self._drop(feed)

    async def purge(self, subject: str) -> None:
        await self._provision.ready()
        if self._provision.makes:
            await purge(self._connection, subject)
        else:
            await ask_to_purge(self._connection, subject)

    def _own_id(self, message_id: str) -> str:
        """The stream stores an id once, on whatever subject. Nobody can guess this one, and so have the work
        of others swallowed by using it first. Another process has another: its work is then stored twice."""
        return hmac.digest(self._secret, message_id.encode(), "sha256").hex()

    async def _open(self, wanted: WorkConsumer) -> Feed:
        await self._provision.ready()
        if self._provision.makes:
            await self._provision.consumer(WORK.name, wanted.config)
        else:
            await ask_for(self._connection, wanted)
        return await open_feed(self._connection, WORK.name, wanted.name)

    async def _drop(self, feed: Feed | None) -> None:
        if feed is None:
            return
        for msg in await feed.close():
            await NatsMessage(self._connection, msg, feed.generation).release()


class NatsWorkItem:
    """One pulled chunk."""

    def __init__(self, message: NatsMessage) -> None:
        self._message = message

    @property
    def data(self) -> bytes:
        return self._message.data

    @property
    def attempt(self) -> int:
        return self._message.attempt

    async def ack(self) -> None:
        await self._message.ack()

    async def nak(self, delay: float) -> None:
        await self._message.nak(delay)

    async def in_progress(self) -> None:
        await self._message.in_progress()
