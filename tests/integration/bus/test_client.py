"""The client against a server that writes down what it is sent, and answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import nats.errors
import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.nats import client as nats_client
from paddlewheel.bus.nats.client import CLIENT_TASKS, SUBSCRIPTION_TASK, Client
from paddlewheel.core.tasks import end
from paddlewheel.testkit.bare_client import connect
from paddlewheel.testkit.wait import eventually


@dataclass
class Recorder:
    """Speaks as much of the protocol as a connection needs. It returns every message to its sender, and reads
    on after a PING only while it `is_prompt`."""

    port: int = 0
    commands: list[str] = field(default_factory=list)
    is_prompt: asyncio.Event = field(default_factory=asyncio.Event)
    inbox: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"headers":true,"max_payload":1000000}\r\n')
        while line := await reader.readline():
            command, *words = line.decode().split()
            self.commands.append(command)
            if command == "PING":
                await self.is_prompt.wait()
                writer.write(b"PONG\r\n")
            elif command == "SUB":
                self.inbox = self.inbox or words[-1]
            elif command == "PUB":
                body = await reader.readexactly(int(words[-1]) + 2)
                writer.write(f"MSG {words[1]} {self.inbox} {words[-1]}\r\n".encode() + body)
        writer.close()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    recorder.is_prompt.set()
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.port = server.sockets[0].getsockname()[1]
    async with server:
        yield recorder


async def ignore(_: Msg) -> None:
    """The server sends nothing."""


async def check_flush(client: nats.aio.client.Client, recorder: Recorder) -> None:
    recorder.commands.clear()
    await client.subscribe("a", cb=ignore)
    await client.flush()
    assert "SUB" in recorder.commands[:-1]
    assert recorder.commands[-1] == "PING"


async def test_a_bare_clients_flush_is_answered_after_what_was_issued_before(recorder: Recorder) -> None:
    client = await connect(f"nats://127.0.0.1:{recorder.port}")
    try:
        await check_flush(client, recorder)
    finally:
        await client.close()


async def test_a_flush_is_answered_after_what_was_issued_before(recorder: Recorder) -> None:
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        await check_flush(client, recorder)
    finally:
        await client.discard()


async def test_a_connection_that_answers_no_ping_is_reported_dead(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        nats_client, "_PROBE_TIMEOUT_SECONDS", 60
    )  # a machine that stands still must not count as a dead server
    dead = asyncio.Event()
    client = Client("", "test", dead.set)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        client.suspect()
        await client.flush()
        assert not dead.is_set()
        # As after an error that nats-py only logs.
        await end(client._reading_task)
        monkeypatch.setattr(nats_client, "_PROBE_TIMEOUT_SECONDS", 1)
        client.suspect()
        await asyncio.wait_for(dead.wait(), 90)
    finally:
        await client.discard()


async def test_a_cancelled_drain_leaves_the_connection_in_use(recorder: Recorder) -> None:
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        subscription = await client.subscribe("a", cb=ignore)
        await client.flush()
        recorder.commands.clear()
        recorder.is_prompt.clear()
        drain = asyncio.create_task(subscription.drain())  # type: ignore[no-untyped-call]
        await eventually(lambda: "PING" in recorder.commands)
        await end(drain)
        recorder.is_prompt.set()
        answer = await client.ask("echo", b"still here", within=90)
        assert answer is not None
        assert answer.data == b"still here"
    finally:
        await client.discard()


async def unanswered_flush(client: Client, recorder: Recorder) -> asyncio.Task[None]:
    """One whose PING has reached the server."""
    recorder.commands.clear()
    recorder.is_prompt.clear()
    flush = asyncio.create_task(client.flush(90))
    await eventually(lambda: "PING" in recorder.commands)
    return flush


async def test_a_discarded_client_ends_the_flush_that_nobody_awaits(recorder: Recorder) -> None:
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    before = asyncio.all_tasks()
    flush = await unanswered_flush(client, recorder)
    await end(flush)
    await client.discard()
    assert asyncio.all_tasks() <= before
    recorder.is_prompt.set()


async def test_a_discarded_client_fails_the_flush_that_is_awaited(recorder: Recorder) -> None:
    """It must not look to the caller as if it had been cancelled itself."""
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    flush = await unanswered_flush(client, recorder)
    await client.discard()
    recorder.is_prompt.set()
    with pytest.raises(nats.errors.ConnectionClosedError):
        await flush


async def test_a_connection_that_answers_no_flush_is_reported_dead(recorder: Recorder) -> None:
    dead = asyncio.Event()
    client = Client("", "test", dead.set)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        recorder.is_prompt.clear()
        with pytest.raises(nats.errors.TimeoutError):
            await client.flush(1)
        assert dead.is_set()
    finally:
        recorder.is_prompt.set()
        await client.discard()


async def test_the_private_tasks_that_discard_ends_exist(recorder: Recorder) -> None:
    """`discard` overlooks what a release of nats-py has renamed (docs/decisions/0014)."""
    client = Client("", "test", lambda: None)
    await client.open([f"nats://127.0.0.1:{recorder.port}"], {})
    try:
        subscription = await client.subscribe("a", cb=ignore)
        tasks = [getattr(client, name) for name in CLIENT_TASKS]
        tasks.append(getattr(subscription, SUBSCRIPTION_TASK))
        assert [type(task) for task in tasks] == [asyncio.Task] * 4
    finally:
        await client.discard()
