"""The cause on which a job is stuck: it does not pass by itself. Each cause is reported once."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from job_controller.core.running import hindered_pod
from job_controller.features.stuck.overdue import overdue_pod
from job_controller.timing import STUCK_POD_GRACE_SECONDS
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.plan import KubernetesEvent

_MAY_PASS = frozenset({Reason.UNSCHEDULABLE, Reason.GANG_UNSCHEDULABLE, Reason.CONFIG_ERROR})
_NEEDS_MENDING = frozenset({Reason.SAMPLE_SET_FAILED, Reason.GANG_TOO_LARGE, Reason.QUEUE_NOT_USABLE})
"""Reasons of a closed gate that stay until the user does something."""
_WAITS_IN_ORDER = frozenset({Reason.SCHEDULING_GATED})


def stuck_on(seen: Observed, gate: Gate, now: datetime) -> Reason | None:
    """The cause, None while the job makes progress or may still."""
    if not gate.is_open:
        return gate.reason if gate.reason in _NEEDS_MENDING else None
    if overdue_pod(seen, now):
        return Reason.POD_STUCK_TERMINATING
    pod, reason = _serious_hindrance(seen)
    if pod is None:
        has_unanswered = any(pod.gate_failure for pod in seen.world_pods)
        return Reason.GATE_UNANSWERED if has_unanswered else None
    return reason if _patience_left(pod, now) <= timedelta() else None


def seconds_until_stuck(seen: Observed, now: datetime) -> float | None:
    """Seconds until the next check of a pod whose cause may still pass."""
    pod, _ = _serious_hindrance(seen)
    if pod is None:
        return None
    left = _patience_left(pod, now).total_seconds()
    return left if left > 0 else None


def _serious_hindrance(seen: Observed) -> tuple[Pod, Reason] | tuple[None, None]:
    """The first hindered pod with the reason, unless it waits as it should."""
    pod = hindered_pod(seen)
    if pod is None or pod.hindrance is None or not _is_serious(seen, pod.hindrance.reason):
        return None, None
    return pod, pod.hindrance.reason


def _is_serious(seen: Observed, reason: Reason) -> bool:
    """Without the gate, pods are in an error state until their ConfigMap exists."""
    waits_for_config = reason is Reason.CONFIG_ERROR and seen.config is None and not seen.job.elastic
    return reason not in _WAITS_IN_ORDER and not waits_for_config


def _patience_left(pod: Pod, now: datetime) -> timedelta:
    created = parse_stamp(pod.created_at)
    if pod.hindrance is None or pod.hindrance.reason not in _MAY_PASS or created is None:
        return timedelta()
    return created + timedelta(seconds=STUCK_POD_GRACE_SECONDS) - now


def stuck_events(job: Job, status: JobStatus) -> tuple[KubernetesEvent, ...]:
    """A pod is stuck on something, once per cause."""
    running = find(status.conditions, names.CONDITION_RUNNING)
    if running is None or running.reason not in status.stuck_on[len(job.status.stuck_on) :]:
        return ()
    return (KubernetesEvent("Warning", running.reason, running.message),)
