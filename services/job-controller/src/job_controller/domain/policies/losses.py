"""What breaks a job: a pod that has failed, or that the running job has lost."""

from __future__ import annotations

from dataclasses import dataclass

from job_controller.domain.model import Observed
from job_controller.domain.pods import PodId
from job_controller.domain.policies.failure import failure_message, first_failure
from paddlewheel.contracts.crds.paddlejob import RestartScope
from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Loss:
    """A pod that does not train any more.

    Args:
        uid: of the pod.
        exit_code: None when no container says one.
        message: names the pod, and why.
    """

    cause: Reason
    role: str
    uid: str
    exit_code: int | None
    message: str


def find_loss(seen: Observed) -> Loss | None:
    """The first pod that has failed; else, once pods may have met, one that is gone or going."""
    if failed := _first_failed(seen):
        return failed
    if seen.job.scope is RestartScope.POD or not seen.has_begun:
        # Its place is filled again, and the others go on.
        return None
    return _first_gone(seen)


def _first_failed(seen: Observed) -> Loss | None:
    failure = first_failure(seen.world_pods)
    if failure is None:
        return None
    pod = next(pod for pod in seen.world_pods if pod.failure == failure)
    return Loss(failure.cause, pod.id.role, pod.uid, failure.exit_code, failure_message(failure))


def _first_gone(seen: Observed) -> Loss | None:
    """Of the pods that the status has recorded, without those that had succeeded."""
    living = {pod.uid for pod in seen.pods if not pod.terminating}
    refs = (ref for role in seen.status.roles.values() for ref in role.refs)
    missing = {ref["name"]: ref.get("uid", "") for ref in refs if ref.get("uid") not in living}
    if not missing:
        return None
    lost = (place for place in seen.job.world if seen.job.pod_name(place) in missing)
    place = next((place for place in lost if place not in seen.succeeded), None)
    return _gone(seen, place, missing[seen.job.pod_name(place)]) if place else None


def _gone(seen: Observed, place: PodId, uid: str) -> Loss:
    pod = next((pod for pod in seen.pods if pod.uid == uid), None)
    cause = (pod.disruption if pod else None) or Reason.POD_DELETED
    return Loss(cause, place.role, uid, None, f"pod {seen.job.pod_name(place)} {_HOW_LOST[cause]}")


_HOW_LOST = {
    Reason.POD_DELETED: "was deleted",
    Reason.EVICTED: "was evicted",
    Reason.PREEMPTED: "was preempted by a pod of higher priority",
    Reason.NODE_LOST: "was lost with its node",
    Reason.REJECTED_BY_NODE: "was refused by its node",
}
