"""Writing to streams, acknowledged."""

from __future__ import annotations

import asyncio
import json

from nats.js.errors import APIError

from paddlewheel.bus.nats import connection as timing
from paddlewheel.bus.nats.connection import Link
from paddlewheel.bus.nats.errors import STREAM_MISSING, from_server
from paddlewheel.bus.nats.frames import header_block
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import RawMessage
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.errors import Permanent, Retry


class Store:
    """Acknowledged publishing."""

    def __init__(self, link: Link, provision: Provision) -> None:
        self._link = link
        self._provision = provision

    async def store(self, message: RawMessage) -> int:
        """Return the sequence once stored; a repeated id counts as stored.

        Raises:
            Retry: not stored, or not known to be.
            Permanent: too large for the server or the stream, or malformed.
        """
        block = header_block(message.headers)
        until = asyncio.get_running_loop().time() + timing.TIMEOUT
        if self._provision.is_done and self._link.connected:
            sequence = await self._send(message, block)
            if sequence is not None:
                return sequence
            # Its stream was lost while we were connected.
            self._provision.forget()
        try:
            async with asyncio.timeout_at(until):
                await self._provision.ready()
                sequence = await self._send(message, block)
        except TimeoutError:
            raise Retry(
                "BusUnreachable", f"{message.subject}: not stored in time{self._link.trouble}"
            ) from None
        if sequence is None:
            self._provision.forget()
            raise Retry(STREAM_MISSING, f"{message.subject}: no stream takes it now")
        return sequence

    async def _send(self, message: RawMessage, block: bytes) -> int | None:
        """None when nobody listens on the subject."""
        client = await self._link.client()
        size = len(block) + len(message.data)
        if size > client.max_payload:
            # The server would cut the connection, so nothing too large may leave.
            raise Permanent(
                "TooLarge", f"{message.subject}: {size} bytes, the server takes {client.max_payload}"
            )
        # A repeated id is stored once; a write at a revision would fail the second time.
        answer = await client.ask(
            message.subject, block, message.data, timing.TIMEOUT, repeat=MESSAGE_ID in message.headers
        )
        return None if answer is None else _sequence(message.subject, answer.data)


def _sequence(subject: str, answer: bytes) -> int:
    told = json.loads(answer)
    if "error" in told:
        error = APIError(**{name: told["error"].get(name) for name in ("code", "description", "err_code")})
        raise from_server(subject, error) from error
    return int(told["seq"])
