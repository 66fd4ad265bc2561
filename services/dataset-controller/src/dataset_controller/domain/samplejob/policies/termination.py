"""`spec.terminate`: cancel what runs and waits on the set before the job's own run starts, each by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain.actions import CancelRun
from dataset_controller.domain.names import BEGUN, Cond, JobPhase
from dataset_controller.domain.runs import is_ended, unfinished
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob, SampleJob
from dataset_controller.domain.samplejob.policies.dependencies import awaited_by
from dataset_controller.domain.sampleset.policies.ahead import requested_runs
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
            status.with_condition(Cond.OTHERS_CANCELLED, True, Reason.CANCELLED, _unended(others), now)
        )
    cancels = _cancels(seen, others)
    return TerminationDecision(status, False, cancels, min(left, LOOK_AGAIN_SECONDS) if is_starting else left)


def _is_another_starting(seen: ObservedJob) -> bool:
    others = (seen.others.get(name) for name in seen.starting)
    return any(
        other is not None and other.set_name == seen.job.set_name and other.status.phase is JobPhase.NEW
        for other in others
    )


def _others(seen: ObservedJob) -> dict[str, str]:
    """Other runs that agents work on, or will, by id, and whose they are. One that was requested a moment ago
    has no state."""
    found = {run: f"run {run}" for run in unfinished(seen.runs)}
    own = requested_runs(seen.sample_set, seen.runs) if seen.sample_set else {}
    found |= {run: f"the set's own {name}" for run, name in own.items()}
    found |= {
        other.status.run_id: f"SampleJob {other.key.name}"
        for other in seen.others.values()
        if _is_under_way(seen, other)
    }
    found.pop(seen.status.run_id, None)
    return found


def _is_under_way(seen: ObservedJob, other: SampleJob) -> bool:
    """The other job has a run on the same set, whose end the bus has not told."""
    is_begun = other.set_name == seen.job.set_name and other.status.phase in BEGUN
    return is_begun and not is_ended(seen.runs.get(other.status.run_id))


def _cancels(seen: ObservedJob, runs: Iterable[str]) -> tuple[CancelRun, ...]:
    set_uid = seen.sample_set.uid if seen.sample_set else ""
    return tuple(CancelRun(RunKey(set_uid, run)) for run in sorted(runs))


def _unended(others: Mapping[str, str]) -> str:
    """Who goes on for now: the bus, or every agent, may be away."""
    names = ", ".join(others[run] for run in sorted(others))
    return f"cancelled, but not ended {CANCEL_SECONDS:.0f} s later: {names}" if names else ""


def cancels_left(seen: ObservedJob) -> tuple[CancelRun, ...]:
    """Of a job that has begun: runs that it has cancelled, and that have not ended. While the bus was away it
    took no cancel; it takes them before the job's own run."""
    others = (other for other in seen.others.values() if _is_under_way(seen, other))
    return _cancels(seen, [other.status.run_id for other in others if _ends_run(seen.job, other)])


def cancelled_by(seen: ObservedJob) -> str | None:
    """Name of a job of the set with `spec.terminate` that ends this one, which waits or has a run. Asked as
    long as it has one: the bus may have taken no cancel, or have lost it. One that waits is not ended by
    those that it is to run after."""
    own, others = seen.job, seen.others.values()
    if own.status.phase in BEGUN:
        return next((other.key.name for other in others if _ends_run(other, own)), None)
    awaited = awaited_by(own, seen.others)
    rivals = (other for other in others if other.key.name not in awaited)
    return next((other.key.name for other in rivals if _ends_waiting(other, own)), None)


def _ends_run(job: SampleJob, other: SampleJob) -> bool:
    """It began to cancel others when the run of `other` was requested already. Of one of the same second,
    or whose time is not known, nobody can say: only its cancel on the bus ends it."""
    return _is_rival(job, other) and "" < other.status.requested < job.status.cancels_since


def _ends_waiting(job: SampleJob, other: SampleJob) -> bool:
    """It is younger, and began while `other` waited."""
    is_younger = (job.created_at, job.key.name) > (other.created_at, other.key.name)
    return _is_rival(job, other) and is_younger and job.status.cancels_since > _started_again_at(other)


def _is_rival(job: SampleJob, other: SampleJob) -> bool:
    return job.spec.terminate and job.set_name == other.set_name


def _started_again_at(job: SampleJob) -> str:
    """When an edit has started a job again that had failed; "" for a new one: it waits since its creation."""
    started = job.status.condition(Cond.STARTED)
    has_failed = job.status.attempt(SampleJobFailed) >= 0
    return started.last_transition_time if has_failed and started is not None else ""
