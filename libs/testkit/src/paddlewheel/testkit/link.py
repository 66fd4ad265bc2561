"""A way to a server that can be cut, while the server itself goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Link:
    """Passes the connections to a loopback port on. Served by the event loop that opened it."""

    def __init__(self, port: int, store: str) -> None:
        self.port, self._store = port, store
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def cut(self) -> None:
        assert self._server is not None
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
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        self._writers -= {writer, back}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
