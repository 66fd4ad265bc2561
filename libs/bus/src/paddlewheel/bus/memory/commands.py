"""Commands in memory: everybody who answers on a subject hears it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.bus.commands import Desk, Replies, Reply, check_command, gather
from paddlewheel.bus.ports import Answering
from paddlewheel.core.clock import Clock


class MemoryCommands:
    """Commands within one process."""

    def __init__(self, clock: Clock, check_up: Callable[[], None]) -> None:
        self._clock = clock
        self._check_up = check_up
        self._desks: dict[str, list[Desk]] = {}

    async def answer(self, subject: str, handler: Answering) -> None:
        desk = Desk(subject, handler, self._clock)
        desks = self._desks.setdefault(subject, [])
        desks.append(desk)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            desks.remove(desk)
            await desk.close()

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        check_command(subject, data)
        self._check_up()
        replies: Replies = asyncio.Queue()

        async def send(reply: Reply) -> None:
            replies.put_nowait(reply)

        for desk in self._desks.get(subject, []):
            desk.take(data, send)
        if not self._desks.get(subject):
            replies.put_nowait(None)
        return await gather(replies, within, self._clock)
