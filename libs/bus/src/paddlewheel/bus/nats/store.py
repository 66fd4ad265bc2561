"""Writing to streams, acknowledged."""

from __future__ import annotations

from nats.js.errors import NoStreamResponseError

from paddlewheel.bus.nats.link import TIMEOUT, Link
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import RawMessage
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
            Permanent: too large for the server or the stream.
        """
        await self._check_size(message)
        sequence = await self._send(message)
        if sequence is None:
            self._provision.forget()
            sequence = await self._send(message)
        if sequence is None:
            raise Retry("BusRefused", f"{message.subject}: no stream took it")
        return sequence

    async def _send(self, message: RawMessage) -> int | None:
        """None when nobody listens on the subject: its stream was lost while we were connected."""
        js = await self._provision.ready()
        headers = dict(message.headers) or None
        async with self._link.calling(message.subject):
            try:
                ack = await js.publish(message.subject, message.data, timeout=TIMEOUT, headers=headers)
            except NoStreamResponseError:
                return None
        return ack.seq

    async def _check_size(self, message: RawMessage) -> None:
        """The server would cut the connection, so nothing too large may leave."""
        client = await self._link.client()
        size = (
            len(message.data)
            + sum(len(k.encode()) + len(v.encode()) + 4 for k, v in message.headers.items())
            + 16
        )
        if size > client.max_payload:
            raise Permanent(
                "TooLarge", f"{message.subject}: {size} bytes, the server takes {client.max_payload}"
            )
