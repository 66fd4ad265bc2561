"""Ended workers beyond the present world are deleted, so that new ones may find a better node.

Each of them stays for a while after its creation: a node that refuses one would refuse the next one, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.domain.model import Observed
from job_controller.domain.pods import Pod
from job_controller.domain.policies.elastic import useless_pods
from job_controller.timing import USELESS_POD_GRACE_SECONDS
from paddlewheel.contracts.stamps import parse_stamp


def useless_pods_to_delete(seen: Observed, now: datetime) -> tuple[Pod, ...]:
    """The workers that have stayed long enough."""
    return tuple(pod for pod in useless_pods(seen) if _time_left(pod, now) <= timedelta())


def seconds_until_useless(seen: Observed, now: datetime) -> float | None:
    """When the next one may be deleted."""
    times = (_time_left(pod, now) for pod in useless_pods(seen))
    return min((left.total_seconds() for left in times if left > timedelta()), default=None)


def _time_left(pod: Pod, now: datetime) -> timedelta:
    created = parse_stamp(pod.created_at)
    return created + timedelta(seconds=USELESS_POD_GRACE_SECONDS) - now if created else timedelta()
