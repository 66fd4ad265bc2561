"""Durable consumers: the source of messages for `bus.consume.consumer`, and the messages themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from nats.aio.msg import Msg

from paddlewheel.bus.consume.settle import Identity, Message
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.durable import durable_config
from paddlewheel.bus.nats.errors import FeedLostError
from paddlewheel.bus.nats.feed import Feed, open_feed
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import Subscription
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

REOPEN_INTERVAL_SECONDS = 0.5
"""Seconds between attempts to open a lost feed again."""

_ACK, _NAK, _TERM, _PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"
_RECLAIM_TIMEOUT_SECONDS = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOKENS, _TIME = 9, 7
"""The number of tokens of a reply subject, and the index of its time; newer servers put two before it."""

log = LibraryLogger(__name__)


def stored_at(msg: Msg) -> datetime:
    """When the server stored the message, rounded down to microseconds. nats-py rounds to the nearest, and a
    reader that begins at a time rounded up misses the message."""
    tokens = msg.reply.split(".")
    nanoseconds = int(tokens[_TIME] if len(tokens) == _TOKENS else tokens[_TIME + 2])
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def read_event(msg: Msg) -> Event | None:
    """The event of a message; None for an unreadable one, which readers cannot park."""
    try:
        return wire.decode(msg.subject, msg.data, msg.headers or {})
    except Permanent as error:
        log.warning("unreadable message skipped", subject=msg.subject, why=str(error))
        return None


class NatsMessage:
    """One delivered message; acknowledgements are confirmed by the server."""

    def __init__(self, connection: Connection, msg: Msg, generation: int) -> None:
        self._connection = connection
        self._msg = msg
        self._meta = msg.metadata
        self._generation = generation

    @property
    def subject(self) -> str:
        return self._msg.subject

    @property
    def data(self) -> bytes:
        return self._msg.data

    @property
    def headers(self) -> dict[str, str]:
        # nats-py uses members of an enumeration for some names.
        return {str.__str__(name): value for name, value in (self._msg.headers or {}).items()}

    @property
    def stream(self) -> str:
        return self._meta.stream

    @property
    def sequence(self) -> int:
        return self._meta.sequence.stream

    @property
    def attempt(self) -> int:
        return self._meta.num_delivered

    @property
    def published_at(self) -> datetime:
        return stored_at(self._msg)

    @property
    def identity(self) -> Identity:
        return self.stream, self.sequence, self.published_at

    async def ack(self) -> None:
        await self._confirmed(_ACK)

    async def term(self) -> None:
        await self._confirmed(_TERM)

    async def release(self, *, confirm: bool = False) -> None:
        if confirm:
            with suppress(Retry, Permanent):
                await self._confirmed(_NAK)
        else:
            await self._connection.send(self._msg.reply, _NAK)

    async def in_progress(self) -> None:
        await self._connection.send(self._msg.reply, _PROGRESS)

    async def _confirmed(self, end: bytes) -> None:
        """Wait for the confirmation only on the connection of the delivery: a restarted server does not know
        the delivery, sends no answer, and redelivers the message."""
        await self._connection.client()
        if self._connection.generation == self._generation:
            await self._connection.request(self._msg.reply, end)
        else:
            await self._connection.send(self._msg.reply, end)


async def end_feed(connection: Connection, feed: Feed, into: list[Message]) -> None:
    """Stop pulling. Messages that were delivered and not fetched are added to `into` as they arrive."""
    unfetched = await feed.close()
    into += (NatsMessage(connection, msg, feed.generation) for msg in unfetched)
    lost = feed.owed - len(unfetched)
    if connection.connected:
        await _drop_pulls(connection, feed)
        if lost > 0:
            await _reclaim(connection, feed, lost, into)


async def _drop_pulls(connection: Connection, feed: Feed) -> None:
    """Have the server drop our pulls. It drops those of unsubscribed inboxes when a consumer is queried.
    Otherwise it would answer them with the first released message, and redeliver that after all others."""
    with suppress(Retry):
        await connection.request(f"$JS.API.CONSUMER.INFO.{feed.stream}.{feed.consumer}", b"")


async def _reclaim(connection: Connection, ended: Feed, lost: int, into: list[Message]) -> None:
    """Take the messages that the server was sending when we unsubscribed, at most `lost`.

    The server redelivers them as soon as it finds no subscriber, before the messages that we release later.
    Its answer to the first request passes the same queue, so after that answer all of them are due again.
    """
    most = len(into) + lost
    with suppress(Retry, FeedLostError, TimeoutError):
        async with asyncio.timeout(_RECLAIM_TIMEOUT_SECONDS):
            feed = await open_feed(connection, ended.stream, ended.consumer)
            try:
                for request in (1, lost):
                    if room := min(request, most - len(into)):
                        async for msg in feed.take(room):
                            into.append(NatsMessage(connection, msg, feed.generation))
            finally:
                into += (NatsMessage(connection, msg, feed.generation) for msg in await feed.close())


class NatsSource:
    """A durable pull consumer. A missing one is made if the role may, else waited for."""

    def __init__(
        self, connection: Connection, provision: Provision, subscription: Subscription, clock: Clock
    ) -> None:
        self._connection = connection
        self._provision = provision
        self._subscription = subscription
        self._stream, self._durable = subscription.stream, subscription.durable
        self._clock = clock
        self._feed: Feed | None = None

    async def fetch(self, room: int) -> list[Message]:
        while True:
            try:
                feed = self._feed or await self._open()
                arrived = await feed.fetch(room)
                return [NatsMessage(self._connection, msg, feed.generation) for msg in arrived]
            except (FeedLostError, Retry) as error:
                log.warning("consumer interrupted", durable=self._subscription.durable, why=str(error))
            unfetched: list[Message] = []
            await self.close(unfetched)
            if unfetched:
                return unfetched
            await self._clock.sleep(REOPEN_INTERVAL_SECONDS)

    async def close(self, into: list[Message]) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            await end_feed(self._connection, feed, into)

    async def _open(self) -> Feed:
        wanted = self._subscription
        await self._provision.durable(wanted.stream, durable_config(wanted))
        self._feed = await open_feed(self._connection, wanted.stream, wanted.durable)
        return self._feed
