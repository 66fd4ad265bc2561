"""Deleting a SampleJob: cancel its run, remove the records, publish that, and then let the object go."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import CancelRun, ForgetRun
from dataset_controller.domain.names import BEGUN, job_finalizer
from dataset_controller.domain.runs import is_ended
from dataset_controller.domain.samplejob.model import JobPlan, ObservedJob
from dataset_controller.domain.samplejob.status import present_status, with_facts
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.stamps import age

CANCEL_SECONDS = 30.0
"""Time that the agents get to stop; without agents nobody reports it."""
BUS_SECONDS = 600.0
"""Time that the bus gets before the object goes without it."""
LOOK_AGAIN_SECONDS = 2.0


def plan_deletion(seen: ObservedJob, now: datetime) -> JobPlan:
    """Cancel, wait, remove the records, publish, release. Whether it runs must be known."""
    job, finalizer = seen.job, job_finalizer(seen.job.key.name)
    if finalizer not in job.finalizers:
        return JobPlan()
    since = age(job.deleted_at, now)
    if seen.status.phase in BEGUN and not seen.are_records_known and since < BUS_SECONDS:
        return JobPlan(present_status(seen), requeue_after=LOOK_AGAIN_SECONDS)
    runs = _runs(seen)
    is_running = seen.state is not None and not is_ended(seen.state)
    if is_running and runs and since < CANCEL_SECONDS:
        cancels = tuple(CancelRun(run) for run in runs)
        return JobPlan(present_status(seen), cancels, requeue_after=LOOK_AGAIN_SECONDS)
    return JobPlan(
        with_facts(seen, present_status(seen), now, is_released=True),
        actions=tuple(ForgetRun(run) for run in runs),
        release={"finalizers": [f for f in job.finalizers if f != finalizer]},
        release_anyway=since > BUS_SECONDS,
        requeue_after=LOOK_AGAIN_SECONDS,
    )


def _runs(seen: ObservedJob) -> tuple[RunKey, ...]:
    """The run's records, also of a set that was replaced by one of the same name."""
    run = seen.status.run_id
    if not run:
        return ()
    present = (seen.sample_set.run_key(run),) if seen.sample_set else ()
    return tuple(dict.fromkeys((*seen.recorded, *present)))
