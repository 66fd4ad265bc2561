"""Pods that no scheduler looks at: it is not installed, does not run, or has another name.

A scheduler that is busy has many pods to look at, and places others meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from job_controller.timing import SCHEDULER_CHECK_GRACE_SECONDS, SCHEDULER_GRACE_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.hindrance import Hindrance


def with_unseen_pods(seen: Observed, now: datetime) -> Observed:
    """The same, with the name of the scheduler as what keeps these pods from running."""
    dues = {pod.uid: due for pod in seen.pods if (due := _due(seen, pod))}
    if not dues:
        return seen
    pods = (_hindered(pod) if pod.uid in dues and dues[pod.uid] <= now else pod for pod in seen.pods)
    checks = (check for pod in seen.pods if (check := _checked_at(seen, pod)))
    # No change wakes the job when the scheduler works again without a look at its pods.
    again = now + timedelta(seconds=SCHEDULER_GRACE_SECONDS)
    return replace(seen, pods=tuple(pods)).looking_at((*dues.values(), *checks, again), now)


def unseen_schedulers(seen: Observed, now: datetime) -> frozenset[str]:
    """Schedulers of which more has to be known soon."""
    unseen = ((pod, _checked_at(seen, pod)) for pod in seen.pods)
    return frozenset(pod.unseen_scheduler for pod, check in unseen if check and check <= now)


def _hindered(pod: Pod) -> Pod:
    waited = f"scheduler {pod.unseen_scheduler} has not looked at the pod for {SCHEDULER_GRACE_SECONDS:g} s"
    message = f"{waited}; start this scheduler, or correct schedulerName in the template"
    return replace(pod, hindrance=pod.hindrance or Hindrance(Reason.NO_SCHEDULER, message))


def _due(seen: Observed, pod: Pod) -> datetime | None:
    """When the scheduler has done nothing for too long."""
    since = _waits_since(seen, pod)
    if since is None:
        return None
    active = seen.schedulers.get(pod.unseen_scheduler, since)
    return max(since, active) + timedelta(seconds=SCHEDULER_GRACE_SECONDS)


def _checked_at(seen: Observed, pod: Pod) -> datetime | None:
    since = _waits_since(seen, pod)
    return since + timedelta(seconds=SCHEDULER_CHECK_GRACE_SECONDS) if since else None


def _waits_since(seen: Observed, pod: Pod) -> datetime | None:
    """None for a pod that waits for no scheduler. It is not known what schedulers did before this process
    looked at the pod."""
    created = parse_stamp(pod.created_at) if pod.unseen_scheduler and not pod.given_up else None
    return max(created, seen.unscheduled_since.get(pod.uid, created)) if created else None
