"""An alarm wakes its task at the deadline, also when the deadline moves to an earlier time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddlewheel.core.alarm import Alarm
from paddlewheel.testkit.clock import ManualClock


class Waiter:
    """A task that waits for an alarm repeatedly."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarm = Alarm(self.clock)
        self.due: float | None = None
        self.woken: list[float] = []

    async def run(self) -> None:
        while True:
            await self.alarm.wait(self.due)
            self.due = None
            self.woken.append(self.clock.monotonic())

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.settle()


@pytest.fixture
async def waiter() -> AsyncIterator[Waiter]:
    waiter = Waiter()
    waiter.due = 5.0
    task = asyncio.create_task(waiter.run())
    await waiter.settle()
    yield waiter
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_wakes_at_the_deadline_and_not_before(waiter: Waiter) -> None:
    await waiter.advance(4.75)
    assert waiter.woken == []
    await waiter.advance(0.25)
    assert waiter.woken == [5.0]
    await waiter.advance(100)
    assert waiter.woken == [5.0]


async def test_a_ring_wakes_at_once_and_once(waiter: Waiter) -> None:
    await waiter.advance(1)
    waiter.alarm.ring()
    await waiter.settle()
    assert waiter.woken == [1.0]
    waiter.alarm.ring()
    waiter.alarm.ring()
    await waiter.settle()
    assert waiter.woken == [1.0, 1.0]


async def test_a_ring_before_the_wait_is_not_lost() -> None:
    waiter = Waiter()
    waiter.alarm.ring()
    await asyncio.wait_for(waiter.alarm.wait(None), 5)


async def test_a_deadline_in_the_past_returns_at_once() -> None:
    waiter = Waiter()
    await waiter.clock.advance(7)
    await asyncio.wait_for(waiter.alarm.wait(6.0), 5)
    await asyncio.wait_for(waiter.alarm.wait(7.0), 5)


async def test_it_wakes_at_a_deadline_that_comes_just_as_the_wait_begins() -> None:
    waiter = Waiter()
    waiter.due = 5.0
    task = asyncio.create_task(waiter.run())
    await asyncio.sleep(0)  # the wait has begun, and no clock has been asked to wake it
    await waiter.advance(5)
    assert waiter.woken == [5.0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
