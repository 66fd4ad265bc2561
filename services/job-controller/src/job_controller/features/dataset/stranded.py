"""Ranks that run on a node which has lost the mount of their data set.

A mount that comes back is there again for pods that run, too. So a rank is given some time, and goes on when
it survives; more of it where the mount was ended on purpose, to come back as soon as a new pod has its image.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.core.losses import Loss
from job_controller.core.model import Observed
from job_controller.core.parts import LostMount
from job_controller.core.pods import Pod
from job_controller.features.dataset.mounts import mount_of
from job_controller.timing import (
    MOUNT_REPLACEMENT_GRACE_SECONDS,
    MOUNT_RETURN_GRACE_SECONDS,
    UNWELL_SET_CHECK_INTERVAL_SECONDS,
)
from paddlewheel.contracts.reasons import Reason


def find_stranded(seen: Observed, now: datetime) -> tuple[Loss, ...]:
    """Ranks that run on nodes whose mount has not come back in time."""
    return tuple(_loss(seen, pod, lost) for pod, lost in _affected(seen) if _left(lost, now) <= timedelta())


def seconds_until_stranded(seen: Observed, now: datetime) -> float | None:
    """Seconds until the next check, None while all is well."""
    if seen.sample_set is None or seen.sample_set.is_well or not seen.pods:
        return None
    waits = [left.total_seconds() for _, lost in _affected(seen) if (left := _left(lost, now)) > timedelta()]
    return min((*waits, UNWELL_SET_CHECK_INTERVAL_SECONDS))


def _affected(seen: Observed) -> list[tuple[Pod, LostMount]]:
    running = (pod for pod in seen.world_pods if pod.began and not pod.terminating and not pod.given_up)
    found = ((pod, mount_of(seen.sample_set, pod)) for pod in running if pod.id not in seen.succeeded)
    return [(pod, lost) for pod, lost in found if lost is not None]


def _left(lost: LostMount, now: datetime) -> timedelta:
    patience = (
        timedelta(seconds=MOUNT_REPLACEMENT_GRACE_SECONDS)
        if lost.reason == Reason.STOPPED
        else timedelta(seconds=MOUNT_RETURN_GRACE_SECONDS)
    )
    return lost.since + patience - now if lost.since else timedelta()


def _loss(seen: Observed, pod: Pod, lost: LostMount) -> Loss:
    why = f": {lost.message}" if lost.message else ""
    message = f"pod {pod.name} runs on node {pod.node}, which has lost the mount of SampleSet"
    return Loss(Reason.MOUNT_LOST, pod.id.role, pod.uid, None, f"{message} {seen.job.sample_set}{why}")
