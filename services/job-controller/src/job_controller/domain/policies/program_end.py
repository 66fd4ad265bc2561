"""Pods whose first container has ended for good while others, such as a service mesh, run on.

The first container trains, so its end is that of the pod. Kubernetes itself waits for the other containers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.domain.model import Observed
from job_controller.domain.pods import Pod


def with_program_ends(seen: Observed, now: datetime) -> Observed:
    """The same, with these pods counted as succeeded or failed."""
    if not any(pod.program_end for pod in seen.pods):
        return seen
    return replace(seen, pods=tuple(_judged(pod, now) for pod in seen.pods))


def seconds_until_program_end(seen: Observed, now: datetime) -> float | None:
    """When the next pod counts as ended."""
    times = (pod.program_end.counts_at for pod in seen.pods if pod.program_end)
    return min(((at - now).total_seconds() for at in times if at > now), default=None)


def _judged(pod: Pod, now: datetime) -> Pod:
    end = pod.program_end
    if end is None or now < end.counts_at or pod.given_up:
        return pod
    return replace(pod, state=end.state, failure=end.failure, hindrance=None)
