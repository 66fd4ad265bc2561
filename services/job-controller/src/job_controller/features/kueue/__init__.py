"""Jobs in a queue of Kueue have a Workload, and pods only while Kueue admits it."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.changes import Change
from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.model import Observed, Options
from job_controller.features.kueue.children import (
    finished_actions,
    needs_quota_still,
    queue_actions,
    refused_actions,
)
from job_controller.features.kueue.render import pod_shape
from job_controller.features.kueue.rules import eviction, queue_gate, withdrawal
from paddlewheel.operator.domain.plan import Action


class Kueue(Feature):
    """The label of a queue on a job, and its Workload."""

    def gate(self, seen: Observed) -> Gate | None:
        return queue_gate(seen)

    def change(self, seen: Observed) -> Change | None:
        return withdrawal(seen)

    def eviction(self, seen: Observed) -> Change | None:
        return eviction(seen)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen)

    def children_while_gated(self, seen: Observed, gate: Gate, now: datetime) -> tuple[Action, ...]:
        return queue_actions(seen, gate, now)

    def children_when_refused(self, seen: Observed) -> tuple[Action, ...]:
        return refused_actions(seen)

    def children_when_finished(self, seen: Observed) -> tuple[Action, ...]:
        return finished_actions(seen)

    def holds_deleted_job(self, seen: Observed) -> bool:
        return needs_quota_still(seen)
