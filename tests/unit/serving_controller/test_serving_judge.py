"""The judge: bad canaries are found soon, good ones are let through, and the figures are the textbook's."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlewheel.contracts.reasons import Reason
from serving_controller.domain.judge import (
    Counts,
    Decision,
    Limits,
    Verdict,
    edge_pairs,
    fisher,
    judge,
    percentile,
)

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, math.inf)
"""As the gateway of this project is configured."""
LOOK = 5
"""Seconds between two looks."""


@dataclass
class Side:
    """A revision that answers: `errs` is the share of 5xx, `median` the latency in seconds."""

    errs: float = 0.0
    median: float = 0.02
    requests: int = 0
    errors: int = 0
    buckets: dict[float, int] = field(default_factory=lambda: dict.fromkeys(EDGES, 0))

    def answer(self, rng: random.Random, count: int) -> None:
        self.requests += count
        self.errors += sum(rng.random() < self.errs for _ in range(count))
        for _ in range(count):
            first = bisect_left(EDGES, rng.lognormvariate(math.log(self.median), 0.4))
            for edge in EDGES[first:]:
                self.buckets[edge] += 1

    @property
    def counts(self) -> Counts:
        return Counts(self.requests, self.errors, dict(self.buckets))


def watch(
    canary: Side, stable: Side, *, rate: float, share: float, seconds: int, seed: int
) -> Verdict | None:
    """Look every few seconds until it is rolled back; None when it never is.

    Args:
        rate: requests a second for both.
        share: of them that the canary gets.
    """
    rng = random.Random(seed)
    due = 0.0
    for _ in range(0, seconds, LOOK):
        due += rate * LOOK * share
        count, due = int(due), due - int(due)
        canary.answer(rng, count)
        stable.answer(rng, int(rate * LOOK * (1 - share)))
        verdict = judge(stable.counts, canary.counts, Limits(), least=50)
        if verdict.decision is Decision.ROLL_BACK:
            return verdict
    return None


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_a_canary_that_fails_a_fifth_is_found_within_a_minute(share: float, seed: int) -> None:
    verdict = watch(Side(errs=0.2), Side(), rate=20, share=share, seconds=60, seed=seed)
    assert verdict is not None
    assert verdict.reason is Reason.TOO_MANY_ERRORS
    assert "requests failed" in verdict.message


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_a_canary_three_times_as_slow_is_found_within_a_minute(share: float, seed: int) -> None:
    verdict = watch(Side(median=0.06), Side(), rate=20, share=share, seconds=60, seed=seed)
    assert verdict is not None
    assert verdict.reason is Reason.TOO_SLOW


@pytest.mark.parametrize("errs", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("seed", range(25))
def test_no_good_canary_is_rolled_back_however_often_it_is_looked_at(errs: float, seed: int) -> None:
    for share in (0.05, 0.2, 0.5):
        good, stable = Side(errs=errs), Side(errs=errs)
        assert watch(good, stable, rate=20, share=share, seconds=120, seed=seed) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_good_canary_may_go_on_once_it_has_answered_enough(seed: int) -> None:
    rng = random.Random(seed)
    good, stable = Side(), Side()
    good.answer(rng, 49)
    stable.answer(rng, 500)
    assert judge(stable.counts, good.counts, Limits(), least=50).decision is Decision.CONTINUE
    good.answer(rng, 200)
    assert judge(stable.counts, good.counts, Limits(), least=50).decision is Decision.PROMOTE


def test_a_doubtful_canary_waits_for_more_requests() -> None:
    doubtful = judge(Counts(1000), Counts(60, 2), Limits(), least=50)
    assert doubtful.decision is Decision.CONTINUE
    assert 1e-4 < doubtful.p_value < 0.01


def test_fewer_errors_than_allowed_are_no_reason() -> None:
    many = Counts(100_000, 900), Counts(100_000)
    assert judge(many[1], many[0], Limits(error_points=1), least=50).decision is not Decision.ROLL_BACK
    assert judge(many[1], many[0], Limits(error_points=0.5), least=50).decision is Decision.ROLL_BACK


def test_a_faster_canary_with_fewer_errors_goes_on() -> None:
    rng = random.Random(1)
    better, stable = Side(median=0.004), Side(errs=0.1)
    better.answer(rng, 100)
    stable.answer(rng, 1000)
    assert judge(stable.counts, better.counts, Limits(), least=50).decision is Decision.PROMOTE


def test_without_requests_nothing_is_concluded() -> None:
    assert judge(Counts(), Counts(), Limits(), least=1).decision is Decision.CONTINUE
    assert judge(Counts(), Counts(4, 4), Limits(), least=50).decision is Decision.CONTINUE
    assert judge(Counts(), Counts(500, 400), Limits(), least=50).decision is Decision.CONTINUE


def test_fisher_is_that_of_the_textbook() -> None:
    # The lady tasting tea: 3 of 4 right, and 4 of 4.
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher(0, 4, 0, 4) == 1.0


def test_percentiles_are_interpolated_and_unknown_beyond_the_last_edge() -> None:
    assert percentile({0.1: 50, 0.2: 100, math.inf: 100}, 0.75) == pytest.approx(0.15)
    assert percentile({0.1: 1, math.inf: 2}, 0.95) == math.inf
    assert percentile({}, 0.95) == 0.0


def test_each_edge_is_compared_with_the_one_that_is_lower_by_the_factor() -> None:
    buckets = dict.fromkeys((0.01, 0.02, 0.025, 0.05, math.inf), 1)
    assert edge_pairs(buckets, 1.5) == [(0.02, 0.01), (0.025, 0.01), (0.05, 0.025)]
    assert edge_pairs(buckets, 100) == []


counts = st.builds(lambda hits, misses: Counts(hits + misses, hits), st.integers(0, 300), st.integers(0, 300))


@settings(deadline=None)
@given(counts, counts)
def test_chances_are_chances(one: Counts, other: Counts) -> None:
    verdict = judge(one, other, Limits(), least=1)
    assert 0.0 <= verdict.p_value <= 1.0


@settings(deadline=None)
@given(counts, counts)
def test_no_canary_with_a_smaller_share_of_errors_is_rolled_back(stable: Counts, canary: Counts) -> None:
    if canary.error_share <= stable.error_share:
        assert judge(stable, canary, Limits(), least=1).decision is not Decision.ROLL_BACK


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 100))
def test_more_errors_are_never_less_suspicious(tries: int, others: int, hits: int) -> None:
    hits = min(hits, tries - 1)
    assert fisher(hits + 1, tries, 0, others) <= fisher(hits, tries, 0, others) + 1e-12
