"""Runs of a set that do not conflict go on side by side; of those that do, one waits for the other.

Jobs that wait are a line: by `spec.priority`, the higher first, then by age. Nobody overtakes one before it
with which it conflicts, so that a stream of warmups does not keep a clear waiting for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dataset_controller.domain.names import BEGUN, Cond, JobPhase
from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.domain.samplejob.request import is_prepared_for
from dataset_controller.domain.samplejob.uses import COPIES, EVERYTHING, FILLS, Uses, conflict
from dataset_controller.domain.sampleset.policies.ahead import is_sync_ahead, is_warmup_ahead
from dataset_controller.timing import TURN_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Turn:
    """Whether a job may begin. `message`: whom it waits for, "" for nobody."""

    message: str = ""
    wake_after: float | None = None


def decide_turn(seen: ObservedJob, cancelled: Collection[str]) -> Turn:
    """The job begins unless it conflicts with a run, or with a job before it in the line.

    Args:
        cancelled: ids of the runs that it ends, and does not wait for any more.
    """
    among_jobs = _turn_among_jobs(seen, cancelled)
    return among_jobs if among_jobs.message else _turn_after_the_set(seen)


def _turn_among_jobs(seen: ObservedJob, cancelled: Collection[str]) -> Turn:
    """One with `spec.terminate` is before all that wait, but not before those that began while it waited for
    the set."""
    mine = seen.job.uses
    others = (other for other in _candidates(seen) if other.status.run_id not in cancelled)
    rivals = [other for other in others if conflict(mine, _uses_of_run(other))]
    before = [other for other in rivals if _is_in_line(seen, other) and _rank(other) < _rank(seen.job)]
    if before and not seen.job.spec.terminate:
        last = max(before, key=_rank)
        return Turn(f"waits for SampleJob {last.key.name}, which is before it{_priority(last)}")
    if running := sorted(other.key.name for other in rivals if other.status.phase in BEGUN):
        return Turn(f"waits for {', '.join(f'SampleJob {name}' for name in running)}")
    if starting := sorted(other.key.name for other in rivals if other.key.name in seen.starting):
        return Turn(f"waits for SampleJob {starting[0]}", TURN_CHECK_INTERVAL_SECONDS)
    return Turn()


def _turn_after_the_set(seen: ObservedJob) -> Turn:
    own = next((name for name, uses in _own_runs(seen) if conflict(seen.job.uses, uses)), "")
    return Turn(f"waits for the set's own {own}", TURN_CHECK_INTERVAL_SECONDS) if own else Turn()


def _candidates(seen: ObservedJob) -> Iterator[SampleJob]:
    """Other jobs of the set that run, begin or are in line. Those that have ended may be many."""
    of_the_set = (other for other in seen.others.values() if other.set_name == seen.job.set_name)
    return (
        other
        for other in of_the_set
        if other.status.phase in BEGUN or other.key.name in seen.starting or _is_in_line(seen, other)
    )


def _rank(job: SampleJob) -> tuple[Any, ...]:
    """The least is first."""
    return -job.spec.priority, *job.seniority


def _priority(job: SampleJob) -> str:
    return f" with priority {job.spec.priority}" if job.spec.priority else ""


def _is_in_line(seen: ObservedJob, other: SampleJob) -> bool:
    """It waits for its turn and for nothing else, as its status says."""
    status = other.status
    is_waiting = status.phase is JobPhase.NEW and not other.deleted_at and status.holds(Cond.ACCEPTED)
    is_next = status.reason_of(Cond.STARTED) == Reason.WAITING_FOR_TURN
    return is_waiting and is_next and is_prepared_for(seen.sample_set, other.spec.type)


def _uses_of_run(other: SampleJob) -> Uses:
    """A run goes on as it was requested: of one whose job asks for other work since, nothing is known. What
    its operation works on is not edited meanwhile: the CRD's rules refuse that."""
    return EVERYTHING if other.is_other_work and other.status.phase in BEGUN else other.uses


def _own_runs(seen: ObservedJob) -> Iterator[tuple[str, Uses]]:
    """Those that go on, and those that the set is about to start: it does not wait for jobs."""
    if seen.sample_set is None:
        return
    if is_sync_ahead(seen.sample_set):
        yield "first sync", COPIES
    if is_warmup_ahead(seen.sample_set, seen.runs):
        yield "warmup", FILLS
