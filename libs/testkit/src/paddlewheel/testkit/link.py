"""A way to a server that can be cut, while the server itself goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress


class Link:
    """Passes the connections to a loopback port on. Served by the event loop that opened it.

    Attributes:
        received: bytes that the server has sent.
    """

    def __init__(self, port: int, store: str) -> None:
        self.port, self._store = port, store
        self.received = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._left: int | None = None
        self._hold_at: int | None = None
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.is_cut = asyncio.Event()
        """It was, in the middle of what the server sent."""
        self.is_held = asyncio.Event()
        """Nothing that the server sends arrives, until `release`."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def cut_after(self, size: int) -> None:
        """Cut once so many bytes have come from the server: in the middle of an answer."""
        self._left = size
        self.is_cut.clear()

    def hold_after(self, size: int) -> None:
        """Hold back all that comes from the server once that is so many bytes, without an end of anything."""
        self._hold_at = self.received + size
        self.is_held.clear()

    def release(self) -> None:
        """Let what was held back arrive."""
        self._hold_at = None
        self._goes_on.set()

    async def cut(self) -> None:
        assert self._server is not None
        self.release()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()  # what was not read by the other side would keep it open
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._store.split(":")
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            self._writers.discard(writer)
            return
        if writer.is_closing():  # cut meanwhile
            back.transport.abort()
        self._writers.add(back)
        with suppress(OSError):
            await asyncio.gather(_pump(reader, back), _pump(there, writer, self._count))
        self._writers -= {writer, back}

    async def _count(self, size: int) -> None:
        self.received += size
        if self._hold_at is not None and self.received > self._hold_at:
            self._goes_on.clear()
            self.is_held.set()
        await self._goes_on.wait()
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            self._left = None
            self.is_cut.set()
            await self.cut()


async def _uncounted(size: int) -> None:
    return


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: Callable[[int], Awaitable[None]] = _uncounted,
) -> None:
    try:
        while data := await reader.read(1 << 16):
            await count(len(data))
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
