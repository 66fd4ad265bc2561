"""Commands over core NATS: every replica receives a command and answers to an inbox."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing

from nats.aio.msg import Msg

from paddlewheel.bus.commands import CommandServer, Replies, Reply, Send, check_command, gather, read_reply
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS
from paddlewheel.bus.nats.errors import mapped
from paddlewheel.bus.nats.subscribe import subscribed, unsubscribe
from paddlewheel.bus.ports import CommandHandler
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

_STATUS, _NO_RESPONDERS = "Status", "503"

log = LibraryLogger(__name__)


class NatsCommands:
    """Commands over one connection."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def answer(self, subject: str, handler: CommandHandler) -> None:
        server = CommandServer(subject, handler, self._clock)
        try:
            while True:
                await self._serve(subject, server)
                await self._clock.sleep(REOPEN_INTERVAL_SECONDS)
        finally:
            await server.close()

    async def _serve(self, subject: str, server: CommandServer) -> None:
        """Serve until the connection is lost. Running commands continue: their answers may arrive."""
        try:
            async with aclosing(subscribed(self._connection, subject)) as messages:
                async for msg in messages:
                    if msg is not None and msg.reply:
                        server.take(msg.data, _sender(self._connection, msg.reply))
        except Retry as error:
            log.info("commands are not received for now", subject=subject, why=str(error))

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        check_command(subject, data)
        replies: Replies = asyncio.Queue()

        async def take(msg: Msg) -> None:
            headers = msg.headers or {}
            if headers.get(_STATUS) == _NO_RESPONDERS:
                replies.put_nowait(None)
            elif reply := read_reply(headers, msg.data):
                replies.put_nowait(reply)

        client = await self._connection.client()
        inbox = client.new_inbox()
        lost = Unavailable("BusUnreachable", f"{subject}: the connection was lost before all answers arrived")
        stop_listening = self._connection.on_lost(lambda: replies.put_nowait(lost))
        try:
            async with self._connection.calling(subject):
                subscription = await client.subscribe(inbox, cb=take)
                await client.publish(subject, data, reply=inbox)
            try:
                return await gather(replies, within, self._clock)
            finally:
                await unsubscribe(subscription)
        finally:
            stop_listening()


def _sender(connection: Connection, inbox: str) -> Send:
    async def send(reply: Reply) -> None:
        """Send a reply without raising: a requester that receives none repeats the command."""
        with contextlib.suppress(Retry, Permanent):
            client = await connection.client()
            with mapped(inbox):
                await client.publish(inbox, reply.body, headers=reply.headers())

    return send
