"""Whose request is worked on when, while others ask for more than there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paddlewheel.bus.turns import Limits, Turns
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end

LIMITS = Limits(at_work=2, waiting=8, all_at_work=4, all_waiting=16)


async def test_a_newcomer_gets_the_next_turn_although_others_have_taken_all_and_wait_for_more() -> None:
    turns, order, freed = Turns(LIMITS), list[str](), asyncio.Semaphore(0)

    async def ask(name: str) -> None:
        async with turns.taken(name):
            order.append(name)
            await freed.acquire()

    tasks = [asyncio.create_task(ask(name)) for name in "aabb" + "ab" * 4]
    await settled(lambda: len(order) == 4)
    newcomer = asyncio.create_task(ask("new"))
    await asyncio.sleep(0)

    freed.release()
    await settled(lambda: len(order) == 5)

    assert order[-1] == "new"
    await end(newcomer, *tasks)


async def test_whoever_rests_lets_others_work_but_not_his_own_next() -> None:
    turns, order = Turns(Limits(at_work=1, waiting=1, all_at_work=1, all_waiting=1)), list[str]()

    async def ask(name: str) -> None:
        async with turns.taken(name):
            order.append(name)

    async with turns.taken("a") as turn:
        own, other = asyncio.create_task(ask("a")), asyncio.create_task(ask("b"))
        await asyncio.sleep(0)
        with pytest.raises(Retry, match="Busy"):
            await ask("a")
        turn.rest()
        await other
        assert order == ["b"]
    await own
    assert order == ["b", "a"]


async def test_one_that_gives_up_keeps_no_turn() -> None:
    turns = Turns(Limits(at_work=1, waiting=1, all_at_work=1, all_waiting=1))

    async def ask(name: str) -> None:
        async with turns.taken(name):
            pass

    async with turns.taken("a"):
        tasks = [asyncio.create_task(ask(name)) for name in "ab"]
        await asyncio.sleep(0)
        await end(*tasks)

    await asyncio.wait_for(ask("b"), 5)
    await asyncio.wait_for(ask("a"), 5)


async def test_whoever_waits_too_long_is_told_so_and_keeps_no_turn() -> None:
    turns = Turns(Limits(at_work=1, waiting=1, all_at_work=1, patience=0.01))

    async def ask(name: str) -> None:
        async with turns.taken(name):
            pass

    async with turns.taken("a"):
        for name in "ab":
            with pytest.raises(Retry, match="Busy"):
                await ask(name)

    await asyncio.wait_for(ask("b"), 5)
    await asyncio.wait_for(ask("a"), 5)


async def settled(holds: Callable[[], bool]) -> None:
    """Turns are handed on by the loop alone."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)


async def test_bytes_of_one_asker_are_bounded_and_leave_room_for_others() -> None:
    turns = Turns(Limits(at_work=2, waiting=8, bytes=100, all_bytes=160))

    async with turns.taken("a", 150):
        with pytest.raises(Retry, match="Busy"):
            async with turns.taken("a", 1):
                pass
        async with turns.taken("b", 10):
            with pytest.raises(Retry, match="Busy"):
                async with turns.taken("b", 0):
                    pass
        with pytest.raises(Retry, match="Busy"):
            async with turns.taken("c", 11):
                pass
    async with turns.taken("a", 60), turns.taken("a", 40):
        pass


async def test_bytes_are_free_again_whatever_ends_the_request() -> None:
    turns = Turns(Limits(at_work=1, waiting=8, bytes=100, all_bytes=160, patience=0.01))

    async with turns.taken("a", 60):
        with pytest.raises(Retry, match="in time"):
            async with turns.taken("a", 40):
                pass
    with pytest.raises(ValueError, match="x"):
        async with turns.taken("a", 100):
            raise ValueError("x")
    async with turns.taken("a", 100), turns.taken("b", 60):
        pass
