"""Pods that no scheduler looks at: it is not installed, does not run, or has another name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from job_controller.domain.model import Observed
from job_controller.domain.pods import Pod
from job_controller.timing import SCHEDULER_GRACE_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.hindrance import Hindrance


def with_unseen_pods(seen: Observed, now: datetime) -> Observed:
    """The same, with the name of the scheduler as what keeps these pods from running."""
    if not any(pod.unseen_scheduler for pod in seen.pods):
        return seen
    return replace(seen, pods=tuple(_hindered(pod, now) for pod in seen.pods))


def seconds_until_unseen(seen: Observed, now: datetime) -> float | None:
    """When the next pod has waited too long for its scheduler."""
    times = (due for pod in seen.pods if (due := _due(pod)))
    return min(((due - now).total_seconds() for due in times if due > now), default=None)


def _hindered(pod: Pod, now: datetime) -> Pod:
    due = _due(pod)
    if due is None or now < due or pod.given_up:
        return pod
    waited = f"scheduler {pod.unseen_scheduler} has not looked at the pod for {SCHEDULER_GRACE_SECONDS:g} s"
    message = f"{waited}; start this scheduler, or correct schedulerName in the template"
    return replace(pod, hindrance=pod.hindrance or Hindrance(Reason.NO_SCHEDULER, message))


def _due(pod: Pod) -> datetime | None:
    created = parse_stamp(pod.created_at) if pod.unseen_scheduler else None
    return created + timedelta(seconds=SCHEDULER_GRACE_SECONDS) if created else None
