"""Several ordered sources read as one."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from paddlewheel.bus.consume.merge import Idle, Source, merged

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Item:
    second: int

    @property
    def at(self) -> datetime:
        return ZERO + timedelta(seconds=self.second)


@dataclass
class Stored:
    """A source whose items come one by one, each after `lag` turns of the loop; then it ends or fails."""

    items: deque[int]
    behind: bool = True
    lag: int = 0
    failure: Exception | None = None
    asked: int = field(default=0)

    def take(self) -> Item | None:
        return None if self.lag or not self.items else self._next()

    async def wait(self) -> Item | Idle:
        for _ in range(self.lag):
            await asyncio.sleep(0)
        if self.items:
            return self._next()
        if self.failure:
            raise self.failure
        return Idle.ENDED

    def _next(self) -> Item:
        self.asked += 1
        return Item(self.items.popleft())


def make_source(*seconds: int, behind: bool = True, lag: int = 0, failure: Exception | None = None) -> Stored:
    return Stored(deque(seconds), behind, lag, failure)


async def seconds(*sources: Stored) -> list[int]:
    async with aclosing(merged(sources)) as items:
        return [item.second async for item in items]


async def test_what_is_stored_comes_by_time_however_slow_a_source_is() -> None:
    assert await seconds(make_source(1, 4, 6), make_source(2, 3, 5, lag=9)) == [1, 2, 3, 4, 5, 6]


async def test_that_nothing_stored_is_left_is_said_once_behind_the_last_stored_item() -> None:
    story: list[int | str] = []
    sources = [make_source(1, 3), make_source(2, lag=9), make_source(behind=False, lag=99)]
    async with aclosing(merged(sources, lambda: story.append("caught up"))) as items:
        async for item in items:
            story.append(item.second)
    assert story == [1, 2, 3, "caught up"]


async def test_a_source_that_has_caught_up_holds_nobody_back() -> None:
    assert await seconds(make_source(5, 6), make_source(1, behind=False, lag=9)) == [5, 6, 1]


@dataclass
class Empty:
    """A source that cannot tell at first that nothing is stored in it; then nothing ever comes."""

    behind: bool = True

    def take(self) -> Item | None:
        return None

    async def wait(self) -> Item | Idle:
        for _ in range(9):
            await asyncio.sleep(0)
        if self.behind:
            self.behind = False
            return Idle.CAUGHT_UP
        await asyncio.Event().wait()
        raise AssertionError("never comes here")


async def test_a_source_that_turns_out_to_be_empty_holds_nobody_back() -> None:
    sources: list[Source[Item]] = [make_source(1, 2, lag=1), Empty(), Empty()]
    async with aclosing(merged(sources)) as items:
        async with asyncio.timeout(10):
            assert [(await anext(items)).second for _ in range(2)] == [1, 2]


async def test_nothing_is_looked_for_before_it_is_asked_for() -> None:
    source = make_source(1, 2, 3)
    async with aclosing(merged([source])) as items:
        await anext(items)
        assert source.asked == 1


async def test_no_sources_are_an_end() -> None:
    assert await seconds() == []


async def test_a_failure_is_raised_and_those_of_the_others_are_not_complained_about() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    with pytest.raises(LookupError):
        await seconds(*(make_source(failure=LookupError()) for _ in range(3)))
    gc.collect()
    assert complaints == []


async def test_leaving_early_ends_the_waits() -> None:
    before = asyncio.all_tasks()
    items = merged([make_source(1, behind=False), make_source(lag=10**6, behind=False)])
    await anext(items)
    await items.aclose()
    assert asyncio.all_tasks() == before
