"""When a finished job is deleted, and when the finalizer of a deleted one is removed: after its last fact, or
when the patience is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.domain import names
from job_controller.domain.model import Job, Options
from paddlewheel.contracts.stamps import parse_stamp


def without_finalizer(job: Job) -> dict[str, list[str]]:
    """Merge patch of the metadata that removes the finalizer."""
    return {"finalizers": [f for f in job.finalizers if f != names.FINALIZER]}


def is_patience_over(job: Job, options: Options, now: datetime) -> bool:
    """The bus has been down for as long as a deleted job waits for it."""
    return job.deleted_at is not None and now >= job.deleted_at + timedelta(seconds=options.deletion_patience)


def expires_at(job: Job) -> datetime | None:
    """When the time to live of a finished job is over, None without one."""
    seconds, ended = job.spec.ttl_seconds_after_finished, parse_stamp(job.status.completion_time)
    return None if seconds is None or ended is None else ended + timedelta(seconds=seconds)
