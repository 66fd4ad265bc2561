"""Pods whose loss breaks a job: they have failed, or the running job has lost them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.failure import failure_message, first_failures
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.pods import Failure, Pod, PodId
from job_controller.timing import CLOCK_SKEW_GRACE_SECONDS
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.crds.paddlejob import DISRUPTIONS, RestartScope
from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Loss:
    """A pod that no longer trains.

    Args:
        uid: the pod's.
        exit_code: None when no container has one.
        message: names the pod, and why.
        is_alone: the other pods go on. They have not met this one, or do not depend on it.
    """

    cause: Reason
    role: str
    uid: str
    exit_code: int | None
    message: str
    is_alone: bool = False


def find_losses(seen: Observed) -> tuple[Loss, ...]:
    """The pods that have failed first, several where it was in the same second, and the disruptions that may
    have made them fail; without a failed pod, the pods that are gone or going."""
    trains = trains_in(seen)
    failed = [
        pod for pod in seen.known_pods if pod.failure and trains(pod.id) and pod.id not in seen.succeeded
    ]
    missed = _missed(seen, trains)
    if not failed:
        return tuple(_gone(seen, place, uid) for place, uid in missed)
    first = [pod for pod, _ in first_failures(failed)]
    # A rank that depends on no other one failed by itself.
    others = [] if seen.job.scope is RestartScope.POD else missed
    uids = {pod.uid for pod in failed} | {uid for _, uid in others}
    disrupted = [pod for pod in seen.known_pods if pod.uid in uids and pod.disruption and pod not in first]
    began = min((at for pod in first if (at := pod.failed_at)), default=None)
    return tuple(_loss(seen, pod) for pod in (*first, *disrupted) if _may_cause(pod, began))


def _missed(seen: Observed, trains: Callable[[PodId], bool]) -> list[tuple[PodId, str]]:
    return [(place, uid) for place, uid in _missing(seen) if trains(place) and place not in seen.succeeded]


def _may_cause(pod: Pod, first_failure: datetime | None) -> bool:
    """Peers of a disrupted pod fail within seconds, and so before it has ended itself."""
    at = pod.failed_at if pod.failure else pod.deletion_asked_at
    return (
        at is None
        or first_failure is None
        or at <= first_failure + timedelta(seconds=CLOCK_SKEW_GRACE_SECONDS)
    )


def _loss(seen: Observed, pod: Pod) -> Loss:
    if pod.failure is None:
        return _gone(seen, pod.id, pod.uid)
    cause = _cause_of(seen, pod, pod.failure)
    message, is_alone = failure_message(pod.failure), cause in DISRUPTIONS and not seen.has_begun
    return Loss(cause, pod.id.role, pod.uid, pod.failure.exit_code, message, is_alone)


def _cause_of(seen: Observed, pod: Pod, failure: Failure) -> Reason:
    found = (cause for feature in seen.features if (cause := feature.cause_of(seen, pod, failure)))
    return next(found, failure.cause)


def trains_in(seen: Observed) -> Callable[[PodId], bool]:
    """Whether the pod of a place trains. While the spec is wrong, the pods that the status lists do so,
    without the workers that wait for room."""
    if not seen.job.problems:
        return seen.job.trains
    world = seen.status.world
    places = (place for place, _ in _recorded(seen, frozenset()))
    listed = frozenset(p for p in places if world is None or p.role != WORKER or p.ordinal < world.workers)
    return listed.__contains__


def places_of(seen: Observed, uids: Collection[str]) -> frozenset[PodId]:
    """Places of the pods with these uids, which live or were listed by the status."""
    known = ((pod.id, pod.uid) for pod in seen.known_pods)
    return frozenset(place for place, uid in (*known, *_recorded(seen, frozenset())) if uid in uids)


def _missing(seen: Observed) -> Iterator[tuple[PodId, str]]:
    """Pods that the status lists and that do not live, and pods that go before the status has listed them;
    without the pods that the job itself has given up."""
    living = {pod.uid for pod in seen.pods if not pod.terminating}
    listed = dict.fromkeys(_recorded(seen, frozenset(living.union(seen.status.replacing))))
    going = ((pod.id, pod.uid) for pod in seen.pods if pod.terminating and not pod.given_up)
    gone = ((pod.id, pod.uid) for pod in seen.gone)
    return iter(listed | dict.fromkeys(going) | dict.fromkeys(gone))


def _recorded(seen: Observed, but: frozenset[str]) -> Iterator[tuple[PodId, str]]:
    """Place and uid of the pods that the status lists, in their order, but of those with these uids."""
    for role, status in seen.status.roles.items():
        refs = (ref for ref in status.refs if ref.get("uid") not in but)
        named = ((names.pod_index(seen.job.key.name, role, ref["name"]), ref.get("uid", "")) for ref in refs)
        yield from ((PodId(role, index), uid) for index, uid in named if index is not None)


def _gone(seen: Observed, place: PodId, uid: str) -> Loss:
    pod = next((pod for pod in seen.known_pods if pod.uid == uid), None)
    cause = (pod.disruption if pod else None) or Reason.POD_DELETED
    message = f"pod {seen.job.pod_name(place)} {_HOW_LOST[cause]}"
    is_alone = seen.job.scope is RestartScope.POD or not seen.has_begun
    return Loss(cause, place.role, uid, None, message, is_alone)


_HOW_LOST = {
    Reason.POD_DELETED: "was deleted",
    Reason.EVICTED: "was evicted",
    Reason.PREEMPTED: "was preempted by a pod of higher priority",
    Reason.NODE_LOST: "was lost with its node",
    Reason.MOUNT_LOST: "has lost the mount of its data",
    Reason.REJECTED_BY_NODE: "was refused by its node",
}


# Kubelets restart containers in place when the template has a `restartPolicy` of its own. The pods of such a
# job do not fail, so its failure rules never apply. The restarts are counted instead, also after the pods are
# replaced.


def in_place_message(seen: Observed) -> str:
    """How often, and in which pod most; "" for no restart."""
    counts = {pod.name: pod.restarts for pod in _ranks_of(seen) if pod.restarts}
    if not counts:
        return ""
    most = max(counts, key=lambda name: counts[name])
    total = _times(sum(counts.values()))
    return f"kubelets restarted containers {total} in place, those of pod {most} {_times(counts[most])}"


def is_beyond_in_place_limit(seen: Observed) -> bool:
    """Restarts in place and those of pods count together."""
    limit, count = _in_place_limit(seen.job), sum(pod.restarts for pod in _ranks_of(seen))
    if limit is None or not count:
        return False
    return count + seen.status.budgets.get("backoffLimit", 0) > limit


def restarts_given_up(seen: Observed, only: Collection[str]) -> int:
    """Restarts in place of the pods that are replaced now: all, or those with these uids."""
    if _in_place_limit(seen.job) is None:
        return 0
    return sum(pod.restarts for pod in _ranks_of(seen) if not only or pod.uid in only)


def _in_place_limit(job: Job) -> int | None:
    """Elastic pods are restarted in place by design."""
    return None if job.elastic else job.spec.backoff_limit


def _ranks_of(seen: Observed) -> list[Pod]:
    return [pod for pod in seen.known_pods if seen.job.trains(pod.id)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
