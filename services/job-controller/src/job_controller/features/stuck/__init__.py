"""Causes that keep pods from running or from ending and do not pass by themselves."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.feature import Feature
from job_controller.core.gate import Gate
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed, Options
from job_controller.features.stuck.no_scheduler import with_unseen_pods
from job_controller.features.stuck.overdue import overdue_message, overdue_pod, overdue_times
from job_controller.features.stuck.rules import seconds_until_stuck, stuck_events, stuck_on
from job_controller.features.stuck.unprepared import look_again_in
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent, earliest


class Stuck(Feature):
    """Pods that cannot start, that no scheduler looks at, that their node does not prepare, and deleted pods
    that do not end."""

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        return with_unseen_pods(seen, now).looking_at(overdue_times(seen), now)

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        return earliest(seconds_until_stuck(seen, now), look_again_in(seen, now))

    def why_waiting(self, seen: Observed, status: JobStatus, now: datetime) -> tuple[Reason, str] | None:
        overdue = overdue_pod(seen, now)
        return (Reason.POD_STUCK_TERMINATING, overdue_message(overdue)) if overdue else None

    def stuck_on(self, seen: Observed, status: JobStatus, gate: Gate, now: datetime) -> Reason | None:
        return stuck_on(seen, gate, now)

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        return stuck_events(seen.job, status) if gate.is_open else ()
