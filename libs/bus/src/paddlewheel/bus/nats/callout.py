"""Auth callout over one connection to the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from nats.aio.msg import Msg

from paddlewheel.bus.access import Access
from paddlewheel.bus.callout.serve import GROUP, SENDER, SUBJECT, CalloutServer
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.errors import mapped
from paddlewheel.bus.nats.listener import Listener
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end


class NatsCallout(Listener):
    """Answers the servers' authorization requests."""

    hears = "authorization requests"

    def __init__(self, access: Access, server: CalloutServer, clock: Clock, *, name: str) -> None:
        super().__init__(access, clock, name)
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await end(*self._tasks)
        await super().close()

    async def use_another_key(self) -> bool:
        """Whether the servers do not let this service in, or one has asked with another key."""
        return self._server.met_another_key or await self.is_ready() is not True

    @contextlib.asynccontextmanager
    async def receiving(self, client: Client, lost: asyncio.Event) -> AsyncIterator[None]:
        async with self._connection.calling(f"subscribe to {SUBJECT}"):
            await client.subscribe(SUBJECT, queue=GROUP, cb=self._take)
            await client.flush()
        yield

    async def _take(self, msg: Msg) -> None:
        task = asyncio.create_task(self._answer(msg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, msg: Msg) -> None:
        answer = await self._server.answer(msg.data, (msg.headers or {}).get(SENDER, ""))
        if answer is None:
            return
        with contextlib.suppress(Retry, Permanent):
            client = await self._connection.client()
            with mapped(msg.reply):
                await client.publish(msg.reply, answer)
