"""Whether a job goes on, is restarted or has failed: the rules of `failurePolicy`, limits and deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.changes import find_change
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.losses import Loss, find_losses, in_place_message, is_beyond_in_place_limit
from job_controller.core.model import Observed
from job_controller.core.phase import missing_pods
from job_controller.core.pods import PodId
from job_controller.timing import (
    LONGEST_RESTART_INTERVAL_SECONDS,
    RESTART_INTERVAL_SECONDS,
    RESTART_RESET_GRACE_SECONDS,
)
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.paddlejob import (
    DISRUPTIONS,
    FAILURE_CAUSES,
    FailureAction,
    FailureRule,
    LastRestart,
    RestartScope,
    World,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp

DISRUPTIONS_BUDGET, DISRUPTION_LIMIT = "disruptions", 10
"""Restarts after disruptions in a row, unless a rule of the job has another limit. A long run begins a new
row: a job may train for weeks on nodes that are taken away every day."""
IGNORED = "Ignored"
"""Counts restarts after failures that a rule ignores."""


@dataclass(frozen=True)
class GoOn:
    """Nothing has broken the job."""


@dataclass(frozen=True)
class Restart:
    """Pods are replaced.

    Args:
        cause: counted in `status.restarts`.
        budget: name of the limit that this counts against, "" for none.
        only: uids of the pods that are replaced, none for all pods as a new epoch.
        world: how many workers train from now on, None for as many as before.
        is_failure: it is no change that the user has made.
    """

    cause: str
    message: str
    only: tuple[str, ...] = ()
    budget: str = ""
    world: World | None = None
    is_failure: bool = True


@dataclass(frozen=True)
class End:
    """The job has failed."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Hold:
    """A node may have been lost; nothing is done until that is known.

    Args:
        nodes: nodes that may have been lost.
        message: the failure that is not judged yet.
    """

    nodes: frozenset[str]
    message: str


Verdict = GoOn | Restart | End | Hold


def decide_verdict(seen: Observed, now: datetime) -> Verdict:
    """About a job that has not succeeded. While its spec is wrong, its deadline, limits and failure rules
    hold, and Kueue's eviction. Other changes have to wait, for no pods can be made of such a spec."""
    job = seen.job
    if end := _overdue(job, now) or _beyond_in_place(seen):
        return end
    change = _find_change(seen)
    if losses := find_losses(seen):
        return _judge_in_time(seen, losses, change, now)
    if not job.problems and (stranded := _find_stranded(seen, now)):
        return judge_all(job, stranded, now)
    resize = None if change or job.problems else _find_resize(seen, now)
    return change or resize or GoOn()


def _find_stranded(seen: Observed, now: datetime) -> tuple[Loss, ...]:
    return tuple(loss for feature in seen.features for loss in feature.losses(seen, now))


def _overdue(job: Job, now: datetime) -> End | None:
    if not is_overdue(job, now):
        return None
    seconds = job.spec.active_deadline_seconds
    return End(Reason.DEADLINE_EXCEEDED, f"the job took longer than its deadline of {seconds} s")


def _beyond_in_place(seen: Observed) -> End | None:
    if not is_beyond_in_place_limit(seen):
        return None
    message = f"{in_place_message(seen)}; spec.backoffLimit is {seen.job.spec.backoff_limit}"
    return End(Reason.BACKOFF_LIMIT_EXCEEDED, message)


def _find_change(seen: Observed) -> Restart | None:
    """A change by the user or a queue."""
    evictions = (feature.eviction(seen) for feature in seen.features if seen.pods)
    change = next(filter(None, evictions), None) if seen.job.problems else find_change(seen)
    return Restart(change.cause, change.message, is_failure=False) if change else None


def _find_resize(seen: Observed, now: datetime) -> Restart | None:
    return next(filter(None, (feature.resize(seen, now) for feature in seen.features)), None)


def _judge_in_time(seen: Observed, losses: Sequence[Loss], change: Restart | None, now: datetime) -> Verdict:
    """The failures of ranks whose peers were lost with their node are not judged by themselves. A change that
    ends all pods does not wait for that."""
    doubts = (feature.doubt(seen, losses) for feature in seen.features)
    doubt = next(filter(None, doubts), None)
    if doubt is None:
        return judge_all(seen.job, losses, now)
    if doubt.losses:
        return judge_all(seen.job, doubt.losses, now)
    return change or Hold(doubt.nodes, losses[0].message)


def judge_all(job: Job, losses: Sequence[Loss], now: datetime) -> Verdict:
    """About pods that were lost at the same time: the most severe rule decides, whatever the pods are called.
    Where rules are equal, a disruption is taken for the cause of the other losses."""
    judged = [(judge(job, loss, now), loss) for loss in losses]
    verdict, decisive = min(judged, key=lambda each: _leniency(job, *each))
    if not isinstance(verdict, Restart) or not verdict.only or decisive.cause not in DISRUPTIONS:
        return verdict
    # One disruption, such as the drain of a node, takes several pods.
    alike = (
        v
        for v, _ in judged
        if isinstance(v, Restart) and (v.cause, v.budget) == (verdict.cause, verdict.budget)
    )
    return _together(verdict, tuple(uid for each in alike for uid in each.only))


def _together(first: Restart, uids: tuple[str, ...]) -> Restart:
    more = len(uids) - 1
    if more < 1:
        return first
    message = f"{first.message}, and {more} more pod{'s' if more > 1 else ''}"
    return replace(first, only=uids, message=message)


_BY_SEVERITY = (FailureAction.FAIL, FailureAction.RESTART, FailureAction.IGNORE)


def _leniency(job: Job, verdict: Verdict, loss: Loss) -> tuple[int, bool, bool]:
    severity = _BY_SEVERITY.index(_action(_matching_rule(job, loss)))
    return severity, loss.cause not in DISRUPTIONS, not isinstance(verdict, End)


def _action(rule: tuple[int, FailureRule] | None) -> FailureAction:
    """Restart, unless a rule has another action that is known."""
    word = rule[1].action if rule else ""
    return next((action for action in FailureAction if action == word), FailureAction.RESTART)


def judge(job: Job, loss: Loss, now: datetime) -> Verdict:
    """Apply the job's rules to one pod that was lost."""
    rule = _matching_rule(job, loss)
    action = _action(rule)
    only = (loss.uid,) if job.scope is RestartScope.POD or loss.is_alone else ()
    if action == FailureAction.FAIL:
        return End(Reason.FAILURE_RULE, f"{loss.message}; a rule of spec.failurePolicy ends the job")
    if action == FailureAction.IGNORE:
        return Restart(IGNORED, loss.message, only)
    limit = _limit(job, loss, rule)
    if limit is None:
        return Restart(loss.cause, loss.message, only)
    used = present_budgets(job.status, now).get(limit.name, 0)
    return _beyond(loss, limit, used) or Restart(loss.cause, loss.message, only, budget=limit.name)


@dataclass(frozen=True)
class _Limit:
    """How many restarts are allowed. `name` is that of its count; `field` is where the user can change it."""

    restarts: int
    name: str
    field: str


def _limit(job: Job, loss: Loss, rule: tuple[int, FailureRule] | None) -> _Limit | None:
    """None where there is none: each pod of its own that a drain takes would count, and no other pod loses
    anything by a pod that has not begun."""
    if rule is not None and rule[1].limit is not None:
        return _Limit(rule[1].limit, f"rule-{rule[0]}", "limit of its rule in spec.failurePolicy")
    if loss.cause in DISRUPTIONS and (job.scope is RestartScope.POD or loss.is_alone):
        return None
    if loss.cause in DISRUPTIONS:
        field = "limit of disruptions without a rule in spec.failurePolicy"
        return _Limit(DISRUPTION_LIMIT, DISRUPTIONS_BUDGET, field)
    return _Limit(job.spec.backoff_limit or 0, "backoffLimit", "spec.backoffLimit")


def present_budgets(status: JobStatus, now: datetime) -> Mapping[str, int]:
    """The counts, without that of disruptions after a long run."""
    last = with_delays_reset(status, now)
    if last is not None and last.failures:
        return status.budgets
    return {name: count for name, count in status.budgets.items() if name != DISRUPTIONS_BUDGET}


def _beyond(loss: Loss, limit: _Limit, used: int) -> End | None:
    """None while one more restart is allowed."""
    if used < limit.restarts:
        return None
    if limit.restarts <= 0:
        return End(loss.cause, loss.message)
    often = "once" if used == 1 else f"{used} times"
    message = f"{loss.message}; restarted {often}, and the {limit.field} is {limit.restarts}"
    return End(Reason.BACKOFF_LIMIT_EXCEEDED, message)


def _matching_rule(job: Job, loss: Loss) -> tuple[int, FailureRule] | None:
    """The first one, with its number from 1 on."""
    rules = job.spec.failure_policy.rules if job.spec.failure_policy else ()
    return next((found for found in enumerate(rules, start=1) if _matches(found[1], loss)), None)


def _matches(rule: FailureRule, loss: Loss) -> bool:
    return (
        (not rule.exit_codes or loss.exit_code in rule.exit_codes)
        and (not rule.reasons or loss.cause in rule.reasons)
        and (not rule.roles or loss.role in rule.roles)
    )


def ends_at(job: Job) -> datetime | None:
    """When the deadline of an admitted job is over, None without one that makes sense."""
    admitted = find(job.status.conditions, names.CONDITION_ADMITTED)
    seconds = job.spec.active_deadline_seconds or 0
    if seconds < 1 or admitted is None or admitted.status != "True":
        return None
    began = parse_stamp(admitted.last_transition_time)
    return began + timedelta(seconds=seconds) if began else None


def is_overdue(job: Job, now: datetime) -> bool:
    """The job may not go on."""
    end = ends_at(job)
    return end is not None and now >= end


def restart_delay(failures: int) -> timedelta:
    """The second and each further failure in a row waits 10 s, 20 s and so on, at most 300 s."""
    if failures < _SECOND:
        return timedelta()
    doublings = min(failures - _SECOND, _DOUBLINGS)
    seconds = RESTART_INTERVAL_SECONDS * (1 << doublings)
    return timedelta(seconds=min(seconds, LONGEST_RESTART_INTERVAL_SECONDS))


def start_times(seen: Observed, now: datetime) -> Mapping[PodId, datetime]:
    """When each missing pod may be made that has to wait."""
    own = {place: delay.until for place, delay in seen.delays.items()}
    epoch = _epoch_starts_at(seen, now)
    if epoch is None:
        missing = [place for place in own if place not in seen.by_id and place not in seen.succeeded]
    else:
        missing = list(missing_pods(seen))
    times = {place: max(at for at in (own.get(place), epoch) if at) for place in missing}
    return {place: at for place, at in times.items() if at > now and place in seen.job.wanted}


def next_start(seen: Observed, now: datetime) -> datetime | None:
    """When the next of the missing pods may be made, None where none has to wait."""
    return min(start_times(seen, now).values(), default=None)


def _epoch_starts_at(seen: Observed, now: datetime) -> datetime | None:
    """When the first pods of an epoch may be made. Later, pods wait each by itself."""
    last = seen.status.last_restart
    since = parse_stamp(last.time) if last else None
    if last is None or since is None or last.reason not in _FAILURES or seen.pods:
        return None
    if seen.job.scope is RestartScope.POD or seen.was_changed_since_restart:
        return None
    delay = restart_delay(last.failures)
    # A time that is further ahead was written by a clock that was wrong: no job waits until it comes.
    return since + delay if since <= now + delay else None


_FAILURES = frozenset({*FAILURE_CAUSES, IGNORED})
_SECOND = 2
_DOUBLINGS = 5


def with_delays_reset(status: JobStatus, now: datetime) -> LastRestart | None:
    """The last restart of a job that stops running now: failures before a long run count no more. A job whose
    verdict waits stopped running when the wait began."""
    running, last = find(status.conditions, names.CONDITION_RUNNING), status.last_restart
    if last is None or running is None or running.status != "True" or is_held(status):
        return last
    times = (parse_stamp(running.last_transition_time), parse_stamp(last.time))
    since = max((time for time in times if time), default=now)
    has_run_well = now - since >= timedelta(seconds=RESTART_RESET_GRACE_SECONDS)
    return last.model_copy(update={"failures": 0}) if has_run_well else last


def is_held(status: JobStatus) -> bool:
    """Whether the verdict waits for a node, by the recorded status."""
    running = find(status.conditions, names.CONDITION_RUNNING)
    return running is not None and running.reason == Reason.WAITING_FOR_NODE
