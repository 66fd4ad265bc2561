"""Commands in memory: every server of a subject receives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.bus.commands import CommandServer, Replies, Reply, check_command, gather
from paddlewheel.bus.ports import CommandHandler
from paddlewheel.core.clock import Clock


class MemoryCommands:
    """Commands within one process."""

    def __init__(self, clock: Clock, check_up: Callable[[], None]) -> None:
        self._clock = clock
        self._check_up = check_up
        self._servers: dict[str, list[CommandServer]] = {}

    async def answer(self, subject: str, handler: CommandHandler) -> None:
        server = CommandServer(subject, handler, self._clock)
        servers = self._servers.setdefault(subject, [])
        servers.append(server)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            servers.remove(server)
            await server.close()

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        check_command(subject, data)
        self._check_up()
        replies: Replies = asyncio.Queue()

        async def send(reply: Reply) -> None:
            replies.put_nowait(reply)

        for server in self._servers.get(subject, []):
            server.take(data, send)
        if not self._servers.get(subject):
            replies.put_nowait(None)
        return await gather(replies, within, self._clock)
