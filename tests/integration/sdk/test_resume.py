"""A durable subscriber as a process of its own, killed with -9."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from paddlewheel.bus.ports import Bus
from paddlewheel.contracts import envelope
from paddlewheel.contracts.events import make_event
from paddlewheel.sdk import JobGated, ObjectRef

PROGRAM = Path(__file__).parent / "subscriber.py"
SUBSCRIBER_TIMEOUT_SECONDS = 120.0


def make_gated(number: int) -> envelope.Event:
    job = ObjectRef(namespace="team-a", name="resnet", uid="u1")
    now = datetime.now(UTC)
    return make_event(
        JobGated(job=job), id=f"fact-{number}", source="test", namespace="team-a", uid="u1", time=now
    )


class Subscriber:
    """The process and what it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """The next line; "" at the end."""
        assert self._process.stdout
        async with asyncio.timeout(SUBSCRIBER_TIMEOUT_SECONDS):
            return (await self._process.stdout.readline()).decode().strip()

    async def lines(self, count: int) -> list[str]:
        return [await self.line() for _ in range(count)]

    async def kill(self) -> list[str]:
        """SIGKILL; returns what it had printed and we had not read."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        left = []
        while text := await self.line():
            left.append(text)
        return left


@asynccontextmanager
async def subscribing(url: str, *, stay_with: int = -1) -> AsyncIterator[Subscriber]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), url, "my-service", f"fact-{stay_with}", stdout=asyncio.subprocess.PIPE
    )
    subscriber = Subscriber(process)
    try:
        yield subscriber
    finally:
        await subscriber.kill()


async def test_the_event_it_died_with_comes_again_before_any_later_one(bus: Bus, nats_url: str) -> None:
    for number in range(10):
        await bus.publish(make_gated(number))
    async with subscribing(nats_url, stay_with=4) as first:
        assert await first.lines(5) == [f"fact-{n}" for n in range(5)]
        await first.kill()
    async with subscribing(nats_url) as second:
        assert await second.lines(6) == [f"fact-{n}" for n in range(4, 10)]


@pytest.mark.long
async def test_killed_anywhere_it_misses_nothing_and_repeats_one_event_at_most(
    bus: Bus, nats_url: str
) -> None:
    lives: list[list[str]] = []
    for count in (3, 70, 31):
        # A life that is killed late may have printed all facts before it, so each gets its own.
        for number in range(100 * len(lives), 100 * len(lives) + 100):
            await bus.publish(make_gated(number))
        async with subscribing(nats_url) as subscriber:
            lives.append(await subscriber.lines(count) + await subscriber.kill())
    await bus.publish(make_gated(300))
    async with subscribing(nats_url) as subscriber:
        last: list[str] = []
        while not last or last[-1] != "fact-300":
            last.append(await subscriber.line())
    lives.append(last)
    printed = [int(text.removeprefix("fact-")) for life in lives for text in life]
    assert sorted(set(printed)) == list(range(301))
    repeats = [(one, two) for one, two in pairwise(printed) if two != one + 1]
    assert all(two == one for one, two in repeats)
    assert len(repeats) <= len(lives) - 1


@pytest.mark.long
async def test_a_standby_of_the_same_name_takes_over(bus: Bus, nats_url: str) -> None:
    await bus.publish(make_gated(0))
    async with subscribing(nats_url, stay_with=0) as first:
        assert await first.line() == "fact-0"
        async with subscribing(nats_url) as standby:
            await bus.publish(make_gated(1))
            await first.kill()
            assert await standby.lines(2) == ["fact-0", "fact-1"]
