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
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

REOPEN_INTERVAL_SECONDS = 0.5
"""Seconds between attempts to reopen a lost feed."""

_ACK, _NAK, _TERM, _PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"
_RECLAIM_TIMEOUT_SECONDS = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOKENS, _TIME = 9, 7
"""The tokens of a message's reply subject, and the one with its time. Some servers put two more before it."""

log = LibraryLogger(__name__)


def stored_at(msg: Msg) -> datetime:
    """When the server has stored the message, rounded down to microseconds.

    nats-py rounds to the nearest. A reader that begins later than its message was stored misses it.
    """
    tokens = msg.reply.split(".")
    nanoseconds = int(tokens[_TIME] if len(tokens) == _TOKENS else tokens[_TIME + 2])
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


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
        # nats-py names some by the members of an enumeration.
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
        """A restarted server does not answer for deliveries it has forgotten: they are redelivered."""
        await self._connection.client()
        if self._connection.generation == self._generation:
            await self._connection.request(self._msg.reply, end)
        else:
            await self._connection.send(self._msg.reply, end)


async def end_feed(connection: Connection, feed: Feed, into: list[Message]) -> None:
    """Stop pulling; adds what was delivered and never fetched, as soon as it is known."""
    unfetched = await feed.close()
    into += (NatsMessage(connection, msg, feed.generation) for msg in unfetched)
    lost = feed.owed - len(unfetched)
    if connection.connected:
        await _forget_pulls(connection, feed)
        if lost > 0:
            await _reclaim(connection, feed, lost, into)


async def _forget_pulls(connection: Connection, feed: Feed) -> None:
    """Make the server drop our pulls, which it does for clients that left when a consumer is queried.

    Otherwise it would serve them with the first message given back, and redeliver that after all others.
    """
    with suppress(Retry):
        await connection.request(f"$JS.API.CONSUMER.INFO.{feed.stream}.{feed.consumer}", b"")


async def _reclaim(connection: Connection, ended: Feed, lost: int, into: list[Message]) -> None:
    """Take what the server was sending when we unsubscribed, at most `lost` messages.

    It redelivers those as soon as it finds no subscriber, ahead of everything that we give back later.
    The answer to the first request leaves it through the same queue: with that, all are due again.
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
    """A durable pull consumer. Missing, it is re-created by who may, and waited for by all others."""

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
