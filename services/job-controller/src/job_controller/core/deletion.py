"""When a finished job is deleted, and when the finalizer of a deleted job is removed: after its last fact. A
job that its user has deleted does not wait longer than the patience."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Options
from paddlewheel.contracts.generated.jobs_v1 import JobDeleted
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.facts import has_expired


def without_finalizer(job: Job) -> dict[str, list[str]]:
    """Merge patch of the metadata that removes the finalizer."""
    return {"finalizers": [f for f in job.finalizers if f != names.FINALIZER]}


def is_patience_over(job: Job, options: Options, now: datetime) -> bool:
    """A job that its user has deleted has waited long enough for the bus."""
    deleted = job.deleted_at
    if deleted is None or has_expired(expires_at(job), deleted, job.status.announcements, JobDeleted):
        return False
    return now >= deleted + timedelta(seconds=options.deletion_patience)


def expires_at(job: Job) -> datetime | None:
    """When the time to live of a finished job is over, None without one."""
    seconds, ended = job.spec.ttl_seconds_after_finished, parse_stamp(job.status.completion_time)
    return None if seconds is None or ended is None else ended + timedelta(seconds=seconds)
