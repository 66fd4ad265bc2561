"""Whether the mount of the data set was lost: for a pod that has failed, and for all nodes."""

from __future__ import annotations

from datetime import timedelta

from job_controller.core.model import Observed
from job_controller.core.parts import LostMount, SampleSet
from job_controller.core.pods import Failure, Pod
from job_controller.timing import CLOCK_SKEW_GRACE_SECONDS
from paddlewheel.contracts.reasons import Reason

_SAID = ("Transport endpoint is not connected", "Software caused connection abort")
"""Messages of a program whose file system has gone while it used it: ENOTCONN and ECONNABORTED."""


def cause_of(seen: Observed, pod: Pod, failure: Failure) -> Reason:
    """Why a pod has failed."""
    if seen.job.sample_set is None or failure.cause is not Reason.POD_FAILED:
        return failure.cause
    is_lost = any(said in failure.last_line for said in _SAID) or _failed_without(seen, pod)
    return Reason.MOUNT_LOST if is_lost else failure.cause


def _failed_without(seen: Observed, pod: Pod) -> bool:
    """It failed after its node had lost the mount."""
    lost, ended = mount_of(seen.sample_set, pod), pod.failed_at
    if lost is None:
        return False
    return (
        ended is None
        or lost.since is None
        or ended + timedelta(seconds=CLOCK_SKEW_GRACE_SECONDS) >= lost.since
    )


def mount_of(sample_set: SampleSet | None, pod: Pod) -> LostMount | None:
    """The mount that the pod's node has lost, None when it has the mount, or nothing is known."""
    return sample_set.lost_mounts.get(pod.node) if sample_set and pod.node else None


def is_nowhere(sample_set: SampleSet | None) -> bool:
    """No node has the data, and the nodes that should have it report so."""
    return sample_set is not None and bool(sample_set.lost_mounts) and not sample_set.mounted
