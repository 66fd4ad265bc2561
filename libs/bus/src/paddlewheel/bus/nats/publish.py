"""Writing to streams, acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

from nats.js.errors import APIError

from paddlewheel.bus.nats import connection as timing
from paddlewheel.bus.nats.api import get_message
from paddlewheel.bus.nats.client import NOT_PERMITTED
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import STREAM_MISSING, from_server
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import ID_TAKEN, stream_of
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.errors import Permanent, Retry, Unavailable

_FIRST_AND_LAST = len(b"NATS/1.0\r\n\r\n")
_PER_HEADER = len(b": \r\n")


@dataclass(frozen=True)
class Receipt:
    """The server's answer.

    Args:
        sequence: sequence of the stored message.
        is_repeated: the stream already had a message with this id, maybe on another subject.
    """

    sequence: int
    is_repeated: bool = False


class StreamPublisher:
    """Acknowledged publishing."""

    def __init__(self, connection: Connection, provision: Provision) -> None:
        self._connection = connection
        self._provision = provision

    async def publish_fact(self, message: RawMessage) -> None:
        """Publish a fact. Raises also Retry when its id is stored on another subject, for another fact."""
        receipt = await self.publish(message)
        if not receipt.is_repeated:
            return
        stream = stream_of(message.subject).name
        if await self._is_another(stream, receipt.sequence, message.subject):
            where = f"message {receipt.sequence} of {stream}"
            raise Retry(ID_TAKEN, f"{message.subject}: another fact has the same id: {where}")

    async def publish(self, message: RawMessage) -> Receipt:
        """Return once stored; a repeated id counts as stored.

        Raises:
            Unavailable: it is not known whether the message is stored.
            Retry: it is not stored.
            Permanent: it is malformed, or too large for the server or the stream.
        """
        until = asyncio.get_running_loop().time() + timing.CALL_TIMEOUT_SECONDS
        if self._provision.is_done and self._connection.connected:
            receipt = await self._send(message)
            if receipt is not None:
                return receipt
            # The stream was lost while we were connected.
            self._provision.forget()
        try:
            async with asyncio.timeout_at(until):
                await self._provision.ready()
                receipt = await self._send(message)
        except TimeoutError:
            raise Unavailable(
                "BusUnreachable", f"{message.subject}: not stored in time{self._connection.trouble}"
            ) from None
        if receipt is None:
            self._provision.forget()
            why = self._provision.why_missing(stream_of(message.subject).name)
            raise Retry(STREAM_MISSING, f"{message.subject}: no stream takes it now{why}")
        return receipt

    async def _is_another(self, stream: str, sequence: int, subject: str) -> bool:
        """Whether a message is on another subject; False for a removed or unreadable one.

        Raises Retry. Evaluators may not read, and their ids cannot be guessed, so a message with such an id
        is their own.
        """
        if self._connection.reads_nothing:
            return False
        try:
            found = await get_message(self._connection, stream, {"seq": sequence})
        except Retry as error:
            if error.reason != NOT_PERMITTED:
                raise
            return False
        return found is not None and found.message.subject != subject

    async def _send(self, message: RawMessage) -> Receipt | None:
        """Send a message; None when no stream takes its subject."""
        client = await self._connection.client()
        size = wire_size(message.headers, message.data)
        if size > client.max_payload:
            # The server would close the connection, so nothing too large may be sent.
            raise Permanent(
                "TooLarge", f"{message.subject}: {size} bytes, the server takes {client.max_payload}"
            )
        # A repeated id is stored once; a write at a revision would fail the second time.
        answer = await client.ask(
            message.subject,
            message.data,
            timing.CALL_TIMEOUT_SECONDS,
            headers=dict(message.headers) or None,
            repeat=MESSAGE_ID in message.headers,
        )
        return None if answer is None else _receipt(message.subject, answer.data)


def wire_size(headers: Mapping[str, str], data: bytes) -> int:
    """Bytes of payload and headers, which the server limits; nats-py compares only the payload."""
    text = "".join([*headers, *headers.values()])
    block = len(text.encode()) + _PER_HEADER * len(headers) + _FIRST_AND_LAST if headers else 0
    return block + len(data)


def _receipt(subject: str, answer: bytes) -> Receipt:
    reply = json.loads(answer)
    if "error" in reply:
        error = APIError(**{name: reply["error"].get(name) for name in ("code", "description", "err_code")})
        raise from_server(subject, error) from error
    return Receipt(int(reply["seq"]), bool(reply.get("duplicate")))
