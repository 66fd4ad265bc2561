"""Deleting a SampleJob: cancel its run, record its end, let the set take note of what it has done, remove the
records, publish that, and then let the object go. Only a job that a user has deleted goes after a time-out of
the bus; one whose time to live is over waits for the bus."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import CancelRun, ForgetRun
from dataset_controller.domain.names import BEGUN, JobPhase, job_finalizer
from dataset_controller.domain.runs import is_ended
from dataset_controller.domain.samplejob.model import JobPlan, JobStatus, ObservedJob
from dataset_controller.domain.samplejob.policies.expiry import expires_at
from dataset_controller.domain.samplejob.policies.notice import is_note_awaited
from dataset_controller.domain.samplejob.status import end_of, ended_status, present_status, with_facts
from dataset_controller.timing import (
    BUS_DELETION_TIMEOUT_SECONDS,
    DELETED_JOB_CANCEL_TIMEOUT_SECONDS,
    SET_NOTICE_CHECK_INTERVAL_SECONDS,
)
from paddlewheel.contracts.generated.datasets_v1 import SampleJobDeleted
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.stamps import age, parse_stamp
from paddlewheel.operator.domain.facts import has_expired
from paddlewheel.operator.domain.plan import AT_ONCE


def plan_deletion(seen: ObservedJob, now: datetime) -> JobPlan:
    """Cancel, wait, record the end, wait for the set, remove the records, publish, release. Whether it runs
    must be known."""
    job, finalizer = seen.job, job_finalizer(seen.job.key.name)
    if finalizer not in job.finalizers:
        return JobPlan()
    since = age(job.deleted_at, now)
    if seen.status.phase in BEGUN and not seen.are_records_known and since < BUS_DELETION_TIMEOUT_SECONDS:
        return JobPlan(present_status(seen), requeue_after=SET_NOTICE_CHECK_INTERVAL_SECONDS)
    runs = _runs(seen)
    is_running = seen.state is not None and not is_ended(seen.state)
    if is_running and runs and since < DELETED_JOB_CANCEL_TIMEOUT_SECONDS:
        cancels = tuple(CancelRun(run) for run in runs)
        return JobPlan(present_status(seen), cancels, requeue_after=SET_NOTICE_CHECK_INTERVAL_SECONDS)
    if seen.status.phase is JobPhase.RUNNING or (seen.status.phase in BEGUN and seen.state is not None):
        return JobPlan(_ended_status(seen, now), requeue_after=AT_ONCE)
    if is_note_awaited(seen, now):
        return JobPlan(present_status(seen), requeue_after=SET_NOTICE_CHECK_INTERVAL_SECONDS)
    return JobPlan(
        with_facts(seen, present_status(seen), now, is_released=True),
        actions=tuple(ForgetRun(run) for run in runs),
        release={"finalizers": [f for f in job.finalizers if f != finalizer]},
        release_anyway=since > BUS_DELETION_TIMEOUT_SECONDS and not _has_expired(seen),
        requeue_after=SET_NOTICE_CHECK_INTERVAL_SECONDS,
    )


def _has_expired(seen: ObservedJob) -> bool:
    job, deleted = seen.job, parse_stamp(seen.job.deleted_at)
    facts = seen.status.announcements
    return deleted is not None and has_expired(expires_at(job), deleted, facts, SampleJobDeleted)


def _ended_status(seen: ObservedJob, now: datetime) -> JobStatus:
    """The work of the run until its end counts, even if a user has ended it."""
    if seen.state is not None and is_ended(seen.state):
        return ended_status(seen, seen.state, *end_of(seen.state), now)
    message = "the job was deleted while its run went on"
    return ended_status(seen, seen.state, JobPhase.FAILED, Reason.CANCELLED, message, now)


def _runs(seen: ObservedJob) -> tuple[RunKey, ...]:
    """The run's records, also of a set that was replaced by one of the same name."""
    run = seen.status.run_id
    if not run:
        return ()
    present = (seen.sample_set.run_key(run),) if seen.sample_set else ()
    return tuple(dict.fromkeys((*seen.recorded, *present)))
