"""Tasks end reliably, and protected work is not interrupted."""

from __future__ import annotations

import asyncio

import pytest

from paddlewheel.core.tasks import end, finish


async def test_finish_returns_what_the_work_returns() -> None:
    async def work() -> int:
        return 7

    assert await finish(work()) == 7


async def test_finish_raises_what_the_work_raises() -> None:
    async def work() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await finish(work())


async def test_work_is_finished_although_its_caller_is_cancelled_again_and_again() -> None:
    done = asyncio.Event()

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(finish(work()))
    while not done.is_set():
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_cancellation_is_raised_although_the_work_failed() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    task = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_end_returns_when_work_that_resists_is_done() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.7)
        done.set()

    task = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    await end(task)
    assert done.is_set()
