"""The status of a job whose spec is wrong. A job that was accepted before is followed to its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.phase import decide_phase
from job_controller.core.results import decide_results, decide_saved_model
from job_controller.core.running import count_running, running_condition
from job_controller.core.status import (
    asked_for,
    end_conditions,
    present_status,
    ready_text,
    restarted_status,
    wanted_before,
    with_condition,
    with_conditions,
    with_facts,
    with_times,
)
from job_controller.core.verdict import (
    End,
    GoOn,
    Restart,
)
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.reasons import Reason

_OPEN = Gate(True, Reason.NOTHING_TO_WAIT_FOR)


def refused_status(seen: Observed, verdict: GoOn | End, now: datetime) -> JobStatus:
    """The spec can never work: say so. A job that was accepted before is followed to its end."""
    status = present_status(seen)
    status = replace(status, phase=status.phase or names.PENDING)
    if status.roles or isinstance(verdict, End):
        status = _outlived_status(seen, status, verdict, now)
    return with_facts(seen.job, with_refusal(seen.job, status, now), now)


def with_refusal(job: Job, status: JobStatus, now: datetime) -> JobStatus:
    """The same with the condition that names the fields to correct."""
    condition = Condition(names.CONDITION_ACCEPTED, "False", Reason.INVALID_SPEC, "; ".join(job.problems))
    return with_condition(job, status, condition, now)


def _outlived_status(seen: Observed, status: JobStatus, verdict: GoOn | End, now: datetime) -> JobStatus:
    """Phase, times and conditions of a job whose spec has become wrong: what it was before decides."""
    phase = decide_phase(_outlived(status), status.roles)
    phase = names.FAILED if isinstance(verdict, End) and phase != names.COMPLETED else phase
    ready = ready_text(asked_for(seen.job, status), count_running(status.roles), phase in names.FINAL_PHASES)
    status = replace(
        status,
        phase=phase,
        ready=ready,
        results=decide_results(seen, phase),
        saved_model=decide_saved_model(seen, phase),
    )
    status = with_times(status, seen, now)
    # No pods are made of a wrong spec, so there is no time at which they will be.
    running = running_condition(seen, status, _OPEN, now, begins=None)
    current = (running, *end_conditions(seen.job, status, verdict))
    return with_conditions(seen.job, status, current, now)


def has_outlived_success(seen: Observed) -> bool:
    """A job whose spec has become wrong has succeeded as it was before."""
    status = present_status(seen)
    return bool(status.roles) and decide_phase(_outlived(status), status.roles) == names.COMPLETED


def _outlived(status: JobStatus) -> dict[str, int]:
    """Pods by role that trained together, or should have, when the job's spec was last right."""
    sizes = {name: max(len(role.refs), sum(role.counts.values())) for name, role in status.roles.items()}
    world, waiting = status.world, 0
    if world and WORKER in sizes:
        sizes[WORKER], waiting = min(sizes[WORKER], world.workers), world.of - world.workers
    never_made = max(0, wanted_before(status) - waiting - sum(sizes.values()))
    # Their role is not recorded: none of the roles that end the job has succeeded without them.
    deciding = [WORKER] if WORKER in sizes else list(sizes)
    return sizes | {role: sizes[role] + never_made for role in deciding}


def refused_restart(seen: Observed, why: Restart, now: datetime) -> JobStatus:
    """The same while the spec is wrong: it still counts as many pods as when it was right."""
    status = restarted_status(seen, why, now)
    ready = status.ready if why.only else ready_text(asked_for(seen.job, seen.status), 0, False)
    return with_refusal(seen.job, replace(status, ready=ready), now)
