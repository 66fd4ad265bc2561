"""The pods of a gang are scheduled together, through a PodGroup."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.changes import Change
from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Pod, PodId
from job_controller.features.gang.children import delete_pod_groups, gang_actions, gated_actions
from job_controller.features.gang.choice import decide_gang
from job_controller.features.gang.ignored import gang_conditions, gang_events
from job_controller.features.gang.render import pod_shape
from job_controller.features.gang.rules import (
    gang_gate,
    gang_hindrance,
    gang_status,
    is_let_in,
    is_misfit,
    joins,
    not_let_in,
    waits_for_group,
)
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, KubernetesEvent

_RESIZED = "the size of the gang was changed while its pods waited for nodes"


class Gangs(Feature):
    """Gangs of Volcano and of Kubernetes itself."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return replace(seen, gang=decide_gang(seen))

    def gate(self, seen: Observed) -> Gate | None:
        return gang_gate(seen, seen.gang)

    def due_pods(
        self, seen: Observed, missing: tuple[PodId, ...], options: Options, now: datetime
    ) -> tuple[PodId, ...]:
        return () if waits_for_group(seen, seen.gang) else missing

    def change(self, seen: Observed) -> Change | None:
        return Change(Reason.SCALED, _RESIZED) if is_misfit(seen) else None

    def hindrance(self, seen: Observed) -> Pod | None:
        return gang_hindrance(seen)

    def why_waiting(self, seen: Observed, status: JobStatus, now: datetime) -> tuple[Reason, str] | None:
        waits_for_others = seen.waits_for_former or status.phase == names.RESTARTING
        if status.gang is None or seen.pods or waits_for_others or is_let_in(seen, status.gang.kind):
            return None
        return Reason.GANG_NOT_ENQUEUED, not_let_in(seen)

    def recorded(self, seen: Observed, status: JobStatus, now: datetime) -> JobStatus:
        return replace(status, gang=gang_status(seen, seen.gang, has_ended=status.final))

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return gang_conditions(seen.job, seen.gang)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return gang_events(seen.job, seen.gang)

    def children(self, seen: Observed) -> tuple[Action, ...]:
        return gang_actions(seen, seen.gang)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen.job, joins(seen, seen.gang))

    def children_while_gated(self, seen: Observed, gate: Gate, now: datetime) -> tuple[Action, ...]:
        return gated_actions(seen, seen.gang, gate)

    def children_when_finished(self, seen: Observed) -> tuple[Action, ...]:
        return delete_pod_groups(seen)
