"""`spec.terminate`: cancel what runs on the set before this job's own run begins, each run by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.actions import Action, CancelRun
from dataset_controller.domain.journal import Journal
from dataset_controller.domain.names import Cond, Reason
from dataset_controller.domain.objects import spec_of, uid_of
from dataset_controller.domain.runs import unfinished
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.text import age
from paddlewheel.contracts.run_keys import RunKey

CANCEL_SECONDS = 60.0
"""How long cancelled runs are waited for; one that nobody works on never says so."""


@dataclass(frozen=True)
class TerminationDecision:
    """Whether the job may begin."""

    journal: Journal
    may_begin: bool = True
    actions: tuple[Action, ...] = ()
    wake_after: float | None = None


def decide_termination(seen: ObservedJob, journal: Journal, now: datetime) -> TerminationDecision:
    """Cancel the set's other unfinished runs once, and wait for them, but not for ever."""
    if not spec_of(seen.obj).get("terminate") or journal.holds(Cond.OTHERS_CANCELLED):
        return TerminationDecision(journal)
    others = [run for run in unfinished(seen.runs) if run != seen.status.run_id]
    noted = journal.note(Cond.OTHERS_CANCELLED, False, Reason.CANCELLING_OTHERS, "", now)
    since = noted.condition(Cond.OTHERS_CANCELLED)
    left = CANCEL_SECONDS - age(since.last_transition_time if since else "", now)
    if not others or left <= 0:
        return TerminationDecision(noted.note(Cond.OTHERS_CANCELLED, True, Reason.CANCELLED, "", now))
    set_uid = uid_of(seen.sample_set) if seen.sample_set else ""
    return TerminationDecision(noted, False, tuple(CancelRun(RunKey(set_uid, run)) for run in others), left)
