"""Work that is ended once something else has happened."""

from __future__ import annotations

import asyncio

import pytest

from cache_runtime.guard import BrokenOffError, unless
from cache_runtime.timing import (
    AGENT_AWAY_TIMEOUT_SECONDS,
    MASTER_TIMEOUT_SECONDS,
    RUN_CONTACT_TIMEOUT_SECONDS,
    STATE_WRITE_TIMEOUT_SECONDS,
)
from paddlewheel.core import tasks


class Work:
    """Takes some time to end, as a client does that is killed."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.has_ended = False

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await tasks.finish(self._end())

    async def _end(self) -> None:
        await self.may_end.wait()
        self.has_ended = True


async def test_whoever_ends_the_guarded_work_waits_for_it_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_CANCEL_INTERVAL_SECONDS", 0.01)
    work = Work()
    outer = asyncio.create_task(unless(asyncio.sleep(60), work.run()))
    await work.began.wait()
    ending = asyncio.create_task(tasks.end(outer))
    while outer.cancelling() < 3:
        await asyncio.sleep(0.001)
    assert not outer.done()
    work.may_end.set()
    await ending
    assert work.has_ended


async def test_work_that_is_broken_off_has_ended() -> None:
    work, stop = Work(), asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()

    outer = asyncio.create_task(unless(until_stopped(), work.run()))
    await work.began.wait()
    stop.set()
    work.may_end.set()
    with pytest.raises(BrokenOffError):
        await outer
    assert work.has_ended


def test_work_is_broken_off_before_others_take_it_over() -> None:
    """Decision 0032 rests on that."""
    assert min(MASTER_TIMEOUT_SECONDS, AGENT_AWAY_TIMEOUT_SECONDS) > RUN_CONTACT_TIMEOUT_SECONDS
    assert STATE_WRITE_TIMEOUT_SECONDS < MASTER_TIMEOUT_SECONDS
