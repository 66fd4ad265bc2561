"""Programs report how far they are. A job that no longer reports is stalled."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.features.progress.render import pod_shape
from job_controller.features.progress.rules import (
    seconds_until_stalled,
    stall_conditions,
    stall_events,
    stalled_on,
)
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent


class Progress(Feature):
    """The reports of programs in `status.progress`."""

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        return seconds_until_stalled(seen, status, now)

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return stall_conditions(seen, status, now)

    def stuck_on(self, seen: Observed, status: JobStatus, gate: Gate, now: datetime) -> Reason | None:
        return stalled_on(status)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return stall_events(seen.job, status)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen.job, options)
