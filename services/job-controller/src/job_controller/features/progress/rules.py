"""Whether a running job has stopped to make progress: a program that has reported and does so no more."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.timing import STALL_GRACE_SECONDS
from paddlewheel.contracts.conditions import Condition, find, is_true
from paddlewheel.contracts.crds import JobProgress
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.plan import KubernetesEvent

FACTOR = 5
"""Usual times between two reports that may pass without one."""


def stall_conditions(seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
    """True once too much time has passed without a report; False afterwards. Nothing before the first time.

    Args:
        status: with the new phase, and the conditions of before.
    """
    left = _left(seen, status, now)
    if left is not None and left <= timedelta():
        return [Condition(names.CONDITION_STALLED, "True", Reason.NO_PROGRESS, _message(seen.job, status))]
    if status.condition(names.CONDITION_STALLED) != "True":
        return []
    return [Condition(names.CONDITION_STALLED, "False", Reason.PROGRESSING)]


def seconds_until_stalled(seen: Observed, status: JobStatus, now: datetime) -> float | None:
    """Seconds until the next check, since no change wakes a job that does nothing."""
    left = _left(seen, status, now)
    return left.total_seconds() if left is not None and left > timedelta() else None


def stalled_on(status: JobStatus) -> Reason | None:
    """The cause for the fact JobStuck, once the condition is True."""
    return Reason.NO_PROGRESS if is_true(status.conditions, names.CONDITION_STALLED) else None


def stall_events(job: Job, status: JobStatus) -> tuple[KubernetesEvent, ...]:
    """Once per stall."""
    stalled = find(status.conditions, names.CONDITION_STALLED)
    if stalled is None or stalled.status != "True" or is_true(job.status.conditions, stalled.type):
        return ()
    return (KubernetesEvent("Warning", stalled.reason, stalled.message),)


def _left(seen: Observed, status: JobStatus, now: datetime) -> timedelta | None:
    """The time until the job counts as stalled. None for a job that need not report."""
    if status.phase != names.RUNNING or status.progress is None or not _is_of_now(status):
        return None
    return _quiet_since(seen, status, now) + _patience(seen.job, status.progress) - now


def _is_of_now(status: JobStatus) -> bool:
    """The program has reported since its pods run: after a restart it may load for long before it does."""
    running = find(status.conditions, names.CONDITION_RUNNING)
    since = parse_stamp(running.last_transition_time) if running else None
    reported = parse_stamp(status.progress.updated_at) if status.progress else None
    return since is not None and reported is not None and reported >= since


def _quiet_since(seen: Observed, status: JobStatus, now: datetime) -> datetime:
    """The last report, or when reports were possible again: pods run, and this service listens."""
    running = find(status.conditions, names.CONDITION_RUNNING)
    is_new = running is None or running.status != "True"
    runs_since = now if is_new or running is None else parse_stamp(running.last_transition_time)
    reported = parse_stamp(status.progress.updated_at) if status.progress else None
    return max((t for t in (runs_since, reported, seen.listening_since) if t), default=now)


def _patience(job: Job, progress: JobProgress) -> timedelta:
    policy = job.spec.progress
    if policy is not None and policy.stall_seconds:
        return timedelta(seconds=policy.stall_seconds)
    return max(
        timedelta(seconds=STALL_GRACE_SECONDS), FACTOR * timedelta(seconds=progress.interval_seconds or 0.0)
    )


def _message(job: Job, status: JobStatus) -> str:
    """The message does not change while the job makes no progress."""
    progress = status.progress or JobProgress()
    patience = _patience(job, progress).total_seconds()
    return (
        f"{_where(progress)} was reported at {progress.updated_at}, and nothing within {patience:.0f} s"
        f" since; see what the program does: paddlewheel logs {job.key.name}"
    )


def _where(progress: JobProgress) -> str:
    for name, done, total in (
        ("step", progress.step, progress.total_steps),
        ("epoch", progress.epoch, progress.total_epochs),
    ):
        if done is not None:
            return f"{name} {done}" if total is None else f"{name} {done} of {total}"
    return "the last progress"
