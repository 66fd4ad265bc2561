"""The client against a server that writes down what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.nats.client import Client
from paddlewheel.core.tasks import end


@dataclass
class Recorder:
    """Speaks as much of the protocol as a connection needs."""

    port: int = 0
    commands: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"headers":true,"max_payload":1000000}\r\n')
        while line := await reader.readline():
            self.commands.append(line.split()[0].decode())
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.port = server.sockets[0].getsockname()[1]
    async with server:
        yield recorder


async def ignore(_: Msg) -> None:
    """The server sends nothing."""


async def test_a_flush_is_answered_after_what_was_issued_before(recorder: Recorder) -> None:
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        recorder.commands.clear()
        await client.subscribe("a", cb=ignore)
        await client.flush()
        assert recorder.commands[-2:] == ["SUB", "PING"]
    finally:
        await client.discard()


async def test_a_connection_that_answers_no_ping_is_reported_dead(recorder: Recorder) -> None:
    dead = asyncio.Event()
    client = Client("", "test", dead.set)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        client.suspect()
        await client.flush()
        assert not dead.is_set()
        # As after an error that nats-py only logs.
        await end(client._reading_task)
        client.suspect()
        await asyncio.wait_for(dead.wait(), 20)
    finally:
        await client.discard()
