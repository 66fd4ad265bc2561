"""Commands: every replica answers, its progress is followed, its errors are reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from tests.contract.bus.suite import AnyBus, Probe

from paddlewheel.bus.commands import AT_ONCE, MAX_BYTES
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import CommandHandler
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
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
        answers = await other.ask_all(SUBJECT, b"now", within=0.5)
    assert sorted(answers) == [b"one", b"two now"]


async def test_a_command_without_replicas_returns_at_once(probe: Probe) -> None:
    async with asyncio.timeout(20):
        assert await probe.bus.ask_all(SUBJECT, b"", within=3600) == []


async def test_a_replica_that_reports_progress_is_waited_for(probe: Probe, other: AnyBus) -> None:
    async def slow(_: bytes) -> bytes:
        await asyncio.sleep(1.5)
        return b"done"

    async with answering(probe.bus, slow, saying(b"quick")):
        assert sorted(await other.ask_all(SUBJECT, b"", within=0.8)) == [b"done", b"quick"]


async def test_an_error_is_answered_as_one_and_the_next_command_is_served(
    probe: Probe, other: AnyBus
) -> None:
    errors: list[Exception] = [Permanent("Wrong", "field x: is wrong"), ValueError("a bug")]

    async def failing(_: bytes) -> bytes:
        if errors:
            raise errors.pop(0)
        return b"well"

    # Writing an error's traceback for people takes longer than a busy machine gives.
    with capture_logs() as logs:
        await check_errors(probe, other, failing)
    assert [entry["event"] for entry in logs] == ["command failed", "command failed by a bug"]


async def check_errors(probe: Probe, other: AnyBus, failing: CommandHandler) -> None:
    async with answering(probe.bus, failing):
        with pytest.raises(Retry, match=r"1 of 1 replicas did not succeed: .*field x: is wrong"):
            await other.ask_all(SUBJECT, b"", within=0.3)
        with pytest.raises(Retry, match="bug: ValueError: a bug"):
            await other.ask_all(SUBJECT, b"", within=0.3)
        assert await other.ask_all(SUBJECT, b"", within=0.3) == [b"well"]


async def test_oversized_commands_and_answers_are_refused(probe: Probe, other: AnyBus) -> None:
    async with answering(probe.bus, saying(b"x" * (MAX_BYTES + 1))):
        with pytest.raises(Permanent, match="bytes, a command has"):
            await other.ask_all(SUBJECT, b"x" * (MAX_BYTES + 1))
        with pytest.raises(Retry, match="the answer has"):
            await other.ask_all(SUBJECT, b"", within=0.3)


async def test_more_commands_at_once_than_a_replica_takes_are_refused(probe: Probe, other: AnyBus) -> None:
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def blocked(_: bytes) -> bytes:
        begun.release()
        await go.wait()
        return b"ok"

    async with answering(probe.bus, blocked):
        asking = [asyncio.create_task(other.ask_all(SUBJECT, b"", within=2)) for _ in range(AT_ONCE)]
        for _ in range(AT_ONCE):
            await begun.acquire()
        with pytest.raises(Retry, match="Busy"):
            await other.ask_all(SUBJECT, b"", within=0.3)
        go.set()
        assert await asyncio.gather(*asking) == [[b"ok"]] * AT_ONCE


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
