"""Is a canary worse than the stable revision by more than it may be? Decided from counts of requests.

A test asks whether the canary's share of some requests can be no larger than the stable revision's plus what
is allowed. Errors: the share of 5xx answers, with the points allowed. Latency: the share beyond the stable
p95 times the factor, and at each edge of the histogram the share beyond it, with the stable revision's share
beyond the edge that is lower by the factor.

The figures are looked at every few seconds, and each look would spend an ordinary p-value again. So a canary
is rolled back by a chance that holds for all looks together (Robbins, Statistical methods related to the law
of the iterated logarithm, 1970), if requests are independent of each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from paddlewheel.contracts.reasons import Reason

ALPHA = 0.01
"""Largest chance that a step rolls a canary back that is within its limits, however often it is looked at."""
DOUBT = 0.05
"""Chance of such figures in one look at such a canary, below which the step waits for more requests."""
TESTS = 2
"""Errors and latency: each gets half of the chances above (Bonferroni's correction)."""
TAIL = 0.05
"""What lies beyond the 95th percentile."""
FEWEST = 5
"""Requests below which nothing is concluded: the first ones may share one cause, such as a cold start."""
PRIOR = 0.5
"""Both parameters of the beta distribution that stands for an unknown share (Jeffreys' prior)."""
BLUR = 2
"""How many times slower than allowed a canary is that the histogram has to show."""
QUICK = 0.01
"""Seconds: a faster stable p95 counts as this long; below its first edge no histogram shows anything."""
HALVINGS = 60
"""Steps of a bisection, down to the precision of a float."""
FINER = (
    "set edges from 0.01 s at most to three times the slowest p95, each at most 1.4 times the one before"
    " (Traefik: metrics.prometheus.buckets)"
)
"""The remedy for a histogram that does not tell."""


@dataclass(frozen=True)
class Counts:
    """Requests of one revision in a stretch of time.

    Args:
        errors: answers 5xx.
        buckets: number of requests at most so slow, by the edge in seconds; cumulative, as Prometheus has
            them.
    """

    requests: int = 0
    errors: int = 0
    buckets: Mapping[float, int] = field(default_factory=dict)

    @property
    def error_share(self) -> float:
        """0 to 1."""
        return self.errors / self.requests if self.requests else 0.0

    @property
    def p95(self) -> float:
        """Seconds, interpolated within its bucket; infinite beyond the last edge, 0 without requests."""
        return percentile(self.buckets, 1 - TAIL)

    @property
    def observed(self) -> int:
        """Requests in the histogram."""
        return max(self.buckets.values(), default=0)

    def slower_than(self, seconds: float) -> float:
        """Requests that took longer, as `slower_than` below has them."""
        return slower_than(self.buckets, seconds)


@dataclass(frozen=True)
class Limits:
    """What a canary may do worse.

    Args:
        error_points: percentage points of more errors.
        latency_factor: of the stable p95.
    """

    error_points: float = 1.0
    latency_factor: float = 1.5


class Decision(Enum):
    """What to do about a step."""

    CONTINUE = "continue"
    PROMOTE = "promote"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Verdict:
    """A decision with the figures behind it.

    Args:
        p_value: chance of such figures, or worse ones, from a canary within its limits. Of a roll-back:
            at most, in any of all looks.
        metrics: of the canary, as others have measured them.
    """

    decision: Decision
    stable: Counts
    canary: Counts
    p_value: float = 1.0
    reason: Reason = Reason.STEPPING
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Chance:
    """Of such figures if the share is within its limit.

    Args:
        once: in a single look.
        ever: at most, in any look, however many there are.
    """

    once: float = 1.0
    ever: float = 1.0

    def among(self, tests: int) -> Chance:
        """The same where the worst of several tests is taken (Bonferroni's correction)."""
        return Chance(min(1.0, self.once * tests), min(1.0, self.ever * tests))


@dataclass(frozen=True)
class _Test:
    chance: Chance
    reason: Reason
    message: str


def judge(stable: Counts, canary: Counts, limits: Limits, least: int) -> Verdict:
    """Decide about one step.

    Args:
        least: requests that the canary has to answer before it may go on.
    """
    tests = (_errors(stable, canary, limits), _latency(stable, canary, limits))
    worst = min(tests, key=lambda test: test.chance.ever)
    if worst.chance.ever < ALPHA and canary.requests >= FEWEST:
        return Verdict(Decision.ROLL_BACK, stable, canary, worst.chance.ever, worst.reason, worst.message)
    once = min(test.chance.once for test in tests)
    has_company = stable.requests >= FEWEST
    is_enough = has_company and canary.requests >= least and once >= DOUBT
    return Verdict(Decision.PROMOTE if is_enough else Decision.CONTINUE, stable, canary, once)


def _errors(stable: Counts, canary: Counts, limits: Limits) -> _Test:
    found = chance(canary.errors, canary.requests, stable.errors, stable.requests, limits.error_points / 100)
    message = (
        f"{canary.errors} of {canary.requests} requests failed ({canary.error_share:.1%}),"
        f" of the stable revision {stable.errors} of {stable.requests} ({stable.error_share:.1%})"
    )
    return _Test(found.among(TESTS), Reason.TOO_MANY_ERRORS, message)


def _latency(stable: Counts, canary: Counts, limits: Limits) -> _Test:
    """Both have to speak against the canary: its p95, and the histogram edge by edge. The p95 alone hangs on
    where requests lie within a bucket, and an edge alone may be far from the p95."""
    if min(stable.observed, canary.observed) < FEWEST:
        return _Test(Chance(), Reason.TOO_SLOW, "")
    limit = stable.p95 * limits.latency_factor
    slow = canary.slower_than(limit)
    tail = chance(slow, canary.observed, TAIL * stable.observed, stable.observed)
    edges = _edges(stable, canary, limits.latency_factor)
    both = Chance(max(tail.once, edges.once), max(tail.ever, edges.ever))
    message = (
        f"p95 {_seconds(canary)}, of the stable revision {_seconds(stable)}; {slow:.0f} of {canary.observed}"
        f" requests took more than {limit:.3g} s, {limits.latency_factor:g} times that of the stable revision"
    )
    return _Test(both.among(TESTS), Reason.TOO_SLOW, message)


def _edges(stable: Counts, canary: Counts, factor: float) -> Chance:
    """At each edge: does the canary answer more of its requests later than the stable revision would if it
    were slower by the factor?"""
    pairs = edge_pairs(canary.buckets, factor)
    tries, others = canary.observed, stable.observed
    chances = [
        chance(canary.slower_than(edge), tries, stable.slower_than(lower), others) for edge, lower in pairs
    ]
    return min(chances, key=lambda found: found.ever, default=Chance()).among(len(pairs))


def edge_pairs(buckets: Mapping[float, int], factor: float) -> list[tuple[float, float]]:
    """Edges of the histogram, each with the last edge that is lower by the factor at least."""
    edges = sorted(edge for edge in buckets if math.isfinite(edge))
    pairs = ((edge, [lower for lower in edges if lower * factor <= edge]) for edge in edges)
    return [(edge, lower[-1]) for edge, lower in pairs if lower]


def blind_spot(stable: Counts, canary: Counts, factor: float) -> str:
    """Why the histogram would not show a canary that is much slower than allowed, in words. "" when it would,
    or when there are too few requests to say.

    Args:
        factor: by which the p95 may be higher than the stable one.
    """
    if min(stable.requests, canary.requests) < FEWEST:
        return ""
    if min(stable.observed, canary.observed) < FEWEST:
        return f"the gateway's figures have no histogram of the latency: {FINER}"
    low, high = _bucket_of(stable.buckets, 1 - TAIL)
    least, most = high * factor, BLUR * factor * max(low, QUICK)
    if any(least <= edge <= most for edge in stable.buckets):
        return ""
    return f"the gateway's histogram is too coarse above {low:g} s to judge the latency: {FINER}"


def _seconds(counts: Counts) -> str:
    p95 = counts.p95
    return f"{p95:.3g} s" if math.isfinite(p95) else "beyond the last edge of the histogram"


def percentile(buckets: Mapping[float, int], share: float) -> float:
    """Interpolated within its bucket, as PromQL's histogram_quantile does; infinite beyond the last finite
    edge."""
    total = max(buckets.values(), default=0)
    if not total:
        return 0.0
    low, high = _bucket_of(buckets, share)
    if math.isinf(high):
        return math.inf
    below = buckets.get(low, 0)
    within = buckets[high] - below
    return low + (high - low) * ((share * total - below) / within if within else 1.0)


def _bucket_of(buckets: Mapping[float, int], share: float) -> tuple[float, float]:
    """Edges of the bucket in which this percentile lies."""
    total, low = max(buckets.values(), default=0), 0.0
    for edge, count in sorted(buckets.items()):
        if count >= share * total:
            return low, edge
        low = edge
    return low, math.inf


def slower_than(buckets: Mapping[float, int], seconds: float) -> float:
    """How many took longer: exact at an edge, interpolated within a bucket, 0 beyond the last finite edge."""
    edges = sorted(buckets)
    place = bisect_left(edges, seconds)
    if place == len(edges) or math.isinf(edges[place]):
        return 0.0
    edge = edges[place]
    below_edge, below = (edges[place - 1], buckets[edges[place - 1]]) if place else (0.0, 0)
    part = (seconds - below_edge) / (edge - below_edge)
    return max(buckets.values()) - below - (buckets[edge] - below) * part


def chance(hits: float, tries: int, other_hits: float, other_tries: int, allowed: float = 0.0) -> Chance:
    """Of such counts if this side's true share is at most the other's plus `allowed` (0 to 1). 1 where the
    counts themselves are within that, or a side has none.

    `ever`: the likelihood of the likeliest shares that are within it, over that of unknown shares (mixed by
    the prior). With the true shares the inverse is a martingale, which ever reaches 1 / x with a chance of x
    at most (Ville). `once`: from the ratio of that likelihood and the largest (Wilks), an approximation.
    """
    if not tries or not other_tries or hits / tries <= other_hits / other_tries + allowed:
        return Chance()
    share = _likeliest(hits, tries, other_hits, other_tries, allowed)
    within = _log_likelihood(hits, tries, share + allowed) + _log_likelihood(other_hits, other_tries, share)
    best = _best(hits, tries) + _best(other_hits, other_tries)
    mixed = _log_mixture(hits, tries) + _log_mixture(other_hits, other_tries)
    return Chance(math.erfc(math.sqrt(max(0.0, best - within))) / 2, math.exp(min(0.0, within - mixed)))


def _likeliest(hits: float, tries: int, other_hits: float, other_tries: int, allowed: float) -> float:
    """The other side's share if this side's is larger by just what is allowed: where the likelihood is
    flat. It is concave, so that is one place, between the two observed shares."""
    low, high = other_hits / other_tries, hits / tries - allowed
    for _ in range(HALVINGS):
        share = (low + high) / 2
        slope = _slope(hits, tries, share + allowed) + _slope(other_hits, other_tries, share)
        low, high = (share, high) if slope > 0 else (low, share)
    return (low + high) / 2


def _slope(hits: float, tries: int, share: float) -> float:
    return hits / share - (tries - hits) / (1 - share)


def _log_likelihood(hits: float, tries: int, share: float) -> float:
    hit = hits * math.log(share) if hits else 0.0
    return hit + ((tries - hits) * math.log1p(-share) if hits < tries else 0.0)


def _best(hits: float, tries: int) -> float:
    return _log_likelihood(hits, tries, hits / tries)


def _log_mixture(hits: float, tries: int) -> float:
    return _log_beta(hits + PRIOR, tries - hits + PRIOR) - _log_beta(PRIOR, PRIOR)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
