"""Pods wait at a gate until they can reach the others."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.core.pods import PodId
from job_controller.features.start_gate.former import opened_file_gates
from job_controller.features.start_gate.render import pod_shape
from job_controller.features.start_gate.rules import gate_conditions, gate_failure_events, with_stuck_gates
from job_controller.timing import GATE_URL_INTERVAL_SECONDS
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, KubernetesEvent


class StartGate(Feature):
    """An init container of each pod that waits until the addresses of all pods are known."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return with_stuck_gates(seen, now)

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        return GATE_URL_INTERVAL_SECONDS if seen.misses_gate_url else None

    def due_pods(
        self, seen: Observed, missing: tuple[PodId, ...], options: Options, now: datetime
    ) -> tuple[PodId, ...]:
        return () if seen.misses_gate_url else missing

    def why_waiting(self, seen: Observed, status: JobStatus, now: datetime) -> tuple[Reason, str] | None:
        if not seen.misses_gate_url:
            return None
        return Reason.NO_GATE_ADDRESS, (
            "pods without the DNS of the cluster ask job-controller by its address, which it cannot look up:"
            " check Service job-controller and the DNS of the pod of job-controller"
        )

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return gate_conditions(seen, status.phase)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return gate_failure_events(seen.job, status) if gate.is_open else ()

    def updates(self, seen: Observed, *, has_addresses: bool) -> tuple[Action, ...]:
        return opened_file_gates(seen, has_addresses=has_addresses)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen, options)
