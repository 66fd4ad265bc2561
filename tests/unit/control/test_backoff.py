"""Backoff doubles to its cap and starts over after a success."""

from __future__ import annotations

from paddlewheel.control.backoff import Backoff


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
