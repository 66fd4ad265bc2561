"""Pods wait at a gate until they can reach the others."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature, Shape
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.features.start_gate.former import opened_file_gates
from job_controller.features.start_gate.render import pod_shape
from job_controller.features.start_gate.rules import gate_conditions, gate_failure_events, with_stuck_gates
from paddlewheel.contracts.conditions import Condition
from paddlewheel.operator.domain.plan import Action, KubernetesEvent


class StartGate(Feature):
    """An init container of each pod that waits until the addresses of all pods are known."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return with_stuck_gates(seen, now)

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        return gate_conditions(seen, status.phase)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return gate_failure_events(seen.job, status) if gate.is_open else ()

    def updates(self, seen: Observed, *, has_addresses: bool) -> tuple[Action, ...]:
        return opened_file_gates(seen, has_addresses=has_addresses)

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        return pod_shape(seen, options)
