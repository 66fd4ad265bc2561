"""Bounded pulls from consumers through one inbox, with heartbeats: silence is noticed and reported.

nats-py's `fetch` hides why nothing comes (consumer deleted, connection lost, nothing there); here each reason
is told apart, because what to do differs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import FeedLostError, mapped

HEARTBEAT = 2.0
"""Seconds; a feed whose server died is noticed after two and a half of them."""
_EXPIRES = 30.0
_SILENCE = 2.5 * HEARTBEAT
_GOODBYE = 2.0
_NANOSECONDS = 1_000_000_000
_STATUS = "Status"
_HEARTBEAT = "100"
_PULL_OVER = ("404", "408")


@dataclass
class _Target:
    """One consumer; `owed` messages of the running pull are still to come."""

    stream: str
    consumer: str
    inbox: str
    owed: int = 0
    heard: float = 0.0


class Feed:
    """Messages of one or more consumers. Every method but `close` may raise FeedLostError or Retry."""

    def __init__(self, connection: Connection, consumers: Sequence[tuple[str, str]]) -> None:
        self._connection = connection
        self._consumers = consumers
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._targets: list[_Target] = []
        self.generation = connection.generation
        """The connection its messages come over."""

    async def open(self) -> None:
        """Subscribe to the inbox; the consumers must exist."""
        client = await self._connection.client()
        inbox = client.new_inbox()
        self._targets = [
            _Target(stream, name, f"{inbox}.{index}") for index, (stream, name) in enumerate(self._consumers)
        ]
        self._client: Client = client
        self.generation = self._connection.generation
        self._stop_listening = self._connection.on_lost(lambda: self._arrived.put_nowait(None))
        with mapped(f"subscribe to {inbox}"):
            self._subscription = await client.subscribe(f"{inbox}.*", cb=self._on_message)

    async def fetch(self, room: int) -> list[Msg]:
        """Wait for at least one message; at most `room` (of each consumer) are asked for."""
        while True:
            await self._ask(room)
            if messages := [msg for msg in [await self._next(), *self._waiting()] if self._is_data(msg)]:
                return messages

    async def close(self) -> list[Msg]:
        """Stop; returns messages that came and were never fetched."""
        self._stop_listening()
        try:
            await self._unsubscribe()
        except TimeoutError:
            self._connection.suspect()
        except (nats.errors.Error, OSError):
            pass
        return [msg for msg in self._waiting() if not self._target_told(msg)]

    async def _unsubscribe(self) -> None:
        """What the server sends until it hears of it arrives: lost, it would lie there for `ack_wait`."""
        if not self._client.is_connected:
            await self._subscription.unsubscribe()
            return
        async with asyncio.timeout(_GOODBYE):
            await self._subscription.drain()  # type: ignore[no-untyped-call]

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.put_nowait(msg)

    async def _ask(self, room: int) -> None:
        pull = {
            "batch": room,
            "expires": int(_EXPIRES * _NANOSECONDS),
            "idle_heartbeat": int(HEARTBEAT * _NANOSECONDS),
        }
        for target in self._targets:
            if target.owed > 0:
                continue
            target.owed, target.heard = room, _now()
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{target.stream}.{target.consumer}"
            with mapped(subject):
                await self._client.publish(subject, json.dumps(pull).encode(), reply=target.inbox)

    async def _next(self) -> Msg:
        try:
            async with asyncio.timeout_at(min(t.heard for t in self._targets) + _SILENCE):
                msg = await self._arrived.get()
        except TimeoutError:
            self._connection.suspect()
            raise FeedLostError("no heartbeat from the server") from None
        if msg is None:
            raise FeedLostError("connection lost")
        return msg

    def _waiting(self) -> Iterator[Msg]:
        """What has come already; a loss behind it is left for the next fetch."""
        while not self._arrived.empty():
            msg = self._arrived.get_nowait()
            if msg is None:
                self._arrived.put_nowait(None)
                return
            yield msg

    def _is_data(self, msg: Msg) -> bool:
        target = self._target_told(msg)
        if target is None:
            self._count(msg)
            return True
        target.heard = _now()
        status = (msg.headers or {}).get(_STATUS, "")
        if status in _PULL_OVER:
            target.owed = 0
        elif status != _HEARTBEAT:
            raise FeedLostError(
                f"{target.consumer}: {status} {(msg.headers or {}).get('Description', '')}".strip()
            )
        return False

    def _count(self, msg: Msg) -> None:
        meta = msg.metadata
        target = next(t for t in self._targets if (t.stream, t.consumer) == (meta.stream, meta.consumer))
        target.owed -= 1
        target.heard = _now()

    def _target_told(self, msg: Msg) -> _Target | None:
        """Whose pull a status message is about; None for messages with data."""
        return next((t for t in self._targets if t.inbox == msg.subject), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
