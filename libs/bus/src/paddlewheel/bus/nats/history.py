"""Lookups of single messages and of the age of a stream."""

from __future__ import annotations

from datetime import datetime

from nats.js.errors import NotFoundError

from paddlewheel.bus.nats.api import get_message
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import STREAM_MISSING
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import stream_named, stream_of
from paddlewheel.core.errors import Retry


class NatsHistory:
    """FactHistory from the stream's leader, which has every acknowledged message."""

    def __init__(self, connection: Connection, provision: Provision) -> None:
        self._connection = connection
        self._provision = provision

    @property
    def epoch(self) -> int:
        return self._connection.generation

    async def last(self, subject: str) -> RawMessage | None:
        stream = stream_of(subject).name
        await self._provision.ready()
        try:
            found = await get_message(self._connection, stream, {"last_by_subj": subject})
        except Retry as error:
            if error.reason != STREAM_MISSING:
                raise
            # The stream was lost while we were connected. It is re-created, and empty.
            await self._provision.ready()
            return None
        return found.message if found else None

    async def whole_since(self, stream: str) -> datetime | None:
        name = stream_named(stream).name
        js = await self._provision.ready()
        async with self._connection.calling(f"stream {name}"):
            try:
                info = await js.stream_info(name)
            except NotFoundError:
                self._provision.forget()
                raise
        if info.created is None:
            raise Retry("BusRefused", f"stream {name}: the server does not report when it was created")
        return info.created if info.state.messages == info.state.last_seq else None
