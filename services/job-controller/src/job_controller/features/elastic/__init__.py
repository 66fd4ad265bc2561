"""Jobs with `worker.requests` train with fewer workers while there is no room for all."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.core.pods import PodId
from job_controller.core.verdict import Restart
from job_controller.features.elastic.rules import (
    due_pods,
    find_fit,
    next_fit,
    refused_growth,
    with_useless_pods,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import shorten


class Elastic(Feature):
    """The number of workers that train, in `status.world`."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return with_useless_pods(seen, now)

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        return None if seen.job.problems else next_fit(seen, now)

    def running_message(self, seen: Observed) -> str:
        return shorten(refused_growth(seen))

    def due_pods(
        self, seen: Observed, missing: tuple[PodId, ...], options: Options, now: datetime
    ) -> tuple[PodId, ...]:
        return due_pods(seen, missing, now, has_gate=bool(options.gate_image))

    def resize(self, seen: Observed, now: datetime) -> Restart | None:
        fit = find_fit(seen, now)
        return Restart(Reason.RESIZED, fit.message, world=fit.world, is_failure=False) if fit else None
