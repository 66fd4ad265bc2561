"""The job's status, computed from what is observed now."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import Any

from dataset_controller.domain.names import Cond, JobPhase
from dataset_controller.domain.runs import is_ended
from dataset_controller.domain.samplejob.facts import FACTS, Case
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState
from paddlewheel.contracts.rates import seconds_left
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp, seconds_stamp


def present_status(seen: ObservedJob) -> JobStatus:
    """The recorded status, for the present generation."""
    return replace(seen.status, observed_generation=seen.job.generation)


def running_status(seen: ObservedJob, state: RunState, now: datetime) -> JobStatus:
    """The runtime has taken up the run."""
    return with_facts(seen, _running(seen, state, now), now)


def ended_status(
    seen: ObservedJob, state: RunState | None, phase: JobPhase, reason: str, message: str, now: datetime
) -> JobStatus:
    """The run is over. `phase` is Succeeded or Failed. Without a state, its progress is what was recorded
    last."""
    progress = {**(progress_of(state) if state else seen.status.progress)}
    progress.pop("etaSeconds", None)
    status = _running(seen, state or RunState(), now)
    status = replace(
        status,
        phase=phase,
        completed=seconds_stamp(now),
        progress=progress,
        # With what was edited while it went on, such as secretRef: that starts nothing later.
        request_digest=seen.job.request_digest,
    )
    status = status.with_condition(Cond.COMPLETE, phase is JobPhase.SUCCEEDED, reason, message, now)
    return with_facts(seen, status, now)


def end_of(state: RunState) -> tuple[JobPhase, str, str]:
    """Phase, reason and message of a job whose run has ended so."""
    match state.phase:
        case RunPhase.SUCCEEDED:
            return JobPhase.SUCCEEDED, state.reason or Reason.COMPLETED, state.message
        case RunPhase.CANCELLED:
            return JobPhase.FAILED, Reason.CANCELLED, state.message or "the run was cancelled"
    return JobPhase.FAILED, state.reason or Reason.RUN_FAILED, state.message


def unstarted_status(seen: ObservedJob, run: str, reason: str, message: str, now: datetime) -> JobStatus:
    """The job fails before its run was requested. `run`: the id that the run would have had."""
    status = with_run(seen, present_status(seen), run)
    status = replace(status, phase=JobPhase.FAILED, completed=seconds_stamp(now))
    status = status.with_condition(Cond.STARTED, False, reason, message, now)
    status = status.with_condition(Cond.COMPLETE, False, reason, message, now)
    return with_facts(seen, status, now)


def with_run(seen: ObservedJob, status: JobStatus, run: str) -> JobStatus:
    """Of a run that is requested now, with nothing of the one before."""
    return replace(
        status,
        phase=JobPhase.PENDING,
        run_id=run,
        set_name=seen.job.set_name,
        set_uid=seen.sample_set.uid if seen.sample_set else "",
        type=seen.job.type,
        request_digest=seen.job.request_digest,
        progress={},
        started="",
        completed="",
    )


def with_facts(
    seen: ObservedJob, status: JobStatus, now: datetime, *, is_released: bool = False
) -> JobStatus:
    """Declare what the status makes true."""
    case = Case(seen, status, is_released)
    facts = FACTS.declare(status.announcements, case, milliseconds_stamp(now))
    return replace(status, announcements=facts)


def progress_of(state: RunState) -> dict[str, Any]:
    """`status.progress`, exact to the acknowledged chunk."""
    return {
        "filesDone": state.files_done,
        "filesTotal": state.files_total,
        **({"filesKept": state.files_kept} if state.files_kept else {}),
        **({"filesFailed": state.files_failed} if state.files_failed else {}),
        "bytesDone": state.bytes_done,
        "bytesTotal": state.bytes_total,
        "percent": _percent(state),
        "cachedPercent": round(state.cached_percent, 2),
        "listed": state.listed,
        **({"etaSeconds": left} if (left := _seconds_left(state)) else {}),
    }


def _percent(state: RunState) -> str:
    """The share of the bytes or of the files, whichever is less, since a file that failed may have an unknown
    size. It is rounded down, so that 100 % means all, and empty while the total is not known."""
    amounts = ((state.bytes_done, state.bytes_total), (state.files_done, state.files_total))
    if not state.listed:
        return ""
    return f"{min(done * 100 // total if total else 100 for done, total in amounts)}%"


def _seconds_left(state: RunState) -> int:
    """Of a run that goes on, by its master's clock; 0 when nobody can tell."""
    if is_ended(state) or not state.listed or state.started_at is None or state.heartbeat is None:
        return 0
    elapsed = (state.heartbeat - state.started_at).total_seconds()
    return math.ceil(seconds_left(*_amounts(state), elapsed))


def _amounts(state: RunState) -> tuple[int, int]:
    """Done and in all: bytes, or files when those are empty."""
    if state.bytes_total:
        return state.bytes_done, state.bytes_total
    return state.files_done, state.files_total


def _running(seen: ObservedJob, state: RunState, now: datetime) -> JobStatus:
    is_waiting = state.reason and not is_ended(state)
    starts = (state.reason, state.message) if is_waiting else (Reason.RUNNING, _limits(seen))
    status = present_status(seen).with_condition(Cond.STARTED, True, *starts, now)
    is_early = status.phase is JobPhase.RUNNING and not seen.progress_due
    return replace(
        status,
        phase=JobPhase.RUNNING,
        started=status.started or seconds_stamp(now),
        progress=status.progress if is_early else progress_of(state),
    )


def _limits(seen: ObservedJob) -> str:
    """What a warmup cannot bring about, told before it ends."""
    if seen.job.type != "warmup" or seen.sample_set is None:
        return ""
    fits = seen.sample_set.status.condition(Cond.CACHE_FITS)
    return fits.message if fits is not None and fits.status == "False" else ""
