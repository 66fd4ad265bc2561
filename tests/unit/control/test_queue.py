"""The keyed queue: repeated keys, one worker per key, priorities and delays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlewheel.control.queue import KeyedQueue
from paddlewheel.testkit.clock import ManualClock


@asynccontextmanager
async def running(queue: KeyedQueue[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def take_all(queue: KeyedQueue[str]) -> list[str]:
    """Take and finish every key that is ready."""
    keys = []
    while len(queue):
        key = await queue.get()
        assert key is not None
        keys.append(key)
        queue.done(key)
    return keys


async def test_repeats_collapse_and_order_is_kept() -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    for key in ("b", "a", "b", "b"):
        queue.add(key)
    assert await take_all(queue) == ["b", "a"]


async def test_a_key_added_while_worked_on_comes_again_only_after_done() -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"


Add = tuple[str, bool]
"""A key, and whether it is a routine key."""

ORDERS: list[tuple[str, list[Add], list[str]]] = [
    ("changes go first", [("a", True), ("b", True), ("c", False), ("d", False)], ["c", "d", "a", "b"]),
    ("a routine key that changes goes first", [("a", True), ("b", True), ("b", False)], ["b", "a"]),
    ("a change stays one", [("a", True), ("b", False), ("b", True)], ["b", "a"]),
    ("a routine key keeps its place", [("a", True), ("b", True), ("a", True)], ["a", "b"]),
    ("routine is not starved", [("r", True), *((key, False) for key in "abcdef")], [*"abcrdef"]),
]


@pytest.mark.parametrize(("name", "adds", "expected"), ORDERS, ids=[case[0] for case in ORDERS])
async def test_changes_overtake_routine(name: str, adds: list[Add], expected: list[str]) -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    for key, routine in adds:
        queue.add(key, routine=routine)
    assert await take_all(queue) == expected


FIRST: list[tuple[str, list[Add], list[str]]] = [
    ("before other changes", [("a", False), ("b!", False)], ["b!", "a"]),
    ("not when they are routine", [("a", False), ("b!", True)], ["a", "b!"]),
    (
        "others are not starved, nor is routine by them",
        [("r", True), *((key, False) for key in "abcd"), *((f"{number}!", False) for number in range(13))],
        ["0!", "1!", "2!", "a", "3!", "4!", "5!", "b", "6!", "7!", "8!", "c", "9!", "10!", "11!", "r", "12!"],
    ),
]


@pytest.mark.parametrize(("name", "adds", "expected"), FIRST, ids=[case[0] for case in FIRST])
async def test_some_changes_overtake_others(name: str, adds: list[Add], expected: list[str]) -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock(), lambda key: key.endswith("!"))
    for key, routine in adds:
        queue.add(key, routine=routine)
    assert [await queue.get() for _ in expected] == expected


@pytest.mark.parametrize("handed_out", range(17))
@pytest.mark.parametrize("ahead", [0, 1, 9])
@pytest.mark.parametrize(("routine", "turns"), [(False, 8), (True, 16)], ids=["a change", "routine"])
async def test_what_comes_later_waits_a_bounded_number_of_turns(
    routine: bool, turns: int, ahead: int, handed_out: int
) -> None:
    """First keys are added again and again. One of any 8 keys is still another change, and one of any 16 is
    routine."""
    queue: KeyedQueue[str] = KeyedQueue(ManualClock(), lambda key: key.endswith("!"))

    async def take() -> str:
        key = await queue.get()
        assert key is not None
        again = key.endswith("!")
        if again:
            queue.add(key)
        queue.done(key)
        if not again:
            queue.add(key, routine=key.startswith("routine"))
        return key

    for number in range(1000):
        queue.add(f"{number}!")
    for number in range(ahead + 1):
        queue.add(f"changed {number}")
        queue.add(f"routine {number}", routine=True)
    for _ in range(handed_out):
        await take()
    queue.add("late", routine=routine)
    keys = [await take() for _ in range(turns * (ahead + 2))]
    assert "late" in keys


AGAIN: list[tuple[str, list[bool], list[str]]] = [
    ("routine", [True], ["b", "a"]),
    ("a change", [False], ["a", "b"]),
    ("a change, then routine", [False, True], ["a", "b"]),
    ("routine, then a change", [True, False], ["a", "b"]),
]


@pytest.mark.parametrize(("name", "routines", "expected"), AGAIN, ids=[case[0] for case in AGAIN])
async def test_what_is_added_while_worked_on_is_routine_only_if_all_of_it_is(
    name: str, routines: list[bool], expected: list[str]
) -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    queue.add("a")
    assert await queue.get() == "a"
    for routine in routines:
        queue.add("a", routine=routine)
    queue.add("b", routine=True)
    assert len(queue) == 2
    queue.done("a")
    assert await take_all(queue) == expected


DELAYS = [
    ("one delay", [("a", 5)], {4: [], 5: ["a"]}),
    ("the earlier of two wins", [("a", 5), ("a", 2)], {2: ["a"], 5: []}),
    ("a later one changes nothing", [("a", 2), ("a", 5)], {2: ["a"], 5: []}),
    ("a new head wakes the timer", [("a", 50), ("b", 1)], {1: ["b"], 50: ["a"]}),
    ("no delay is at once", [("a", 0), ("b", -1)], {0: ["a", "b"]}),
]


@pytest.mark.parametrize(("name", "adds", "expected"), DELAYS, ids=[case[0] for case in DELAYS])
async def test_delays(name: str, adds: list[tuple[str, float]], expected: dict[float, list[str]]) -> None:
    clock = ManualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock)
    async with running(queue):
        for key, delay in adds:
            queue.add_after(key, delay)
            await asyncio.sleep(0)
        for moment, keys in expected.items():
            await settle()
            await clock.advance(moment - clock.monotonic())
            await settle()
            assert await take_all(queue) == keys
        assert queue.delayed == 0


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_timers_of_a_key_do_not_displace_each_other() -> None:
    clock = ManualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock)
    due: list[float] = []
    async with running(queue):
        queue.add_after("a", 6)
        queue.set_timer("a", "requeue", 3)
        queue.set_timer("a", "requeue", 4)
        queue.set_timer("a", "retry", 2)
        queue.set_timer("a", "retry", None)
        assert queue.delayed == 2
        for _ in range(8):
            await settle()
            await clock.advance(1)
            await settle()
            due += [clock.monotonic()] * len(await take_all(queue))
    assert due == [4, 6]


async def test_of_the_timers_only_a_requeue_is_routine() -> None:
    clock = ManualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock)
    async with running(queue):
        queue.set_timer("looked at again", "requeue", 1)
        queue.set_timer("failed", "retry", 2)
        queue.add_after("woken", 3)
        await settle()
        await clock.advance(3)
        await settle()
        assert await take_all(queue) == ["failed", "woken", "looked at again"]


async def test_a_timer_that_is_due_at_once_adds_the_key() -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    queue.set_timer("a", "requeue", 5)
    queue.set_timer("a", "requeue", 0)
    assert await take_all(queue) == ["a"]
    assert queue.delayed == 0


async def test_close_ends_every_worker_after_what_is_ready() -> None:
    queue: KeyedQueue[str] = KeyedQueue(ManualClock())
    queue.add("a")
    queue.close()
    assert [await queue.get(), await queue.get(), await queue.get()] == ["a", None, None]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc")),
        st.tuples(st.just("after"), st.sampled_from("abc")),
        st.tuples(st.just("tick"), st.just("")),
    ),
    max_size=60,
)


@given(steps=STEPS)
@settings(max_examples=60)
def test_no_key_is_worked_on_twice_at_once_and_none_is_lost(steps: list[tuple[str, str]]) -> None:
    asyncio.run(check_history(steps))


async def check_history(steps: list[tuple[str, str]]) -> None:
    clock = ManualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock)
    busy: set[str] = set()
    served_after: dict[str, int] = {}
    wanted_at: dict[str, int] = {}
    moment = 0

    async def work() -> None:
        while (key := await queue.get()) is not None:
            assert key not in busy
            busy.add(key)
            served_after[key] = moment
            await clock.sleep(1)
            busy.discard(key)
            queue.done(key)

    async with running(queue), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work())
        for moment, (step, key) in enumerate([*steps, *[("tick", "")] * 10]):
            if step == "tick":
                await clock.advance(1)
            else:
                wanted_at[key] = moment
                queue.add(key) if step == "add" else queue.add_after(key, 2)
            await settle()
        queue.close()
    assert set(served_after) == set(wanted_at)
    assert all(served_after[key] >= wanted_at[key] for key in wanted_at)
