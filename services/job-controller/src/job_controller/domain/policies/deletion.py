"""When a deleted job may go: its last fact is out, or the bus was given its chance."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.domain import names
from job_controller.domain.model import Job, Options


def without_finalizer(job: Job) -> dict[str, list[str]]:
    """Merge patch of the metadata that lets the job go."""
    return {"finalizers": [f for f in job.finalizers if f != names.FINALIZER]}


def is_patience_over(job: Job, options: Options, now: datetime) -> bool:
    """The bus has had its time to take the last facts."""
    return job.deleted_at is not None and now >= job.deleted_at + timedelta(seconds=options.deletion_patience)
