"""A consumer that stops while the server hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.consume import consumer as consuming
from paddlewheel.bus.consume.consumer import Consumer
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.consume.settle import Message
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.nats import consume
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.feed import Feed
from paddlewheel.bus.ports import Subscription
from paddlewheel.core.clock import SystemClock


class HeldMessage:
    """A message whose server does not answer."""

    def __init__(self, stream: str, sequence: int, released: list[tuple[str, int]]) -> None:
        self.stream, self.sequence, self._released = stream, sequence, released

    async def release(self, *, confirm: bool = False) -> None:
        self._released.append((self.stream, self.sequence))
        if confirm:
            await asyncio.Event().wait()


class HangingSource:
    """Delivered some messages, and does not end."""

    def __init__(self, *arrived: HeldMessage) -> None:
        self._arrived = arrived

    async def fetch(self, room: int) -> list[Message]:
        await asyncio.Event().wait()
        return []

    async def close(self, into: list[Message]) -> None:
        into += cast("tuple[Message, ...]", self._arrived)
        await asyncio.Event().wait()


async def test_what_arrived_is_given_back_although_the_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "CLOSE_TIMEOUT_SECONDS", 0.2)
    released: list[tuple[str, int]] = []
    unused: Any = None
    stopping = Consumer(
        Subscription("d", "PW_JOBS", ("pw.evt.jobs.>",)),
        unused,
        fresh=HangingSource(*(HeldMessage("PW_JOBS", number, released) for number in (2, 1))),
        replayed=HangingSource(HeldMessage("PW_AGAIN", 1, released)),
        dead=unused,
        clock=SystemClock(),
        instruments=Instruments(),
        handlers=Handlers(SystemClock()),
        stopped=[],
    )
    task = asyncio.create_task(consuming.run_consumer(stopping))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(released) == [("PW_AGAIN", 1), ("PW_JOBS", 1), ("PW_JOBS", 2)]


@pytest.mark.parametrize(("lost", "rooms"), [(1, [1]), (5, [1, 4])])
async def test_no_more_is_reclaimed_than_was_lost(
    lost: int, rooms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class OpenedFeed:
        generation = 1

        async def take(self, room: int) -> AsyncIterator[Msg]:
            asked.append(room)
            for _ in range(room):
                yield msg

        async def close(self) -> list[Msg]:
            return []

    reply = "$JS.ACK.PW_JOBS.d.1.1.1.1700000000000000000.0"
    unused: Any = None
    msg = Msg(unused, "pw.evt.jobs", reply, b"")

    async def opened(connection: Connection, stream: str, consumer: str) -> Feed:
        return cast("Feed", OpenedFeed())

    monkeypatch.setattr(consume, "open_feed", opened)
    monkeypatch.setattr(OpenedFeed, "stream", "PW_JOBS", raising=False)
    monkeypatch.setattr(OpenedFeed, "consumer", "d", raising=False)
    into: list[Message] = []
    await consume._reclaim(unused, await opened(unused, "", ""), lost, into)
    assert (asked, len(into)) == (rooms, lost)
