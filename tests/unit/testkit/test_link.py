"""A link that is cut passes nothing on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from paddlewheel.testkit.link import Link


class Writer:
    """One side of a connection, and its transport."""

    def __init__(self) -> None:
        self.is_aborted, self.transport = False, self

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def close(self) -> None: ...


class Server:
    """Listens no more."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


def ended() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_eof()
    return reader


async def test_a_connection_that_is_still_being_made_is_cut_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_connect, writer, back = asyncio.Event(), asyncio.Event(), Writer(), Writer()

    async def connect_later(host: str, port: int) -> tuple[asyncio.StreamReader, Any]:
        begun.set()
        await may_connect.wait()
        return ended(), back

    monkeypatch.setattr(asyncio, "open_connection", connect_later)
    link = Link(1, "127.0.0.1:2")
    link._server = cast(asyncio.Server, Server())
    serving = asyncio.create_task(link._serve(ended(), cast(asyncio.StreamWriter, writer)))
    await begun.wait()
    await link.cut()
    may_connect.set()
    await serving
    assert writer.is_aborted
    assert back.is_aborted
