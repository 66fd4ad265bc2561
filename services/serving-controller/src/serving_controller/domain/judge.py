"""Is a canary worse than the stable revision? Exact tests on counts, so that a few requests prove nothing.

Fisher's exact test compares two shares. Errors: the shares of 5xx answers. Latency: at each edge of the
histogram, the share of the canary's requests beyond it, with the stable revision's share beyond the edge that
is lower by the allowed factor; beside that, the canary's p95 has to be above the limit itself. The figures
are looked at every few seconds, so a single look must hardly ever be wrong.
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
_PRECISION = 1e-9
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
    has_company = stable.requests >= FEWEST
    is_enough = has_company and canary.requests >= least and worse.chance >= DOUBT
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
    """At each edge: does the canary answer more of its requests later than the stable revision would if it
    were slower by the factor? The smallest chance counts, times the number of edges that were tried."""
    pairs = edge_pairs(canary.buckets, limits.latency_factor)
    if not pairs or min(stable.observed, canary.observed) < FEWEST:
        return _Test(1.0, False, Reason.TOO_SLOW, "")
    chances = {edge: _chance_of_edge(stable, canary, edge, lower) for edge, lower in pairs}
    edge = min(chances, key=lambda e: chances[e])
    message = (
        f"p95 {_seconds(canary)}, of the stable revision {_seconds(stable)};"
        f" {canary.slower_than(edge)} of {canary.observed} requests took more than {edge:g} s, of the stable"
        f" revision {stable.slower_than(edge)} of {stable.observed}"
    )
    is_worse = canary.p95 > stable.p95 * limits.latency_factor
    return _Test(min(1.0, chances[edge] * len(pairs)), is_worse, Reason.TOO_SLOW, message)


def _chance_of_edge(stable: Counts, canary: Counts, edge: float, lower: float) -> float:
    slow, usual = canary.slower_than(edge), stable.slower_than(lower)
    return fisher(slow, canary.observed, usual, stable.observed)


def edge_pairs(buckets: Mapping[float, int], factor: float) -> list[tuple[float, float]]:
    """Edges of the histogram, each with the last edge that is lower by the factor at least."""
    edges = sorted(edge for edge in buckets if math.isfinite(edge))
    pairs = ((edge, [lower for lower in edges if lower * factor <= edge]) for edge in edges)
    return [(edge, lower[-1]) for edge, lower in pairs if lower]


def _seconds(counts: Counts) -> str:
    p95 = counts.p95
    return f"{p95:.3g} s" if math.isfinite(p95) else "beyond the last edge of the histogram"


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
    """Chance of at least so many hits on this side if both sides were equal (one-sided exact test); 1 where
    there are no more than are to be expected."""
    all_hits, everything = hits + other_hits, tries + other_tries
    if hits * everything <= all_hits * tries:
        return 1.0
    whole = _log_choose(everything, tries)
    chance = 0.0
    for k in range(hits, min(all_hits, tries) + 1):
        part = math.exp(_log_choose(all_hits, k) + _log_choose(everything - all_hits, tries - k) - whole)
        chance += part
        # Beyond what is expected the parts only get smaller: 100,000 requests need some hundred of them.
        if part < chance * _PRECISION:
            break
    return min(1.0, chance)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
