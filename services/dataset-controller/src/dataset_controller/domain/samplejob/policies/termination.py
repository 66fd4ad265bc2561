"""`spec.terminate`: cancel what runs and waits on the set before the job's own run starts, each by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain.actions import CancelRun
from dataset_controller.domain.names import BEGUN, ENDED, Cond, JobPhase
from dataset_controller.domain.runs import is_ended, unfinished
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob, SampleJob
from dataset_controller.domain.samplejob.policies.dependencies import awaited_by
from dataset_controller.domain.sampleset.policies.ahead import requested_runs
from dataset_controller.timing import (
    CANCEL_RETRY_INTERVAL_SECONDS,
    NEW_RUN_CHECK_INTERVAL_SECONDS,
    RUN_CANCEL_TIMEOUT_SECONDS,
)
from paddlewheel.contracts.crds.samplejob import CANCELLED_RUNS
from paddlewheel.contracts.generated.datasets_v1 import SampleJobFailed
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age, seconds_stamp


@dataclass(frozen=True)
class TerminationDecision:
    """Whether the job may start."""

    status: JobStatus
    may_start: bool = True
    wake_after: float | None = None


def decide_termination(seen: ObservedJob, status: JobStatus, now: datetime) -> TerminationDecision:
    """Record which of the set's runs the job ends, and wait for their end, but not forever."""
    if not seen.job.spec.terminate or status.holds(Cond.OTHERS_CANCELLED):
        return TerminationDecision(status)
    others = _others(seen)
    status = replace(
        status,
        cancels_since=status.cancels_since or seconds_stamp(now),
        cancelled_runs=_extended(status.cancelled_runs, others),
    )
    status = status.with_condition(Cond.OTHERS_CANCELLED, False, Reason.CANCELLING_OTHERS, "", now)
    left = RUN_CANCEL_TIMEOUT_SECONDS - age(status.cancels_since, now)
    is_starting = _is_another_starting(seen)
    if not (others or is_starting) or left <= 0:
        message = _unended(others, status.cancelled_runs)
        return TerminationDecision(
            status.with_condition(Cond.OTHERS_CANCELLED, True, Reason.CANCELLED, message, now)
        )
    again = NEW_RUN_CHECK_INTERVAL_SECONDS if is_starting else CANCEL_RETRY_INTERVAL_SECONDS
    return TerminationDecision(status, False, min(left, again))


def _extended(recorded: tuple[str, ...], others: Iterable[str]) -> tuple[str, ...]:
    new = sorted(run for run in others if run not in recorded)
    return (*recorded, *new)[:CANCELLED_RUNS]


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


def _unended(others: Mapping[str, str], cancelled: Collection[str]) -> str:
    """Who goes on for now: the bus, or every agent, may be away. The most important first: long messages are
    cut."""
    told = ", ".join(others[run] for run in sorted(others) if run in cancelled)
    untold = ", ".join(others[run] for run in sorted(others) if run not in cancelled)
    parts = (
        f"not cancelled, for a job ends at most {CANCELLED_RUNS} at a time: {untold}" if untold else "",
        f"cancelled, but not ended {RUN_CANCEL_TIMEOUT_SECONDS:.0f} s later: {told}" if told else "",
    )
    return "; ".join(filter(None, parts))


def without_ended(seen: ObservedJob) -> ObservedJob:
    """The job with those of its `cancelled_runs` that somebody still has to cancel: there is room for a
    number of them only, and the bus forgets a run a minute after its end."""
    recorded = seen.status.cancelled_runs
    if not recorded:
        return seen
    followed, is_over = _followed(seen), seen.status.phase in ENDED
    left = tuple(run for run in recorded if run in followed or not (is_over or is_ended(seen.runs.get(run))))
    return replace(seen, job=replace(seen.job, status=replace(seen.status, cancelled_runs=left)))


def _followed(seen: ObservedJob) -> frozenset[str]:
    """Runs of which the status of their job, or of the set, does not say yet that they have ended: they are
    written again when the bus loses them."""
    own = requested_runs(seen.sample_set, {}) if seen.sample_set else {}
    of_jobs = (other.status.run_id for other in seen.others.values() if other.status.phase in BEGUN)
    return frozenset((*own, *of_jobs))


def cancels_left(seen: ObservedJob, status: JobStatus | None) -> tuple[CancelRun, ...]:
    """Until the job ends: of the runs that its recorded status ends, those whose end the bus has not told. To
    be carried out first: no run is written before the bus has taken each cancel, so none of those runs goes
    on beside the job's own. Also of a job that has failed: its record may have stayed on a bus that was away.

    A run that is not recorded yet is cancelled in the next pass: it may end at once, and the jobs that waited
    for it would begin before they see that this one ends them.

    Args:
        status: the wanted one.
    """
    if status is None or status.phase in ENDED or seen.sample_set is None:
        return ()
    left = (run for run in seen.status.cancelled_runs if not is_ended(seen.runs.get(run)))
    return tuple(CancelRun(seen.sample_set.run_key(run)) for run in left)


def has_more_to_cancel(seen: ObservedJob, status: JobStatus | None) -> bool:
    """The wanted status ends runs that the recorded one does not."""
    return status is not None and not {*status.cancelled_runs} <= {*seen.status.cancelled_runs}


def cancelled_by(seen: ObservedJob) -> str | None:
    """Name of a job of the set with `spec.terminate` that ends this one, which waits or has a run. Asked as
    long as it has one: the bus may have taken no cancel, or have lost it. One that waits is not ended by
    those that it is to run after."""
    own, others = seen.job, seen.others.values()
    if own.status.phase in BEGUN:
        run = own.status.run_id
        return next((other.key.name for other in others if run in other.status.cancelled_runs), None)
    awaited = awaited_by(own, seen.others)
    rivals = (other for other in others if other.key.name not in awaited)
    return next((other.key.name for other in rivals if _ends_waiting(other, own)), None)


def _ends_waiting(job: SampleJob, other: SampleJob) -> bool:
    """It is younger, and began while `other` waited."""
    is_rival = job.spec.terminate and job.set_name == other.set_name
    return (
        is_rival and job.seniority > other.seniority and job.status.cancels_since > _started_again_at(other)
    )


def _started_again_at(job: SampleJob) -> str:
    """When an edit has started a job again that had failed; "" for a new one: it waits since its creation."""
    started = job.status.condition(Cond.STARTED)
    has_failed = job.status.attempt(SampleJobFailed) >= 0
    return started.last_transition_time if has_failed and started is not None else ""
