"""Pods whose first container has ended for good while others, such as a service mesh, run on.

The first container trains, so its end is that of the pod. Kubernetes itself waits for the other containers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.core.model import Observed
from job_controller.core.pods import Pod, PodState


def with_program_ends(seen: Observed, now: datetime) -> Observed:
    """The same, with these pods counted as succeeded or failed. A pod that is gone has succeeded if its
    program had: nothing else will be known about it."""
    if any(map(_has_succeeded, seen.gone)):
        seen = replace(seen, gone=tuple(_ended(pod) if _has_succeeded(pod) else pod for pod in seen.gone))
    dues = {pod.uid: due for pod in seen.pods if (due := _due(pod))}
    if not dues:
        return seen
    pods = (_ended(pod) if pod.uid in dues and dues[pod.uid] <= now else pod for pod in seen.pods)
    return replace(seen, pods=tuple(pods)).looking_at(dues.values(), now)


def _has_succeeded(pod: Pod) -> bool:
    return pod.program_end is not None and pod.program_end.state is PodState.SUCCEEDED


def _due(pod: Pod) -> datetime | None:
    """When the pod counts as ended."""
    end = pod.program_end
    return (pod.end_seen_at or end.ended_at) + end.grace if end and not pod.given_up else None


def _ended(pod: Pod) -> Pod:
    end = pod.program_end
    return replace(pod, state=end.state, failure=end.failure, hindrance=None) if end else pod
