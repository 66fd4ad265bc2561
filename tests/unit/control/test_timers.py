"""Timers, compared with a plain dictionary of due times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.control.timers import SPARE, Timers

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("discard"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    ),
    max_size=200,
)


@given(steps=STEPS)
def test_every_key_is_due_once_at_its_last_time(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    expected: dict[str, float] = {}
    for step, key, at in steps:
        if step == "set":
            timers.set(key, at)
            expected[key] = at
        elif step == "discard":
            timers.discard(key)
            expected.pop(key, None)
        else:
            due = {key for key, time in expected.items() if time <= at}
            popped = timers.pop_due(at)
            assert len(popped) == len(due)
            assert set(popped) == due
            expected = {key: time for key, time in expected.items() if time > at}
        assert len(timers) == len(expected)
        assert {key: timers.get(key) for key in "abc"} == {key: expected.get(key) for key in "abc"}
        next_due = timers.next_due()
        assert not expected or (next_due is not None and next_due <= min(expected.values()))


def test_keys_come_in_the_order_of_their_times() -> None:
    timers: Timers[str] = Timers()
    for key, at in (("c", 3), ("a", 1), ("b", 2)):
        timers.set(key, at)
    assert timers.pop_due(2.5) == ["a", "b"]
    assert timers.next_due() == 3


def test_superseded_times_are_not_kept() -> None:
    timers: Timers[str] = Timers()
    timers.set("other", 5)
    for at in range(10_000):
        timers.set("a", 1_000_000 - at)
    assert len(timers._heap) <= 2 * 2 + SPARE
    assert timers.pop_due(2_000_000) == ["other", "a"]


def test_the_order_is_kept_when_superseded_times_are_removed() -> None:
    timers: Timers[int] = Timers()
    for key in range(200):
        timers.set(key, 1 + key * 37 % 200)
    for key in range(200):
        timers.set(key, 1000 + key * 61 % 200)
    for key in range(200):
        timers.set(key, 2000 - key * 89 % 200)
    assert [2000 - key * 89 % 200 for key in timers.pop_due(3000)] == list(range(1801, 2001))
