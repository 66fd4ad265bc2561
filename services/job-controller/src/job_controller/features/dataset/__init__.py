"""Jobs with `sampleSetRef` wait for their data set, run near it and survive a lost mount."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.losses import Loss
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Failure, Pod
from job_controller.features.dataset.mounts import cause_of
from job_controller.features.dataset.render import pod_shape
from job_controller.features.dataset.rules import decide_gate
from job_controller.features.dataset.spill import spill_conditions, spill_events
from job_controller.features.dataset.stranded import find_stranded, seconds_until_stranded
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent


class DataSet(Feature):
    """The SampleSet that the pods of a job mount."""

    def gate(self, seen: Observed) -> Gate | None:
        return decide_gate(seen)

    def cause_of(self, seen: Observed, pod: Pod, failure: Failure) -> Reason | None:
        return cause_of(seen, pod, failure)

    def losses(self, seen: Observed, now: datetime) -> tuple[Loss, ...]:
        return find_stranded(seen, now)

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        return None if seen.job.problems else seconds_until_stranded(seen, now)

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return spill_conditions(seen, status.phase)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return spill_events(seen.job, status)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen)
