"""`spec.terminate`: cancel what runs on the set before this job's own run starts, each run by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.actions import CancelRun
from dataset_controller.domain.names import Cond
from dataset_controller.domain.runs import unfinished
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.stamps import age

CANCEL_SECONDS = 60.0
"""Time that cancelled runs get to end; one that no agent works on never reports it."""


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
    others = [run for run in unfinished(seen.runs) if run != seen.status.run_id]
    status = status.with_condition(Cond.OTHERS_CANCELLED, False, Reason.CANCELLING_OTHERS, "", now)
    since = status.condition(Cond.OTHERS_CANCELLED)
    left = CANCEL_SECONDS - age(since.last_transition_time if since else "", now)
    if not others or left <= 0:
        return TerminationDecision(
            status.with_condition(Cond.OTHERS_CANCELLED, True, Reason.CANCELLED, "", now)
        )
    set_uid = seen.sample_set.uid if seen.sample_set else ""
    cancels = tuple(CancelRun(RunKey(set_uid, run)) for run in others)
    return TerminationDecision(status, False, cancels, left)
