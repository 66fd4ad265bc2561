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


async def test_a_freed_place_goes_to_whoever_has_the_fewest_and_then_has_had_none_for_longest() -> None:
    """However many askers one tenant is."""
    turns, order = Turns(Limits(at_work=2, waiting=8, all_at_work=4, all_waiting=64)), list[str]()
    freed = {name: asyncio.Semaphore(0) for name in "abcdxy"}

    async def ask(name: str) -> None:
        async with turns.taken(name):
            order.append(name)
            await freed[name].acquire()

    tasks = [asyncio.create_task(ask(name)) for name in "abcda" + "abcd" * 4 + "xy"]
    await settled(lambda: len(order) == 4)
    for name in "bca":
        await asyncio.sleep(0)
        freed[name].release()
    await settled(lambda: len(order) == 7)

    # x and y have had none; then of a, b and c, who have none now, a had his first.
    assert order == [*"abcd", "x", "y", "a"]
    await end(*tasks)


async def test_one_that_gives_up_as_it_gets_a_place_hands_it_on() -> None:
    turns, order = Turns(Limits(at_work=2, waiting=2, all_at_work=1, all_waiting=8)), list[str]()

    async def ask(name: str) -> None:
        async with turns.taken(name):
            order.append(name)

    async with turns.taken("a"):
        granted, cancelled, other = (asyncio.create_task(ask(name)) for name in "bcd")
        await asyncio.sleep(0)
        cancelled.cancel()
    # Its place is here, and it has not noticed.
    granted.cancel()

    await asyncio.wait_for(other, 5)
    assert order == ["d"]
    assert turns._askers == {}
    await asyncio.wait_for(ask("e"), 5)


@pytest.mark.parametrize("sets", [8, 100])
async def test_many_askers_who_always_wait_let_others_have_the_next_places(sets: int) -> None:
    """The data sets of one tenant: each keeps eight of the largest batches asked for."""
    turns = Turns(Limits(at_work=8, waiting=8, all_at_work=16, all_waiting=9999))
    rounds = 0

    async def ask(name: str) -> int:
        before = rounds
        async with turns.taken(name):
            began = rounds
            while rounds == began:
                await asyncio.sleep(0)
        return began - before

    async def keep_asking(name: str) -> None:
        while True:
            await ask(name)

    async def end_round() -> None:
        nonlocal rounds
        rounds += 1
        for _ in range(99):
            await asyncio.sleep(0)

    flood = [asyncio.create_task(keep_asking(f"h{number}")) for number in range(sets) for _ in range(8)]
    # Until all of them have had places.
    for _ in range(sets):
        await end_round()
    others = [asyncio.create_task(ask(f"v{number}")) for number in range(16)]
    await asyncio.sleep(0)
    while not all(each.done() for each in others):
        await end_round()

    assert {each.result() for each in others} == {1}
    await end(*flood)


async def test_one_that_asks_again_has_lost_nothing() -> None:
    turns, order = Turns(Limits(at_work=1, waiting=1, all_at_work=1, all_waiting=9)), list[str]()

    async def ask(name: str) -> None:
        async with turns.taken(name):
            order.append(name)

    for name in "abc":
        await ask(name)
    async with turns.taken("d"):
        given_up, *others = (asyncio.create_task(ask(name)) for name in "acb")
        await asyncio.sleep(0)
        await end(given_up)
        again = asyncio.create_task(ask("a"))
        await asyncio.sleep(0)
    await asyncio.gather(again, *others)

    assert order == [*"abc", *"abc"]


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
