"""The judge: bad canaries are found soon, those within their limits go on, chances are true."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paddlewheel.cli.repo import repo_file
from paddlewheel.contracts.reasons import Reason
from serving_controller.domain.judge import (
    ALPHA,
    Counts,
    Decision,
    Limits,
    Verdict,
    blind_spot,
    chance,
    edge_pairs,
    judge,
    percentile,
    slower_than,
)

_BUCKETS = repo_file("deploy/addons/gateway.yaml").read_text().partition("prometheus.buckets=")[2]
EDGES = (*map(float, _BUCKETS.splitlines()[0].split(",")), math.inf)
"""As the gateway of this project is configured."""
LOOK = 5
"""Seconds between two looks."""
RATE = 40
"""Requests a second: a canary with 5 % of them answers 120 in a minute."""


@dataclass
class Side:
    """A revision that answers: `errs` is the share of 5xx, `median` the latency in seconds, `spread` the
    standard deviation of its logarithm."""

    errs: float = 0.0
    median: float = 0.02
    spread: float = 0.4
    requests: int = 0
    errors: int = 0
    buckets: dict[float, int] = field(default_factory=lambda: dict.fromkeys(EDGES, 0))

    def answer(self, rng: np.random.Generator, count: int) -> None:
        self.requests += count
        self.errors += int(rng.binomial(count, self.errs))
        latencies = np.sort(rng.lognormal(math.log(self.median), self.spread, count))
        for edge, within in zip(EDGES, np.searchsorted(latencies, EDGES, side="right"), strict=True):
            self.buckets[edge] += int(within)

    @property
    def counts(self) -> Counts:
        return Counts(self.requests, self.errors, dict(self.buckets))


def watch(
    canary: Side,
    stable: Side,
    *,
    share: float,
    seconds: int,
    seed: int,
) -> Verdict | None:
    """Look every few seconds until it is rolled back; None when it never is.

    Args:
        share: of the requests that the canary gets.
    """
    rng = np.random.default_rng(seed)
    due = 0.0
    for _ in range(0, seconds, LOOK):
        due += RATE * LOOK * share
        count, due = int(due), due - int(due)
        canary.answer(rng, count)
        stable.answer(rng, int(RATE * LOOK * (1 - share)))
        verdict = judge(stable.counts, canary.counts, Limits(), least=50)
        if verdict.decision is Decision.ROLL_BACK:
            return verdict
    return None


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_a_canary_that_fails_a_fifth_is_found_within_a_minute(share: float, seed: int) -> None:
    verdict = watch(Side(errs=0.2), Side(), share=share, seconds=60, seed=seed)
    assert verdict is not None
    assert verdict.reason is Reason.TOO_MANY_ERRORS
    assert "requests failed" in verdict.message


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_a_canary_three_times_as_slow_is_found_within_a_minute(share: float, seed: int) -> None:
    verdict = watch(Side(median=0.06), Side(), share=share, seconds=60, seed=seed)
    assert verdict is not None
    assert verdict.reason is Reason.TOO_SLOW


@pytest.mark.slow
@pytest.mark.parametrize("errs", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("seed", range(25))
def test_no_good_canary_is_rolled_back_however_often_it_is_looked_at(errs: float, seed: int) -> None:
    for share in (0.05, 0.2, 0.5):
        good, stable = Side(errs=errs), Side(errs=errs)
        assert watch(good, stable, share=share, seconds=120, seed=seed) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_good_canary_may_go_on_once_it_has_answered_enough(seed: int) -> None:
    rng = np.random.default_rng(seed)
    good, stable = Side(), Side()
    good.answer(rng, 49)
    stable.answer(rng, 500)
    assert judge(stable.counts, good.counts, Limits(), least=50).decision is Decision.CONTINUE
    good.answer(rng, 200)
    assert judge(stable.counts, good.counts, Limits(), least=50).decision is Decision.PROMOTE


@pytest.mark.parametrize("seed", range(5))
def test_no_canary_just_within_its_limits_is_rolled_back(seed: int) -> None:
    errs, slow = Side(errs=0.009), Side(median=0.028)
    assert watch(errs, Side(), share=0.2, seconds=900, seed=seed) is None
    assert watch(slow, Side(), share=0.2, seconds=120, seed=seed) is None


@pytest.mark.slow
def test_many_looks_cost_no_more_than_a_step_may() -> None:
    rng = random.Random(1)
    assert sum(_is_ever_rolled_back(rng, share=0.1, looks=200) for _ in range(200)) <= 200 * ALPHA


def _is_ever_rolled_back(rng: random.Random, share: float, looks: int) -> bool:
    """A canary at its limit: ten more requests for it and for the stable revision at each look."""
    stable, canary = 0, 0
    for look in range(1, looks + 1):
        stable += sum(rng.random() < share for _ in range(10))
        canary += sum(rng.random() < share for _ in range(10))
        sides = Counts(10 * look, stable), Counts(10 * look, canary)
        if judge(*sides, Limits(error_points=0), least=50).decision is Decision.ROLL_BACK:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_only_the_p95_is_limited_not_the_median(seed: int) -> None:
    stable = Side(spread=0.8)
    twice_the_median = Side(median=0.04, spread=0.58)  # p95: 1.39 times the stable one's
    assert watch(twice_the_median, stable, share=0.1, seconds=300, seed=seed) is None


def test_a_p95_that_only_its_bucket_makes_worse_is_no_reason_to_stop_or_wait() -> None:
    rng = np.random.default_rng(1)
    # A third slower; the interpolated p95 of 31.6 ms and 55.3 ms are apart by more than the factor.
    stable, canary = Side(median=0.0318, spread=0.0), Side(median=0.0425, spread=0.0)
    stable.answer(rng, 2000)
    canary.answer(rng, 2000)
    assert canary.counts.p95 > 1.5 * stable.counts.p95
    assert judge(stable.counts, canary.counts, Limits(), least=50).decision is Decision.PROMOTE


TRAEFIKS = (0.1, 0.3, 1.2, 5.0, math.inf)
"""Edges of a Traefik that is not told others."""
PROMETHEUS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
"""Default edges of the clients of Prometheus."""


def at(seconds: float, edges: tuple[float, ...]) -> Counts:
    """1000 requests that took so long."""
    return Counts(1000, 0, {edge: 1000 if seconds <= edge else 0 for edge in edges})


@pytest.mark.parametrize("edges", [TRAEFIKS, PROMETHEUS, (), (math.inf,)])
@pytest.mark.parametrize("seconds", [0.038, 0.2, 3.0, 20.0])
def test_a_histogram_that_does_not_tell_a_slow_canary_is_named(
    edges: tuple[float, ...], seconds: float
) -> None:
    stable, canary = at(seconds, edges), at(3.1 * seconds, edges)
    if judge(stable, canary, Limits(), least=50).decision is not Decision.ROLL_BACK:
        assert "metrics.prometheus.buckets" in blind_spot(stable, canary, 1.5)


@pytest.mark.parametrize("milliseconds", [1.1**power for power in range(-20, 105, 3)])
def test_with_the_edges_of_our_gateway_every_slow_canary_is_found(milliseconds: float) -> None:
    seconds = milliseconds / 1000
    stable, canary = at(seconds, EDGES), at(max(3.1 * seconds, 0.0031), EDGES)
    assert blind_spot(stable, canary, 1.5) == ""
    assert judge(stable, canary, Limits(), least=50).decision is Decision.ROLL_BACK


@given(st.lists(st.floats(1.1, 1.9), min_size=20, max_size=20), st.floats(0.01, 1), st.floats(1, 4))
def test_either_it_is_named_or_a_canary_slower_by_twice_the_factor_is_found(
    ratios: list[float], seconds: float, factor: float
) -> None:
    edges = (*accumulate(ratios, lambda edge, ratio: edge * ratio, initial=0.005), math.inf)
    stable, canary = at(seconds, edges), at(2.001 * factor * seconds, edges)
    assume(not blind_spot(stable, canary, factor))
    assert judge(stable, canary, Limits(latency_factor=factor), least=50).decision is Decision.ROLL_BACK


def test_too_few_requests_say_nothing_about_the_histogram() -> None:
    assert blind_spot(Counts(1000), Counts(4), 1.5) == blind_spot(Counts(4), Counts(1000), 1.5) == ""


def slow(requests: int, errors: int = 0, share: float = 1.0) -> Counts:
    """`share` of the requests took 60 ms, the others 20 ms."""
    late = round(requests * share)
    return Counts(
        requests, errors, {0.025: requests - late, 0.05: requests - late, 0.075: requests, math.inf: requests}
    )


@pytest.mark.parametrize(("requests", "errors", "share"), [(50_000, 400, 1.0), (3_000, 30, 0.09)])
def test_errors_within_their_limit_do_not_hide_that_the_canary_is_slow(
    requests: int, errors: int, share: float
) -> None:
    verdict = judge(slow(10 * requests, share=0.04), slow(requests, errors, share), Limits(), least=50)
    assert (verdict.decision, verdict.reason) == (Decision.ROLL_BACK, Reason.TOO_SLOW)


@pytest.mark.parametrize("requests", [200, 50_000])
def test_a_p95_within_its_limit_does_not_hide_errors(requests: int) -> None:
    # Most requests are slower, beyond doubt, but not the slowest of them.
    verdict = judge(slow(10 * requests, share=0.1), slow(requests, requests // 5), Limits(), least=50)
    assert (verdict.decision, verdict.reason) == (Decision.ROLL_BACK, Reason.TOO_MANY_ERRORS)


def test_a_doubtful_canary_waits_for_more_requests() -> None:
    doubtful = judge(Counts(1000), Counts(60, 4), Limits(), least=50)
    assert doubtful.decision is Decision.CONTINUE
    assert 1e-4 < doubtful.p_value < 0.05


@pytest.mark.parametrize("requests", [400, 4_000, 100_000])
@pytest.mark.parametrize("points", [0.5, 0.9])
def test_fewer_errors_than_allowed_are_no_reason_to_stop_or_wait(requests: int, points: float) -> None:
    canary = Counts(requests, int(requests * points / 100))
    assert judge(Counts(100_000), canary, Limits(error_points=1), least=50).decision is Decision.PROMOTE


def test_more_errors_than_allowed_are_one_however_few_are_allowed() -> None:
    stable, canary = Counts(100_000), Counts(100_000, 900)
    assert judge(stable, canary, Limits(error_points=0.5), least=50).decision is Decision.ROLL_BACK
    assert judge(stable, canary, Limits(error_points=0), least=50).decision is Decision.ROLL_BACK
    assert judge(stable, Counts(100, 100), Limits(error_points=100), least=50).decision is Decision.PROMOTE


def test_a_faster_canary_with_fewer_errors_goes_on() -> None:
    rng = np.random.default_rng(1)
    better, stable = Side(median=0.004), Side(errs=0.1)
    better.answer(rng, 100)
    stable.answer(rng, 1000)
    assert judge(stable.counts, better.counts, Limits(), least=50).decision is Decision.PROMOTE


def test_without_requests_nothing_is_concluded() -> None:
    assert judge(Counts(), Counts(), Limits(), least=1).decision is Decision.CONTINUE
    assert judge(Counts(), Counts(4, 4), Limits(), least=50).decision is Decision.CONTINUE
    assert judge(Counts(), Counts(500, 400), Limits(), least=50).decision is Decision.CONTINUE


def test_a_few_first_failures_prove_nothing() -> None:
    assert judge(Counts(10_000), Counts(4, 4), Limits(), least=50).decision is Decision.CONTINUE
    assert judge(Counts(10_000), Counts(5, 5), Limits(), least=50).decision is Decision.ROLL_BACK


def test_chances_are_those_done_by_hand() -> None:
    # 2 of 2 beside 0 of 2. Both equal: likeliest with a share of 1/2, then (1/2)^4. Each for itself: 1.
    # Mixed with Jeffreys' prior: 3/8 each, which is B(5/2, 1/2) / B(1/2, 1/2).
    found = chance(2, 2, 0, 2)
    assert found.ever == pytest.approx((1 / 2) ** 4 / (3 / 8) ** 2)
    assert found.once == pytest.approx(math.erfc(math.sqrt(4 * math.log(2))) / 2)


def test_the_more_is_tested_the_more_is_left_to_chance() -> None:
    # Twice for errors and latency; for latency twice again, for two pairs of edges.
    errors = judge(Counts(1000), Counts(60, 4), Limits(), least=50)
    assert errors.p_value == pytest.approx(2 * chance(4, 60, 0, 1000, 0.01).once)
    latency = judge(slow(100, share=0.05), slow(100, share=0.15), Limits(), least=50)
    assert latency.p_value == pytest.approx(2 * 2 * chance(15, 100, 5, 100).once)


def test_counts_within_what_is_allowed_say_nothing_against_it() -> None:
    for within in (chance(0, 4, 0, 4), chance(3, 4, 1, 2, 0.25), chance(4, 4, 0, 4, 1.0)):
        assert (within.once, within.ever) == (1.0, 1.0)
    assert chance(4, 4, 0, 0).ever == chance(0, 0, 4, 4).ever == 1.0


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("allowed", [0.0, 0.05])
def test_a_chance_is_as_rare_as_it_says(share: float, allowed: float) -> None:
    # All outcomes of 20 requests beside 40, each with its binomial chance.
    rare = {0.5: 0.0, 0.1: 0.0, 0.01: 0.0}
    for hits in range(21):
        for others in range(41):
            weight = binomial(hits, 20, share + allowed) * binomial(others, 40, share)
            ever = chance(hits, 20, others, 40, allowed).ever
            rare = {level: sum_ + weight * (ever <= level) for level, sum_ in rare.items()}
    assert all(sum_ <= level for level, sum_ in rare.items())


def binomial(hits: int, tries: int, share: float) -> float:
    return math.comb(tries, hits) * share**hits * (1 - share) ** (tries - hits)


def test_percentiles_are_interpolated_and_unknown_beyond_the_last_edge() -> None:
    assert percentile({0.1: 50, 0.2: 100, math.inf: 100}, 0.75) == pytest.approx(0.15)
    assert percentile({0.1: 1, math.inf: 2}, 0.95) == math.inf
    assert percentile({}, 0.95) == 0.0


def test_slow_requests_are_counted_at_edges_and_estimated_between_them() -> None:
    buckets = {0.1: 50, 0.2: 100, math.inf: 110}
    assert [slower_than(buckets, at) for at in (0.0, 0.1, 0.15, 0.2, 0.3)] == [
        110,
        60,
        pytest.approx(35),
        10,
        0,
    ]
    assert slower_than({}, 1.0) == 0


def test_each_edge_is_compared_with_the_one_that_is_lower_by_the_factor() -> None:
    buckets = dict.fromkeys((0.01, 0.02, 0.025, 0.05, math.inf), 1)
    assert edge_pairs(buckets, 1.5) == [(0.02, 0.01), (0.025, 0.01), (0.05, 0.025)]
    assert edge_pairs(buckets, 100) == []


counts = st.builds(lambda hits, misses: Counts(hits + misses, hits), st.integers(0, 300), st.integers(0, 300))


@given(counts, counts)
def test_chances_are_chances(one: Counts, other: Counts) -> None:
    verdict = judge(one, other, Limits(), least=1)
    assert 0.0 <= verdict.p_value <= 1.0


@given(counts, counts)
def test_no_canary_with_a_smaller_share_of_errors_is_rolled_back(stable: Counts, canary: Counts) -> None:
    assume(canary.error_share <= stable.error_share)
    assert judge(stable, canary, Limits(), least=1).decision is not Decision.ROLL_BACK


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 100))
def test_more_errors_are_never_less_suspicious(tries: int, others: int, hits: int) -> None:
    hits = min(hits, tries - 1)
    fewer, more = chance(hits, tries, 0, others), chance(hits + 1, tries, 0, others)
    assert more.once <= fewer.once + 1e-12
    assert more.ever <= fewer.ever + 1e-12
