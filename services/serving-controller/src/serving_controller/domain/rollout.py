"""How a change reaches the users: a state machine over what is recorded in the status.

Without rules a change of `default` gets all requests as soon as it is ready, and a canary the percent that is
asked for. With rules it goes through steps, each of which is judged. A revision gets requests only while it
is ready, and what was rolled back is not tried again until the spec asks for something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from paddlewheel.contracts.crds.paddleservice import (
    PaddleServiceStatus,
    RolloutSpec,
    RolloutStatus,
    RolloutStep,
    SideStatus,
    VerdictStatus,
)
from paddlewheel.contracts.reasons import Reason
from serving_controller.domain.judge import Counts, Decision, Limits, Verdict, blind_spot, judge
from serving_controller.domain.measured import Finding, Measured, compare
from serving_controller.timing import POD_MOVE_GRACE_SECONDS

WAITING, STEPPING, SERVING = "Waiting", "Stepping", "Serving"
ROLLING_BACK, ROLLED_BACK = "RollingBack", "RolledBack"
"""The first is recorded before the requests move, so that a crash in between cannot bring a bad one back."""
OPEN = (WAITING, STEPPING, ROLLING_BACK)
"""Phases of a rollout by rules that goes on."""
STARTED, STEPPED, PROMOTED, WITHDRAWN = "CanaryStarted", "CanaryStepped", "CanaryPromoted", "CanaryRolledBack"
"""Names of the facts."""
RESUMES = 3
"""How often a step begins anew because nobody looked: one that is never looked at has to end as well."""


@dataclass(frozen=True)
class Happening:
    """Something that a fact tells."""

    fact: str
    revision: str
    percent: int = 0
    step: int = 0
    reason: str = ""
    message: str = ""
    verdict: VerdictStatus | None = None


@dataclass(frozen=True)
class Situation:
    """What the decision is made from.

    Args:
        default, canary: revisions that the spec asks for; "" = none.
        percent: of the canary, as the spec has it.
        rules: None = by hand.
        stable: recorded; "" before the first.
        complete: revisions whose pods are all ready; `serving`: those that answer.
        troubles: by revision, why it is not complete.
        routed: percent by revision, as the gateway knows it.
        can_split: requests can be spread; `cannot` says why not.
        figures: requests by revision since the step began; None when there are none.
        measured: by revision, what others have measured; None while that is not all read.
        looks_since: when this process looked first at the step.
        silent_since: when the last ready pod of the stable revision went; None while it answers.
        candidate_silent_since: the same of the candidate.
    """

    default: str
    now: datetime
    canary: str = ""
    percent: int = 0
    rules: RolloutSpec | None = None
    stable: str = ""
    complete: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset()
    troubles: Mapping[str, str] | None = None
    routed: Mapping[str, int] | None = None
    can_split: bool = True
    cannot: str = ""
    figures: Mapping[str, Counts] | None = None
    figures_trouble: str = ""
    measured: Mapping[str, Measured] | None = None
    looks_since: datetime | None = None
    rollout: RolloutStatus | None = None
    promote: str = ""
    abort: str = ""
    silent_since: datetime | None = None
    candidate_silent_since: datetime | None = None

    @property
    def target(self) -> str:
        """The revision that should become stable in the end, under rules."""
        return self.canary or self.default

    @property
    def recorded(self) -> RolloutStatus:
        return self.rollout or RolloutStatus()


@dataclass(frozen=True)
class Outcome:
    """What is wanted now.

    Args:
        candidate: the revision on trial, "" when there is none.
        percent: that the candidate gets.
        successor: becomes stable as soon as it is ready; it gets nothing before.
        reason, message: what is being waited for.
        recheck: seconds until something may be due without a change.
    """

    stable: str
    candidate: str = ""
    percent: int = 0
    successor: str = ""
    rollout: RolloutStatus | None = None
    happenings: tuple[Happening, ...] = ()
    reason: Reason | None = None
    message: str = ""
    recheck: float | None = None

    @property
    def traffic(self) -> dict[str, int]:
        """Percent by revision."""
        if not self.percent:
            return {self.stable: 100}
        return {self.stable: 100 - self.percent, self.candidate: self.percent}

    @property
    def newest(self) -> tuple[str, ...]:
        """Revisions that are being tried, or will follow the stable one."""
        return tuple(name for name in (self.candidate, self.successor) if name)


def is_open(status: PaddleServiceStatus) -> bool:
    """A rollout by rules goes on."""
    return status.rollout is not None and status.rollout.phase in OPEN


def advance(at: Situation) -> Outcome:
    """The next state. Pure: the same situation gives the same outcome."""
    if at.rules is not None and at.rules.is_automatic:
        return _by_rules(at, at.rules)
    return _by_hand(at)


# By hand


def _by_hand(at: Situation) -> Outcome:
    is_due = not at.stable or (at.default != at.stable and at.default in at.complete)
    stable = at.default if is_due else at.stable
    successor = "" if stable == at.default else at.default
    candidate = at.canary if at.canary != stable else ""
    made = Outcome(stable, candidate, successor=successor)
    if at.stable and stable != at.stable:
        promoted = Happening(PROMOTED, stable, reason=Reason.PROMOTED)
        made = replace(made, happenings=(promoted,))
    return _canary_by_hand(at, made)


def _canary_by_hand(at: Situation, made: Outcome) -> Outcome:
    before = at.recorded
    if not made.candidate:
        gone = _ended(before, made.stable)
        waits = _waits(at, made.successor) if made.successor else (None, "")
        return replace(
            made, happenings=(*gone, *made.happenings), rollout=None, reason=waits[0], message=waits[1]
        )
    if before.candidate != made.candidate or before.phase in (ROLLING_BACK, ROLLED_BACK):
        gone = _ended(before, made.stable)
        before = RolloutStatus(candidate=made.candidate, phase=WAITING, started_at=at.now, since=at.now)
        made = replace(made, happenings=(*gone, *made.happenings))
    percent = at.percent if at.can_split and made.candidate in at.serving else 0
    if percent and before.phase == WAITING and made.candidate not in at.complete:
        percent = 0
    return _with_percent(at, made, before, percent)


def _with_percent(at: Situation, made: Outcome, before: RolloutStatus, percent: int) -> Outcome:
    after = before
    news: tuple[Happening, ...] = ()
    if percent != before.percent:
        phase, told = SERVING if percent else WAITING, before.told or percent > 0
        after = before.model_copy(update={"percent": percent, "since": at.now, "phase": phase, "told": told})
        fact = STEPPED if before.told else STARTED
        news = (Happening(fact, made.candidate, percent),) if percent else ()
    reason, message = (None, "") if percent or not at.percent else _waits(at, made.candidate)
    return replace(
        made,
        percent=percent,
        rollout=after,
        happenings=(*made.happenings, *news),
        reason=reason,
        message=message,
    )


def _ended(before: RolloutStatus, stable: str) -> tuple[Happening, ...]:
    """The end of a canary whose start was told, other than by becoming stable, or whose end was decided."""
    if before.candidate == stable:
        return ()
    if before.phase == ROLLING_BACK:
        return (_withdrawn(before),)
    if not before.told:
        return ()
    return (
        Happening(WITHDRAWN, before.candidate, reason=Reason.SUPERSEDED, message="the spec asks for another"),
    )


def _waits(at: Situation, revision: str) -> tuple[Reason, str]:
    if revision in at.complete and not at.can_split:
        return Reason.CANNOT_SPLIT, at.cannot
    trouble = (at.troubles or {}).get(revision, "")
    return Reason.REVISION_STARTING, f"{revision} is not ready{': ' if trouble else ''}{trouble}"


# By rules


def _by_rules(at: Situation, rules: RolloutSpec) -> Outcome:
    if not at.stable:
        return Outcome(at.default)
    if at.target == at.stable:
        return Outcome(at.stable, happenings=_ended(at.recorded, at.stable))
    state, gone = _begun(at)
    if state.phase == ROLLED_BACK:
        return Outcome(at.stable, rollout=state, happenings=gone)
    made = _next(at, rules, state)
    return replace(made, percent=_share(at, made), happenings=(*gone, *made.happenings))


def _share(at: Situation, made: Outcome) -> int:
    """None while no pod of the candidate answers; then none before the gateway knows them all again."""
    is_known = made.candidate in at.serving and bool((at.routed or {}).get(made.candidate))
    return made.percent if is_known or made.candidate in at.complete else 0


def _begun(at: Situation) -> tuple[RolloutStatus, tuple[Happening, ...]]:
    """The state of this target's rollout, and the end of another one's."""
    before = at.recorded
    if before.candidate == at.target:
        return before, ()
    fresh = RolloutStatus(candidate=at.target, phase=WAITING, started_at=at.now, since=at.now)
    return fresh, _ended(before, at.stable)


def _next(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Outcome:
    if state.phase == ROLLING_BACK:
        return _rolled_back(at, state)
    state = _resumed(at, rules, state)
    if at.abort == state.candidate:
        return _roll_back(at, state, Reason.ROLLED_BACK_BY_HAND, "asked for by annotation")
    if state.candidate in at.complete and at.promote == state.candidate:
        return _promote(at, state, Reason.PROMOTED_BY_HAND)
    if (found := _compared(at, rules, state)).outside:
        return _roll_back(
            at, state, Reason.METRIC_OUT_OF_LIMITS, found.outside, _as_measured(at, state, found)
        )
    if state.percent and state.candidate not in at.serving:
        return _without_candidate(at, rules, state)
    if at.stable not in at.serving:
        return _without_stable(at, rules, state)
    if state.phase == WAITING or not rules.wanted_steps:
        return _wait_for_start(at, rules, state)
    if state.phase == SERVING:
        return _step(at, rules, state, _step_of(rules, state.percent))
    return _judged(at, rules, state)


def _resumed(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> RolloutStatus:
    """A process that has missed half of the step's time has just begun to count: so does the step."""
    if at.looks_since is None or state.since is None or state.resumed >= RESUMES:
        return state
    if (at.looks_since - state.since).total_seconds() < rules.deadline_seconds / 2:
        return state
    return state.model_copy(update={"since": at.looks_since, "resumed": state.resumed + 1})


def _compared(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Finding:
    """Of the candidate. What decided about its last step holds although the stream may have dropped it."""
    if at.measured is None:
        return compare(rules.limits.metrics, None)
    decided = state.verdict.candidate.metrics if state.verdict else {}
    return compare(rules.limits.metrics, {**decided, **at.measured.get(state.candidate, {})})


def _as_measured(at: Situation, state: RolloutStatus, found: Finding) -> Verdict:
    """A metric decides alone, with the requests that were counted until then, if any."""
    stable, canary = _counted(at, state)
    return Verdict(Decision.ROLL_BACK, stable, canary, metrics=found.values)


def _counted(at: Situation, state: RolloutStatus) -> tuple[Counts, Counts]:
    """Of the stable revision and of the candidate."""
    figures, nothing = at.figures or {}, Counts()
    return figures.get(at.stable, nothing), figures.get(state.candidate, nothing)


def _without_candidate(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Outcome:
    """Its requests go to the stable revision meanwhile."""
    if (left := _patience(at, at.candidate_silent_since)) <= 0:
        trouble = (at.troubles or {}).get(state.candidate, "")
        return _roll_back(
            at, state, Reason.REVISION_FAILED, f"no pod of it answers any more: {trouble}".rstrip(": ")
        )
    return _until(left, _hold(at, rules, state, *_waits(at, state.candidate)))


def _without_stable(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Outcome:
    """Nothing can be compared."""
    left = _patience(at, at.silent_since)
    if state.candidate in at.complete and left <= 0:
        return _promote(at, state, Reason.NOTHING_TO_COMPARE)
    words = f"{at.stable} is not ready, so nothing is compared"
    return _until(left, _hold(at, rules, state, Reason.STEPPING, words))


def _patience(at: Situation, silent_since: datetime | None) -> float:
    """Seconds for which the silence of a revision is waited out yet."""
    return (
        POD_MOVE_GRACE_SECONDS - (at.now - silent_since).total_seconds()
        if silent_since
        else POD_MOVE_GRACE_SECONDS
    )


def _until(left: float, held: Outcome) -> Outcome:
    """Look again when so many seconds are over, if not before."""
    before = POD_MOVE_GRACE_SECONDS if held.recheck is None else held.recheck
    return replace(held, recheck=min(before, math.ceil(max(left, 1.0))))


def _step_of(rules: RolloutSpec, percent: int) -> int:
    """Index of the step that a canary by hand has reached."""
    steps = rules.wanted_steps
    return next((i for i, step in enumerate(steps) if step.percent >= percent), len(steps) - 1)


def _wait_for_start(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Outcome:
    if state.candidate not in at.complete or not at.can_split:
        return _hold(at, rules, state, *_waits(at, state.candidate))
    return _step(at, rules, state, 0)


def _judged(at: Situation, rules: RolloutSpec, state: RolloutStatus) -> Outcome:
    if (at.routed or {}).get(state.candidate, 0) != state.percent:
        return _hold(at, rules, state, Reason.ROUTE_PENDING, "the gateway has not taken the new shares yet")
    if at.figures is None:
        return _hold(at, rules, state, Reason.NO_FIGURES, at.figures_trouble)
    step, found = _rules_of(rules, state), _compared(at, rules, state)
    limits, sides = Limits(rules.limits.error_rate, rules.limits.latency), _counted(at, state)
    verdict = replace(judge(*sides, limits, step.min_requests), metrics=found.values)
    if verdict.decision is Decision.ROLL_BACK:
        return _roll_back(at, state, verdict.reason, verdict.message, verdict)
    if blind := blind_spot(*sides, limits.latency_factor):
        return _hold(at, rules, state, Reason.NO_FIGURES, blind)
    if found.waits:
        return _hold(at, rules, state, Reason.METRIC_MISSING, found.waits)
    is_over = _seconds_since(state, at.now) >= step.min_seconds
    if verdict.decision is Decision.PROMOTE and is_over:
        return _step(at, rules, state, state.step, verdict)
    return _hold(at, rules, state, Reason.STEPPING, _watched(state))


def _rules_of(rules: RolloutSpec, state: RolloutStatus) -> RolloutStep:
    """Of the step under way; those of the last one when the spec was left with fewer steps, or with none."""
    steps = rules.wanted_steps or rules.steps
    return steps[min(state.step, len(steps)) - 1]


def _step(
    at: Situation, rules: RolloutSpec, state: RolloutStatus, index: int, verdict: Verdict | None = None
) -> Outcome:
    """Begin the step of this index, or end the rollout after the last."""
    steps = rules.wanted_steps
    if index >= len(steps):
        return _promote(at, state, Reason.PROMOTED, verdict)
    percent, figures = steps[index].percent, _figures(verdict)
    after = state.model_copy(
        update={
            "phase": STEPPING,
            "step": index + 1,
            "percent": percent,
            "since": at.now,
            "resumed": 0,
            "told": True,
            "verdict": figures,
        }
    )
    fact = STEPPED if state.told else STARTED
    news = Happening(fact, state.candidate, percent, index + 1, verdict=figures)
    return Outcome(
        at.stable, state.candidate, percent, "", after, (news,), Reason.STEPPING, _watched(after), recheck=0.0
    )


def _watched(state: RolloutStatus) -> str:
    return f"{state.candidate} gets {state.percent} % and is watched"


def _hold(at: Situation, rules: RolloutSpec, state: RolloutStatus, reason: Reason, message: str) -> Outcome:
    """Stay, but not beyond the deadline, which begins once the step has lasted as long as it must."""
    limit = rules.deadline_seconds + (_rules_of(rules, state).min_seconds if state.phase == STEPPING else 0)
    left = limit - _seconds_since(state, at.now)
    if left <= 0:
        words = f"no progress within {limit} s: {message}"
        return _roll_back(at, state, Reason.DEADLINE_EXCEEDED, words)
    return Outcome(
        at.stable, state.candidate, state.percent, "", state, (), reason, message, recheck=math.ceil(left)
    )


def _promote(at: Situation, state: RolloutStatus, reason: Reason, verdict: Verdict | None = None) -> Outcome:
    news = Happening(PROMOTED, state.candidate, 100, reason=reason, verdict=_figures(verdict))
    return Outcome(state.candidate, happenings=(news,))


def _roll_back(
    at: Situation, state: RolloutStatus, reason: Reason, message: str, verdict: Verdict | None = None
) -> Outcome:
    """Record the decision; the requests move in the next pass, which follows at once."""
    update = {"phase": ROLLING_BACK, "reason": str(reason), "message": message}
    after = state.model_copy(update=update | {"verdict": _figures(verdict) or state.verdict})
    made = Outcome(at.stable, state.candidate, state.percent, rollout=after, recheck=0.0)
    return replace(made, reason=Reason.STEPPING, message=f"{state.candidate} is rolled back: {message}")


def _rolled_back(at: Situation, state: RolloutStatus) -> Outcome:
    """All requests go to the stable revision."""
    after = rejected(state).model_copy(update={"since": at.now})
    return Outcome(at.stable, rollout=after, happenings=(_withdrawn(state),))


def rejected(state: RolloutStatus) -> RolloutStatus:
    """Without any requests, and not to be tried again."""
    return state.model_copy(update={"phase": ROLLED_BACK, "percent": 0, "told": False})


def _withdrawn(state: RolloutStatus) -> Happening:
    """What was decided, and why."""
    return Happening(WITHDRAWN, state.candidate, 0, state.step, state.reason, state.message, state.verdict)


def _seconds_since(state: RolloutStatus, now: datetime) -> float:
    return (now - state.since).total_seconds() if state.since else 0.0


def _figures(verdict: Verdict | None) -> VerdictStatus | None:
    if verdict is None:
        return None
    candidate = _side(verdict.canary).model_copy(update={"metrics": dict(verdict.metrics)})
    return VerdictStatus(stable=_side(verdict.stable), candidate=candidate, p_value=verdict.p_value)


def _side(counts: Counts) -> SideStatus:
    p95 = counts.p95
    last_edge = max((edge for edge in counts.buckets if math.isfinite(edge)), default=0.0)
    return SideStatus(
        requests=counts.requests, errors=counts.errors, p95=round(p95 if math.isfinite(p95) else last_edge, 6)
    )
