"""How many workers train when there is no room for all.

A job shrinks to the workers that have found room, and grows with the room. Each change restarts the job.
Between the end of the old pods and the start of the new ones, other pods may take the room. So a job grows
only when it can expect to get more than it gives up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.failure import failure_message
from job_controller.core.model import Observed
from job_controller.core.pods import ENDED, Pod, PodId, PodState
from job_controller.timing import (
    GROWTH_INTERVAL_SECONDS,
    GROWTH_PROOF_GRACE_SECONDS,
    LONGEST_GROWTH_INTERVAL_SECONDS,
    LONGEST_USELESS_POD_GRACE_SECONDS,
    POD_REMOVAL_GRACE_SECONDS,
    RESTART_LOSS_GRACE_SECONDS,
    ROOM_CHECK_INTERVAL_SECONDS,
    ROOM_YIELD_GRACE_SECONDS,
    UNSCHEDULABLE_POD_GRACE_SECONDS,
    USELESS_POD_GRACE_SECONDS,
)
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.crds.paddlejob import World
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp, seconds_stamp


@dataclass(frozen=True)
class Fit:
    """Another number of workers than the present one."""

    world: World
    message: str


def find_fit(seen: Observed, now: datetime) -> Fit | None:
    """A new number of workers, between `worker.requests` and `worker.replicas`."""
    if not seen.job.is_resizable:
        return None
    return _cut_off(seen, now) or _shrunk(seen, now) or _grown(seen, now)


def due_pods(
    seen: Observed, missing: tuple[PodId, ...], now: datetime, *, has_gate: bool
) -> tuple[PodId, ...]:
    """The missing pods that are to be made now.

    Workers beyond the world look for room. They are made only behind a gate, since no world includes them,
    while the job may grow and no other job needs the room.
    """
    first = tuple(filter(seen.job.trains, missing))
    are_placed = not first and all(pod.node for pod in seen.world_pods)
    if not (has_gate and are_placed) or _has_finished_rank(seen):
        return first
    if _is_growth_early(seen, now) or _is_room_needed(seen):
        return ()
    # A former pod on a lost node keeps its name, and so the world below its rank.
    end = _first_held(seen)
    return tuple(place for place in missing if place.ordinal < end)


def with_useless_pods(seen: Observed, now: datetime) -> Observed:
    """The same, with the pods beyond the world that go now. Each stays for a while after its creation."""
    found = [pod for pod in seen.wanted_pods if not seen.job.trains(pod.id) and _is_useless(seen, pod)]
    dues = {pod.uid: _due(pod.created_at, _useless_grace(seen, pod)) or now for pod in found}
    useless = tuple(pod for pod in found if dues[pod.uid] <= now)
    return replace(seen, useless=useless).looking_at(dues.values(), now) if found else seen


def _useless_grace(seen: Observed, pod: Pod) -> timedelta:
    """A node that refuses a pod would refuse the next one, too. So a refused pod keeps its place for as long
    as its job has trained without it, and the intervals between such pods double."""
    least = timedelta(seconds=USELESS_POD_GRACE_SECONDS)
    world, created = seen.job.fitting_world, parse_stamp(pod.created_at)
    since = parse_stamp(world.since) if world else None
    if pod.state not in ENDED or created is None or since is None:
        return least
    return min(max(least, created - since), timedelta(seconds=LONGEST_USELESS_POD_GRACE_SECONDS))


def refused_growth(seen: Observed) -> str:
    """Why a worker beyond the world did not start on its node; "" for none."""
    beyond = [pod for pod in seen.wanted_pods if not seen.job.trains(pod.id)]
    refused = next((pod.failure for pod in beyond if pod.failure), None)
    size = f"{seen.job.workers} of {seen.job.replicas_of(WORKER)} workers train"
    if refused is not None:
        return f"{size}: {failure_message(refused)}"
    running = find(seen.status.conditions, names.CONDITION_RUNNING)
    is_known = running is not None and running.message.startswith(f"{size}: ")
    # The next pod is made to try again: the message stays until it starts.
    has_started = any(pod.state is PodState.STARTING for pod in beyond)
    return running.message if running is not None and is_known and not has_started else ""


def _is_useless(seen: Observed, pod: Pod) -> bool:
    """It has ended, or looks for room that another job needs, or is idle in such room."""
    if pod.terminating:
        return False
    return pod.state in ENDED or seen.rivals.refused or (not pod.node and _is_room_needed(seen))


def _has_finished_rank(seen: Observed) -> bool:
    """A rank has succeeded: the job ends soon, and a restart would train that rank again."""
    return any(map(seen.job.trains, seen.succeeded))


def _is_room_needed(seen: Observed) -> bool:
    """Another job needs it: pods that only look for room give way."""
    return seen.rivals.need or seen.rivals.grow


def next_fit(seen: Observed, now: datetime) -> float | None:
    """Seconds until time alone makes another number fit, or until the other jobs should be looked at."""
    if not seen.job.is_resizable:
        return None
    beyond = [pod for pod in _workers(seen) if not seen.job.trains(pod.id)]
    pays_at = _pays_at(seen, beyond)
    yields_until = pays_at + timedelta(seconds=ROOM_YIELD_GRACE_SECONDS) if pays_at else None
    times = [
        *_held_until(seen),
        *_shrinks_at(seen),
        _grows_at(seen),
        pays_at,
        yields_until,
        _refused_until(seen),
    ]
    looks = {(at - now).total_seconds() for at in times if at is not None and at > now}
    if seen.job.workers < seen.job.replicas_of(WORKER):
        looks.add(ROOM_CHECK_INTERVAL_SECONDS)
    return min(looks, default=None)


def _cut_off(seen: Observed, now: datetime) -> Fit | None:
    """A deleted pod does not end, since its node is lost. The ranks below train without it."""
    if seen.pods and seen.has_begun:
        return None
    held = held_pods(seen)
    if not held or not all(pod.id.role == WORKER and _is_left_behind(pod, now) for pod in held):
        return None
    lowest = held[0]
    # The pod with the next rank may go in a moment, too.
    if lowest.id.ordinal < seen.job.least_workers or any(at > now for at in _held_until(seen)):
        return None
    return _resized(seen, lowest.id.ordinal, now, f"pod {lowest.name} does not end on node {lowest.node}")


def held_pods(seen: Observed) -> list[Pod]:
    """Deleted pods that have not ended, by their ranks."""
    going = (*seen.old_pods, *(pod for pod in seen.pods if pod.terminating))
    return sorted((pod for pod in going if seen.job.trains(pod.id)), key=lambda pod: pod.id)


def _held_until(seen: Observed) -> Iterator[datetime]:
    """The time until which the pods of further ranks may be removed as well."""
    return (since + timedelta(seconds=POD_REMOVAL_GRACE_SECONDS) for since in seen.held_since.values())


def _is_left_behind(pod: Pod, now: datetime) -> bool:
    """Its node does not confirm the end of the pod in time, as a node that is lost."""
    due = pod.overdue_at
    return pod.terminating and due is not None and due <= now


def _shrunk(seen: Observed, now: datetime) -> Fit | None:
    """Before any has begun: some have waited long enough, and all others have a node."""
    if any(pod.began for pod in _workers(seen)) or seen.config_is_told or seen.must_wait:
        return None
    world = [pod for pod in _workers(seen) if seen.job.trains(pod.id)]
    waiting = [pod for pod in world if _has_no_room(pod)]
    refused = seen.job.workers - len(world)
    placed = sum(bool(pod.node) for pod in world)
    is_settled = len(world) == placed + len(waiting) and (not refused or _refusal(seen) is not None)
    if not (waiting or refused) or not is_settled or placed < seen.job.least_workers:
        return None
    if any(at is not None and at > now for at in (*_shrinks_at(seen), _refused_until(seen))):
        return None
    hindrance = next((pod.hindrance for pod in waiting), None)
    why = hindrance.message if hindrance else _refusal(seen) or ""
    return _resized(seen, placed, now, why)


def _shrinks_at(seen: Observed) -> Iterator[datetime | None]:
    """When each worker that finds no room has waited long enough."""
    grace = timedelta(seconds=UNSCHEDULABLE_POD_GRACE_SECONDS)
    return (_due(pod.created_at, grace) for pod in _workers(seen) if _has_no_room(pod))


def _refusal(seen: Observed) -> str | None:
    """Why the API server refuses to create pods, as with a quota; None when it does not."""
    blocked = find(seen.status.conditions, names.CONDITION_BLOCKED)
    is_refused = blocked is not None and (blocked.status, blocked.reason) == ("True", Reason.FAILED_CREATE)
    if blocked is None or not is_refused or not blocked.message.startswith(f"{names.POD} "):
        return None
    return blocked.message if ": Forbidden: " in blocked.message else None


def _refused_until(seen: Observed) -> datetime | None:
    """How long a refusal may last before the job trains with the pods that it has."""
    blocked = find(seen.status.conditions, names.CONDITION_BLOCKED)
    if blocked is None or _refusal(seen) is None:
        return None
    return _due(blocked.last_transition_time, timedelta(seconds=UNSCHEDULABLE_POD_GRACE_SECONDS))


def _grown(seen: Observed, now: datetime) -> Fit | None:
    """Pods beyond the world have found a node, wait there at their gate, and are worth the restart."""
    beyond = [pod for pod in _workers(seen) if not seen.job.trains(pod.id)]
    ready = [pod for pod in beyond if pod.state is PodState.STARTING]
    pays_at = _pays_at(seen, beyond)
    if not ready or pays_at is None or pays_at > now or _is_growth_early(seen, now):
        return None
    if _has_finished_rank(seen):
        return None
    # The other jobs' pods that only look for room go first: they would take what the restart gives up.
    has_waited = now >= pays_at + timedelta(seconds=ROOM_YIELD_GRACE_SECONDS)
    if (seen.rivals.need or seen.rivals.look) and not has_waited:
        return None
    return _resized(seen, seen.job.workers + len(ready), now)


def _pays_at(seen: Observed, beyond: Iterable[Pod]) -> datetime | None:
    """When the workers at the gate have lost as much work as a restart costs the others.

    To wait as long as that costs at most twice what the best choice would, however long the job goes on. It
    also makes one restart of several nodes that come one after the other.
    """
    since = [at for pod in beyond if pod.state is PodState.STARTING and (at := _placed_at(pod))]
    if not since:
        return None
    cost = timedelta(seconds=RESTART_LOSS_GRACE_SECONDS) * seen.job.workers
    start = min(since)
    lag = sum(((at - start) for at in since), timedelta())
    return start + (cost + lag) / len(since)


def _placed_at(pod: Pod) -> datetime | None:
    return parse_stamp(pod.started_at) or parse_stamp(pod.created_at)


def _is_growth_early(seen: Observed, now: datetime) -> bool:
    at = _grows_at(seen)
    return at is not None and at > now


def _grows_at(seen: Observed) -> datetime | None:
    """The earliest time of the next growth: the wait doubles with each growth that was lost again."""
    last, world = seen.status.last_restart, seen.job.fitting_world
    if last is None:
        return None
    doublings = min(world.lost_growths if world else 0, _DOUBLINGS)
    wait = timedelta(seconds=GROWTH_INTERVAL_SECONDS) * (1 << doublings)
    return _due(last.time, min(wait, timedelta(seconds=LONGEST_GROWTH_INTERVAL_SECONDS)))


_DOUBLINGS = 10


def _resized(seen: Observed, workers: int, now: datetime, why: str = "") -> Fit:
    wanted, before = seen.job.replicas_of(WORKER), seen.job.fitting_world
    has_grown = workers > seen.job.workers
    world = World(
        workers=workers,
        of=wanted,
        since=seconds_stamp(now),
        grew_from=seen.job.workers if has_grown else 0,
        lost_growths=_lost_growths(before, now, shrinks=not has_grown),
    )
    room = f"there is room for {workers} of {wanted} workers"
    return Fit(world, f"{room}: {why}" if why else room)


def _lost_growths(before: World | None, now: datetime, *, shrinks: bool) -> int:
    """Growths in a row that were followed by a shrink."""
    if before is None:
        return 0
    lost = int(before.lost_growths)
    proven = _due(before.since, timedelta(seconds=GROWTH_PROOF_GRACE_SECONDS))
    if before.grew_from and proven is not None and proven <= now:
        return 0
    return lost + 1 if shrinks and before.grew_from else lost


def _first_held(seen: Observed) -> int:
    """The lowest rank whose name a pod of a former epoch holds."""
    held = (pod.id.ordinal for pod in seen.old_pods if pod.id.role == WORKER)
    return min(held, default=seen.job.replicas_of(WORKER))


def _workers(seen: Observed) -> list[Pod]:
    return [p for p in seen.wanted_pods if p.id.role == WORKER and not p.terminating]


def _has_no_room(pod: Pod) -> bool:
    is_unschedulable = pod.hindrance is not None and pod.hindrance.reason is Reason.UNSCHEDULABLE
    return pod.state is PodState.PENDING and not pod.node and is_unschedulable


def _due(since: str, after: timedelta) -> datetime | None:
    began = parse_stamp(since)
    return began + after if began else None
