"""Words of the spec that are read with another meaning are reported in a condition."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.features.words.rules import word_conditions
from paddlewheel.contracts.conditions import Condition


class Words(Feature):
    """Words that the original operator accepts."""

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return word_conditions(seen.job)
