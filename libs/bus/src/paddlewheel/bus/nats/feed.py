"""Bounded pulls from a consumer, with heartbeats that detect a dead server.

nats-py's `fetch` hides why no message arrives: the consumer was deleted, the connection was lost, or there is
no message. Here each reason has its own result, because the reaction differs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import nats.errors
from nats.aio.msg import Msg

from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import FeedLostError, mapped

HEARTBEAT_INTERVAL_SECONDS = 2.0
"""Seconds between heartbeats; two and a half of them without a message mean that the server is dead."""
_PULL_TIMEOUT_SECONDS = 30.0
_HEARTBEAT_TIMEOUT_SECONDS = 2.5 * HEARTBEAT_INTERVAL_SECONDS
_DRAIN_TIMEOUT_SECONDS = 2.0
_NANOSECONDS = 1_000_000_000
_STATUS = "Status"
_HEARTBEAT = "100"
_PULL_OVER = ("404", "408")


class Feed:
    """Messages of one consumer, made by `open_feed`. `fetch` may raise FeedLostError or Retry."""

    def __init__(self, connection: Connection, client: Client, stream: str, consumer: str) -> None:
        self._connection = connection
        self._client = client
        self.stream = stream
        self.consumer = consumer
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._owed = 0
        self._last_message_at = 0.0
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self.generation = connection.generation
        """The connection over which its messages arrive."""

    async def subscribe(self) -> None:
        """Subscribe to the inbox of the pulls. Raises Retry."""
        stop_listening = self._connection.on_lost(lambda: self._arrived.put_nowait(None))
        try:
            with mapped(f"subscribe to {self._inbox}"):
                self._subscription = await self._client.subscribe(self._inbox, cb=self._on_message)
        except BaseException:
            stop_listening()
            raise
        self._stop_listening = stop_listening

    async def fetch(self, room: int) -> list[Msg]:
        """Wait for at least one message; return at most `room`."""
        while True:
            await self._ask(room)
            if messages := [msg for msg in [await self._next(), *self._waiting()] if self._is_data(msg)]:
                return messages

    async def take(self, room: int) -> AsyncIterator[Msg]:
        """Yield the messages that the server has now, at most `room`, without waiting for later ones."""
        await self._pull(room, no_wait=True)
        while self._owed > 0:
            msg = await self._next()
            if self._is_data(msg):
                yield msg

    @property
    def owed(self) -> int:
        """Messages that the last pull may still bring."""
        return self._owed

    async def close(self) -> list[Msg]:
        """Unsubscribe; returns messages that arrived and were not fetched."""
        self._stop_listening()
        try:
            await self._unsubscribe()
        except TimeoutError:
            self._connection.suspect()
        except (nats.errors.Error, OSError):
            pass
        return [msg for msg in self._waiting() if not self._is_status(msg)]

    async def _unsubscribe(self) -> None:
        """Receive also messages that the server sends until then: a lost one would wait for `ack_wait`."""
        if not self._client.is_connected:
            await self._subscription.unsubscribe()
            return
        async with asyncio.timeout(_DRAIN_TIMEOUT_SECONDS):
            await self._subscription.drain()  # type: ignore[no-untyped-call]

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.put_nowait(msg)

    async def _ask(self, room: int) -> None:
        """Pull, unless messages of the last pull may still arrive."""
        if self._owed == 0:
            heartbeat = int(HEARTBEAT_INTERVAL_SECONDS * _NANOSECONDS)
            await self._pull(
                room, expires=int(_PULL_TIMEOUT_SECONDS * _NANOSECONDS), idle_heartbeat=heartbeat
            )

    async def _pull(self, room: int, **how: int) -> None:
        self._owed, self._last_message_at = room, _now()
        request = json.dumps({"batch": room, **how}).encode()
        with mapped(self._next_subject):
            await self._client.publish(self._next_subject, request, reply=self._inbox)

    async def _next(self) -> Msg:
        try:
            async with asyncio.timeout_at(self._last_message_at + _HEARTBEAT_TIMEOUT_SECONDS):
                msg = await self._arrived.get()
        except TimeoutError:
            self._connection.suspect()
            raise FeedLostError("no heartbeat from the server") from None
        if msg is None:
            raise FeedLostError("connection lost")
        return msg

    def _waiting(self) -> Iterator[Msg]:
        """Messages that have arrived. A lost connection after them is left for the next fetch."""
        while not self._arrived.empty():
            msg = self._arrived.get_nowait()
            if msg is None:
                self._arrived.put_nowait(None)
                return
            yield msg

    def _is_data(self, msg: Msg) -> bool:
        self._last_message_at = _now()
        if not self._is_status(msg):
            self._owed -= 1
            return True
        status = (msg.headers or {}).get(_STATUS, "")
        if status in _PULL_OVER:
            self._owed = 0
        elif status != _HEARTBEAT:
            raise FeedLostError(
                f"{self.consumer}: {status} {(msg.headers or {}).get('Description', '')}".strip()
            )
        return False

    def _is_status(self, msg: Msg) -> bool:
        """Whether the message is about the pull itself: messages of a stream keep their own subject."""
        return msg.subject == self._inbox


async def open_feed(connection: Connection, stream: str, consumer: str) -> Feed:
    """A feed of an existing consumer. Raises Retry."""
    feed = Feed(connection, await connection.client(), stream, consumer)
    await feed.subscribe()
    return feed


def _now() -> float:
    return asyncio.get_running_loop().time()
