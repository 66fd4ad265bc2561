"""How many workers train when there is no room for all: jobs shrink to what fits, and grow with the room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from job_controller.domain.model import Observed
from job_controller.domain.pods import ENDED, Pod, PodId, PodState
from job_controller.timing import GROWTH_INTERVAL_SECONDS, UNSCHEDULABLE_POD_GRACE_SECONDS
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp


@dataclass(frozen=True)
class Fit:
    """Another number of workers than those that train."""

    workers: int
    message: str


def find_fit(seen: Observed, now: datetime) -> Fit | None:
    """A new number of workers, between `worker.requests` and `worker.replicas`."""
    if not is_elastic(seen):
        return None
    return _shrunk(seen, now) or _grown(seen, now)


def is_elastic(seen: Observed) -> bool:
    """The job can train with fewer workers than it wants. Paddle's own elastic launcher counts by itself."""
    job = seen.job
    return job.least_workers < job.replicas_of(WORKER) and not job.elastic


def due_pods(seen: Observed, missing: tuple[PodId, ...], *, has_gate: bool) -> tuple[PodId, ...]:
    """Of the missing pods, those to be made now: workers beyond the world only once all others have a node,
    which they would take; and only behind a gate, since they are told of no world."""
    first = tuple(filter(seen.job.trains, missing))
    are_placed = not first and all(pod.node for pod in seen.world_pods)
    return missing if has_gate and are_placed else first


def useless_pods(seen: Observed) -> tuple[Pod, ...]:
    """Beyond the world, and ended before they were needed: others may find a better node."""
    beyond = (pod for pod in seen.wanted_pods if not seen.job.trains(pod.id))
    return tuple(pod for pod in beyond if pod.state in ENDED and not pod.terminating)


def next_fit(seen: Observed, now: datetime) -> float | None:
    """Seconds until time alone makes another number fit."""
    if not is_elastic(seen):
        return None
    times = (
        _due(pod.created_at, timedelta(seconds=UNSCHEDULABLE_POD_GRACE_SECONDS))
        for pod in _workers(seen)
        if _has_no_room(pod)
    )
    due = [at for at in (*times, _grows_at(seen)) if at is not None and at > now]
    return (min(due) - now).total_seconds() if due else None


def _shrunk(seen: Observed, now: datetime) -> Fit | None:
    """Before any has begun: some have waited long enough, and all others have a node."""
    if any(pod.began for pod in _workers(seen)) or seen.config_is_told:
        return None
    world = [pod for pod in _workers(seen) if seen.job.trains(pod.id)]
    waiting = [pod for pod in world if _has_no_room(pod)]
    placed = sum(bool(pod.node) for pod in world)
    is_settled = len(world) == seen.job.workers == placed + len(waiting)
    if not waiting or not is_settled or placed < seen.job.least_workers:
        return None
    if any(
        (due := _due(pod.created_at, timedelta(seconds=UNSCHEDULABLE_POD_GRACE_SECONDS))) is not None
        and due > now
        for pod in waiting
    ):
        return None
    why = waiting[0].hindrance.message if waiting[0].hindrance else ""
    return Fit(placed, f"{_room(seen, placed)}: {why}")


def _grown(seen: Observed, now: datetime) -> Fit | None:
    """Pods beyond the world have found a node, and wait there at their gate."""
    beyond = [pod for pod in _workers(seen) if not seen.job.trains(pod.id)]
    placed = seen.job.workers + sum(pod.state is PodState.STARTING for pod in beyond)
    grows_at = _grows_at(seen)
    if placed <= seen.job.workers or (grows_at is not None and grows_at > now):
        return None
    return Fit(placed, _room(seen, placed))


def _room(seen: Observed, placed: int) -> str:
    return f"there is room for {placed} of {seen.job.replicas_of(WORKER)} workers"


def _grows_at(seen: Observed) -> datetime | None:
    last = seen.status.last_restart
    return _due(last.time, timedelta(seconds=GROWTH_INTERVAL_SECONDS)) if last else None


def _workers(seen: Observed) -> list[Pod]:
    return [p for p in seen.wanted_pods if p.id.role == WORKER and not p.terminating]


def _has_no_room(pod: Pod) -> bool:
    is_unschedulable = pod.hindrance is not None and pod.hindrance.reason is Reason.UNSCHEDULABLE
    return pod.state is PodState.PENDING and not pod.node and is_unschedulable


def _due(since: str, after: timedelta) -> datetime | None:
    began = parse_stamp(since)
    return began + after if began else None
