"""When a deleted job may go: its last fact is out, or the bus was given its chance."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.domain import names
from job_controller.domain.model import Job, Options, Plan


def may_go(job: Job, plan: Plan, options: Options, now: datetime) -> bool:
    """True when our finalizer is to be removed now."""
    if job.deleted_at is None or names.FINALIZER not in job.finalizers:
        return False
    return not plan.unannounced or now >= job.deleted_at + timedelta(seconds=options.deletion_patience)
