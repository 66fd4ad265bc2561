"""`spec.terminate`: cancel what runs and waits on the set before the job's own run starts, each by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain.actions import CancelRun
from dataset_controller.domain.names import BEGUN, Cond, JobPhase
from dataset_controller.domain.runs import is_ended, unfinished
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob, SampleJob
from dataset_controller.domain.samplejob.policies.dependencies import awaited_by
from paddlewheel.contracts.generated.datasets_v1 import SampleJobFailed
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.stamps import age, seconds_stamp

CANCEL_SECONDS = 60.0
"""Time that cancelled runs get to end; one that no agent works on never reports it."""
LOOK_AGAIN_SECONDS = 1.0
"""While the run of another job was just decided on: the id, by which it is cancelled, is not known yet."""


@dataclass(frozen=True)
class TerminationDecision:
    """Whether the job may start."""

    status: JobStatus
    may_start: bool = True
    actions: tuple[CancelRun, ...] = ()
    wake_after: float | None = None


def decide_termination(seen: ObservedJob, status: JobStatus, now: datetime) -> TerminationDecision:
    """Cancel the set's other unfinished runs once and wait for them, but not forever."""
    if not seen.job.spec.terminate or status.holds(Cond.OTHERS_CANCELLED):
        return TerminationDecision(status)
    others = _others(seen)
    status = replace(status, cancels_since=status.cancels_since or seconds_stamp(now))
    status = status.with_condition(Cond.OTHERS_CANCELLED, False, Reason.CANCELLING_OTHERS, "", now)
    left = CANCEL_SECONDS - age(status.cancels_since, now)
    is_starting = _is_another_starting(seen)
    if not (others or is_starting) or left <= 0:
        return TerminationDecision(
            status.with_condition(Cond.OTHERS_CANCELLED, True, Reason.CANCELLED, "", now)
        )
    set_uid = seen.sample_set.uid if seen.sample_set else ""
    cancels = tuple(CancelRun(RunKey(set_uid, run)) for run in others)
    return TerminationDecision(status, False, cancels, min(left, LOOK_AGAIN_SECONDS) if is_starting else left)


def _is_another_starting(seen: ObservedJob) -> bool:
    others = (seen.others.get(name) for name in seen.starting)
    return any(
        other is not None and other.set_name == seen.job.set_name and other.status.phase is JobPhase.NEW
        for other in others
    )


def _others(seen: ObservedJob) -> list[str]:
    """Ids of other runs that agents work on, or will: one that was requested a moment ago has no state."""
    requested = {
        other.status.run_id
        for other in seen.others.values()
        if other.set_name == seen.job.set_name
        and other.status.phase in BEGUN
        and not is_ended(seen.runs.get(other.status.run_id))
    }
    return sorted(requested.union(unfinished(seen.runs)) - {seen.status.run_id})


def cancelled_by(seen: ObservedJob) -> str | None:
    """Name of a younger job of the set with `spec.terminate` that has begun while this one waited. Those that
    it is to run after do not cancel it."""
    own, awaited = seen.job, awaited_by(seen.job, seen.others)
    for other in seen.others.values():
        is_younger = (other.created_at, other.key.name) > (own.created_at, own.key.name)
        is_rival = other.spec.terminate and other.set_name == own.set_name and other.key.name not in awaited
        if is_rival and is_younger and other.status.cancels_since > _started_again_at(own):
            return other.key.name
    return None


def _started_again_at(job: SampleJob) -> str:
    """When an edit has started a job again that had failed; "" for a new one: it waits since its creation."""
    started = job.status.condition(Cond.STARTED)
    has_failed = job.status.attempt(SampleJobFailed) >= 0
    return started.last_transition_time if has_failed and started is not None else ""
