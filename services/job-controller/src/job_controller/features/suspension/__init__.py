"""A suspended job and a job of zero replicas have no pods."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.feature import Feature
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.phase import is_scaled_to_nothing
from job_controller.core.status import with_condition
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason

_SUSPENDED = Gate(False, Reason.SUSPENDED, "spec.suspend is set; set it to false to go on")
_ZERO = Gate(False, Reason.SCALED_TO_ZERO, "every role has replicas 0; raise spec.worker.replicas to run")


class Suspension(Feature):
    """The field `spec.suspend`, and `replicas: 0` in every role."""

    def gate(self, seen: Observed) -> Gate | None:
        if seen.job.spec.suspend:
            return _SUSPENDED
        return _ZERO if is_scaled_to_nothing(seen.job) else None

    def recorded(self, seen: Observed, status: JobStatus, now: datetime) -> JobStatus:
        """The condition `Suspended` of jobs that are or were suspended, and the number of suspensions."""
        job, was_suspended = seen.job, seen.status.condition(names.CONDITION_SUSPENDED) == "True"
        if job.spec.suspend and not status.final:
            condition = Condition(names.CONDITION_SUSPENDED, "True", Reason.SUSPENDED, "spec.suspend is set")
            count = status.suspensions + (not was_suspended)
            return with_condition(job, replace(status, suspensions=count), condition, now)
        if not was_suspended:
            return status
        return with_condition(job, status, Condition(names.CONDITION_SUSPENDED, "False", Reason.RESUMED), now)
