"""Commands: every replica answers, its progress is followed, its errors are reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from tests.contract.bus.suite import AnyBus, Probe

from paddlewheel.bus.commands import AT_ONCE, MAX_BYTES
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import CommandHandler
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

SUBJECT = command_subject("test-service", "rebuild")


@asynccontextmanager
async def answering(bus: MemoryBus | NatsBus, *handlers: CommandHandler) -> AsyncIterator[None]:
    """So many replicas; each is heard before the block begins."""
    heard: set[int] = set()

    def noticing(index: int, handler: CommandHandler) -> CommandHandler:
        async def handle(data: bytes) -> bytes:
            if data == b"are you there?":
                heard.add(index)
                return b""
            return await handler(data)

        return handle

    tasks = [
        asyncio.create_task(bus.answer(SUBJECT, noticing(index, handler)))
        for index, handler in enumerate(handlers)
    ]

    async def all_hear() -> bool:
        await bus.ask_all(SUBJECT, b"are you there?", within=0.05)
        return len(heard) == len(handlers)

    try:
        await eventually(all_hear)
        yield
    finally:
        await end(*tasks)


def saying(answer: bytes) -> CommandHandler:
    async def handle(_: bytes) -> bytes:
        return answer

    return handle


async def test_every_replica_answers_a_command(probe: Probe, other: AnyBus) -> None:
    async def echo(data: bytes) -> bytes:
        return b"two " + data

    async with answering(probe.bus, saying(b"one"), echo):
        await answered(other, b"now", [b"one", b"two now"])


async def answered(bus: AnyBus, data: bytes, wanted: list[bytes], within: float = 0.5) -> None:
    """Until a command is answered so: on a busy machine a reply may be late once."""

    async def are_all_there() -> bool:
        return sorted(await bus.ask_all(SUBJECT, data, within=within)) == wanted

    await eventually(are_all_there, what=f"the answers {wanted}")


async def test_a_command_without_replicas_returns_at_once(probe: Probe) -> None:
    async with asyncio.timeout(90):
        assert await probe.bus.ask_all(SUBJECT, b"", within=3600) == []


async def test_a_replica_that_reports_progress_is_waited_for(probe: Probe, other: AnyBus) -> None:
    async def slow(_: bytes) -> bytes:
        await asyncio.sleep(1.5)
        return b"done"

    async with answering(probe.bus, slow, saying(b"quick")):
        await answered(other, b"", [b"done", b"quick"], within=0.8)


async def test_an_error_is_answered_as_one_and_the_next_command_is_served(
    probe: Probe, other: AnyBus
) -> None:
    errors = {b"wrong": Permanent("Wrong", "field x: is wrong"), b"bug": ValueError("a bug")}

    async def failing(data: bytes) -> bytes:
        if data in errors:
            raise errors[data]
        return b"well"

    # Writing an error's traceback for people takes longer than a busy machine gives.
    with capture_logs() as logs:
        async with answering(probe.bus, failing):
            await failed(other, b"wrong", "1 of 1 replicas did not succeed: Wrong: field x: is wrong")
            await failed(other, b"bug", "bug: ValueError: a bug")
            await answered(other, b"", [b"well"])
    events = [entry["event"] for entry in logs]
    assert list(dict.fromkeys(events)) == ["command failed", "command failed by a bug"]


async def failed(bus: AnyBus, data: bytes, text: str) -> None:
    """Until a command is answered by this error: on a busy machine a reply may be late once."""

    async def is_told() -> bool:
        try:
            answers = await bus.ask_all(SUBJECT, data, within=0.3)
        except Retry as error:
            return text in str(error)
        # Nobody was heard of.
        assert answers == []
        return False

    await eventually(is_told, what=text)


async def test_oversized_commands_and_answers_are_refused(probe: Probe, other: AnyBus) -> None:
    async with answering(probe.bus, saying(b"x" * (MAX_BYTES + 1))):
        with pytest.raises(Permanent, match="bytes, a command may have"):
            await other.ask_all(SUBJECT, b"x" * (MAX_BYTES + 1))
        await failed(other, b"", "the answer has")


async def test_more_commands_at_once_than_a_replica_takes_are_refused(probe: Probe, other: AnyBus) -> None:
    go, begun, ended = asyncio.Event(), asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def blocked(_: bytes) -> bytes:
        begun.release()
        await go.wait()
        ended.release()
        return b"ok"

    async with answering(probe.bus, blocked):
        asking = [asyncio.create_task(other.ask_all(SUBJECT, b"", within=90)) for _ in range(AT_ONCE)]
        for _ in range(AT_ONCE):
            await begun.acquire()
        await failed(other, b"", "Busy")
        go.set()
        for _ in range(AT_ONCE):
            await ended.acquire()
        # A requester waits its whole 90 s for replicas that it does not know of.
        await end(*asking)


async def test_a_replica_that_dies_at_work_is_reported_missing(probe: Probe, other: AnyBus) -> None:
    begun = asyncio.Event()

    async def never(_: bytes) -> bytes:
        begun.set()
        await asyncio.get_running_loop().create_future()
        return b""

    async with answering(probe.bus, never):
        asking = asyncio.create_task(other.ask_all(SUBJECT, b"", within=1.0))
        await begun.wait()
    with pytest.raises(Retry, match="stopped reporting"):
        await asking


async def test_commands_are_answered_again_after_a_server_restart(nats_server: NatsServer) -> None:
    bus = NatsBus(nats_server.url)
    await bus.start()
    async with answering(bus, saying(b"here")):
        nats_server.restart()

        async def answered() -> bool:
            try:
                return await bus.ask_all(SUBJECT, b"", within=0.2) == [b"here"]
            except Retry:
                return False

        await eventually(answered)
    await bus.close()
