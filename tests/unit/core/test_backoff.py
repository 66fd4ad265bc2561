"""Backoff doubles up to its cap, and starts at the base again after a success."""

from __future__ import annotations

from paddlewheel.core.backoff import Backoff


def test_doubles_to_the_cap_per_key() -> None:
    backoff: Backoff[str] = Backoff(base=0.5, cap=3)
    assert [backoff.next("a") for _ in range(5)] == [0.5, 1, 2, 3, 3]
    assert backoff.next("b") == 0.5
    assert (backoff.failures("a"), backoff.failures("b"), backoff.failures("c")) == (5, 1, 0)


def test_reset_starts_over() -> None:
    backoff: Backoff[str] = Backoff(base=0.5, cap=3)
    backoff.next("a")
    backoff.reset("a")
    assert backoff.next("a") == 0.5


def test_stays_at_the_cap_after_any_number_of_failures() -> None:
    backoff: Backoff[str] = Backoff(cap=60)
    assert [backoff.next("a") for _ in range(5000)][-1] == 60


def test_jitter_shortens_or_lengthens_each_wait() -> None:
    least: Backoff[str] = Backoff(base=1, cap=4, jitter=0.2, uniform=lambda low, _: low)
    most: Backoff[str] = Backoff(base=1, cap=4, jitter=0.2, uniform=lambda _, high: high)
    assert [least.next("a") for _ in range(4)] == [0.8, 1.6, 3.2, 3.2]
    assert [most.next("a") for _ in range(4)] == [1.2, 2.4, 4.8, 4.8]
    drawn: Backoff[str] = Backoff(base=1, cap=1, jitter=0.5)
    waits = {drawn.next("a") for _ in range(50)}
    assert len(waits) > 1
    assert all(0.5 <= wait <= 1.5 for wait in waits)


def test_only_retained_keys_are_remembered() -> None:
    backoff: Backoff[str] = Backoff(base=1)
    for key in ("a", "b", "c"):
        backoff.next(key)
    backoff.retain({"b"})
    assert [backoff.failures(key) for key in ("a", "b", "c")] == [0, 1, 0]
