"""Auth callout over one connection to the server."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing

from nats.aio.msg import Msg

from paddlewheel.bus.access import Access
from paddlewheel.bus.callout.serve import GROUP, SENDER, SUBJECT, CalloutServer
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS
from paddlewheel.bus.nats.errors import mapped
from paddlewheel.bus.nats.subscribe import subscribed
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

log = LibraryLogger(__name__)


class NatsCallout:
    """Answers the servers' authorization requests and reconnects by itself."""

    def __init__(self, access: Access, server: CalloutServer, clock: Clock, *, name: str) -> None:
        self._connection = Connection(access, name)
        self._server = server
        self._clock = clock
        self._is_subscribed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            while True:
                try:
                    await self._serve()
                except Retry as error:
                    log.warning("authorization requests are not received for now", why=str(error))
                await self._clock.sleep(REOPEN_INTERVAL_SECONDS)
        finally:
            await end(*self._tasks)
            await self._connection.close()

    async def is_ready(self) -> bool | str:
        """True when requests arrive in this process, else the reason why not."""
        is_connected = self._is_subscribed and self._connection.connected
        return is_connected or f"not connected{self._connection.trouble}"

    async def use_another_key(self) -> bool:
        """Whether the servers refuse this service, or one has encrypted a request for another key."""
        return self._server.met_another_key or await self.is_ready() is not True

    async def _serve(self) -> None:
        """Serve until the connection is lost. Raises Retry."""
        try:
            async with aclosing(subscribed(self._connection, SUBJECT, queue=GROUP)) as requests:
                async for msg in requests:
                    self._is_subscribed = True
                    if msg is not None:
                        task = asyncio.create_task(self._answer(msg))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
        finally:
            self._is_subscribed = False

    async def _answer(self, msg: Msg) -> None:
        answer = await self._server.answer(msg.data, (msg.headers or {}).get(SENDER, ""))
        if answer is None:
            return
        with contextlib.suppress(Retry, Permanent):
            client = await self._connection.client()
            with mapped(msg.reply):
                await client.publish(msg.reply, answer)
