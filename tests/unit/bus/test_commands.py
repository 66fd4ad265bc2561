"""Answers to a command are gathered by arrival, and a replica reports before it begins."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

from paddlewheel.bus.commands import DONE, WORKING, CommandServer, Replies, Reply, gather
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.wait import eventually


class LateClock(ManualClock):
    """Jumps beyond every deadline once it was read."""

    def __init__(self) -> None:
        super().__init__()
        self._times = chain([0.0], repeat(1000.0))

    def monotonic(self) -> float:
        return next(self._times)


async def test_what_has_arrived_counts_though_it_is_read_late() -> None:
    replies: Replies = asyncio.Queue()
    replies.put_nowait(Reply("a", WORKING))
    replies.put_nowait(Reply("a", DONE, b"1"))
    replies.put_nowait(Reply("b", DONE, b"2"))
    assert await gather(replies, 1.0, LateClock()) == [b"1", b"2"]


async def test_a_replica_reports_that_it_works_before_the_work_begins() -> None:
    order: list[str] = []

    async def work(_: bytes) -> bytes:
        order.append("work")
        return b""

    async def send(reply: Reply) -> None:
        order.append(reply.state)

    desk = CommandServer("s", work, ManualClock())
    desk.take(b"", send)
    await eventually(lambda: DONE in order)
    await desk.close()
    assert order == [WORKING, "work", DONE]
