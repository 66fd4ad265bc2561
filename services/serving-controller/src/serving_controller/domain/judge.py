"""Is a canary worse than the stable revision? Exact tests on counts, so that a few requests prove nothing.

Errors: Fisher's exact test of the two shares of 5xx answers. Latency: an edge of the histogram is chosen
beyond which the stable revision answers at most one request in twenty, scaled by the allowed factor; if the
canary's p95 were within the limit, at most one in twenty of its requests would lie beyond that edge, and a
binomial test says how probable the count found is then. The figures are looked at every few seconds, so a
single look must hardly ever be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from paddlewheel.contracts.reasons import Reason

ALPHA = 1e-4
"""Largest chance of such figures, from a canary that is no worse, at which it is rolled back."""
DOUBT = 0.01
"""Below this chance the step waits for more requests instead of going on."""
TAIL = 0.05
"""What lies beyond the 95th percentile."""
FEWEST = 5
"""Requests below which nothing is concluded."""


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

    def slower_than(self, edge: float) -> int:
        """Requests beyond an edge of the histogram."""
        return self.observed - self.buckets.get(edge, self.observed)


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
    """A decision with the figures behind it. `p_value` is that of the worse of the two tests."""

    decision: Decision
    stable: Counts
    canary: Counts
    p_value: float = 1.0
    reason: Reason = Reason.STEPPING
    message: str = ""


def judge(stable: Counts, canary: Counts, limits: Limits, least: int) -> Verdict:
    """Decide about one step.

    Args:
        least: requests that the canary has to answer before it may go on.
    """
    errors, slow = _errors(stable, canary, limits), _latency(stable, canary, limits)
    worse = min((errors, slow), key=lambda test: test.chance)
    if worse.is_worse and worse.chance < ALPHA and canary.requests >= FEWEST:
        return Verdict(Decision.ROLL_BACK, stable, canary, worse.chance, worse.reason, worse.message)
    is_enough = canary.requests >= least and worse.chance >= DOUBT
    decision = Decision.PROMOTE if is_enough else Decision.CONTINUE
    return Verdict(decision, stable, canary, worse.chance)


@dataclass(frozen=True)
class _Test:
    chance: float
    is_worse: bool
    reason: Reason
    message: str


def _errors(stable: Counts, canary: Counts, limits: Limits) -> _Test:
    chance = fisher(canary.errors, canary.requests, stable.errors, stable.requests)
    allowed = stable.error_share + limits.error_points / 100
    message = (
        f"{canary.errors} of {canary.requests} requests failed ({canary.error_share:.1%}), of the stable"
        f" revision"
        f" {stable.errors} of {stable.requests} ({stable.error_share:.1%})"
    )
    return _Test(chance, canary.error_share > allowed, Reason.TOO_MANY_ERRORS, message)


def _latency(stable: Counts, canary: Counts, limits: Limits) -> _Test:
    edge = latency_edge(stable, limits.latency_factor)
    if edge is None or not canary.observed:
        return _Test(1.0, False, Reason.TOO_SLOW, "")
    slow = canary.slower_than(edge)
    usual = max(TAIL, stable.slower_than(edge) / stable.observed)
    message = (
        f"{slow} of {canary.observed} requests took more than {edge:g} s; of the stable revision, whose p95"
        f" is"
        f" {stable.p95:.3g} s, {stable.slower_than(edge)} of {stable.observed}"
    )
    chance = binomial_tail(slow, canary.observed, usual)
    return _Test(chance, slow / canary.observed > usual, Reason.TOO_SLOW, message)


def latency_edge(stable: Counts, factor: float) -> float | None:
    """The first edge of the histogram at or beyond the slowest p95 allowed; None when there is none, or
    nothing to compare with."""
    if stable.observed < FEWEST:
        return None
    allowed = stable.p95 * factor
    return min((edge for edge in stable.buckets if allowed <= edge < math.inf), default=None)


def percentile(buckets: Mapping[float, int], share: float) -> float:
    """Interpolated within its bucket, as PromQL's histogram_quantile does; infinite beyond the last finite
    edge."""
    total = max(buckets.values(), default=0)
    if not total:
        return 0.0
    below_edge, below = 0.0, 0
    for edge, count in sorted(buckets.items()):
        if count >= share * total:
            within = count - below
            part = (share * total - below) / within if within else 1.0
            return math.inf if math.isinf(edge) else below_edge + (edge - below_edge) * part
        below_edge, below = edge, count
    return math.inf


def fisher(hits: int, tries: int, other_hits: int, other_tries: int) -> float:
    """Chance of at least so many hits on this side if both sides were equal (one-sided exact test)."""
    all_hits, everything = hits + other_hits, tries + other_tries
    most = min(all_hits, tries)
    whole = _log_choose(everything, tries)
    chances = (
        math.exp(_log_choose(all_hits, k) + _log_choose(everything - all_hits, tries - k) - whole)
        for k in range(hits, most + 1)
        if tries - k <= everything - all_hits
    )
    return min(1.0, math.fsum(chances))


def binomial_tail(hits: int, tries: int, share: float) -> float:
    """Chance of at least so many hits where each try hits with this chance."""
    if share >= 1 or hits <= 0:
        return 1.0
    log_hit, log_miss = math.log(share), math.log1p(-share)
    chances = (
        math.exp(_log_choose(tries, k) + k * log_hit + (tries - k) * log_miss) for k in range(hits, tries + 1)
    )
    return min(1.0, math.fsum(chances))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
