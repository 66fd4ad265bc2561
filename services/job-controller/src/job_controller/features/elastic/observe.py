"""Looks at pods of other jobs on the nodes that a job might grow on, and at ranks that deleted pods hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.parse import ParseJob
from job_controller.core.parse_pod import is_scheduled
from job_controller.core.parts import Rivals
from job_controller.core.pods import Pod, PodState
from job_controller.features.elastic.rules import held_pods
from job_controller.reading import Reader
from job_controller.sightings import Sightings
from job_controller.timing import NEED_GRACE_SECONDS, RIVAL_GROWTH_GRACE_SECONDS
from job_controller.watch import BY_ROOM, JOB, RESTARTING, SMALL, WAITING, owner_of
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import status_of
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.clock import Clock
from paddlewheel.kube.objects import controller_uid, uid_of
from paddlewheel.kube.ports import Change, Object
from paddlewheel.operator.watch import Watch


class RoomOfOthers(Reader):
    """The use of room by all jobs is found again after each change."""

    def __init__(
        self, watch: Watch, clock: Clock, parse: ParseJob, pods_of: Callable[[Job], Iterable[Pod]]
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._parse = parse
        self._pods_of = pods_of
        self._room: _Room | None = None
        """None after a change."""

    def heard(self, kind: str, change: Change) -> None:
        self._room = None

    def cached(self, seen: Observed) -> Observed:
        job = seen.job
        is_small = job.is_resizable and job.workers < job.replicas_of(WORKER) and not job.status.final
        return replace(seen, rivals=self._rivals(job)) if is_small else seen

    def _rivals(self, own: Job) -> Rivals:
        """The pods of other jobs on the nodes that this one might grow on."""
        if self._room is None:
            self._room = self._find_room()
        room, now = self._room, self._clock.now()
        needed_since = now - timedelta(seconds=NEED_GRACE_SECONDS)
        grows_since = now - timedelta(seconds=RIVAL_GROWTH_GRACE_SECONDS)
        return Rivals(
            need=any(at > needed_since for job, at in room.needs if job != own.uid),
            refused=any(at > needed_since for job, at in room.refusals if job != own.uid),
            grow=any(at > grows_since for job, at in room.growths if job != own.uid),
            look=bool(room.looking - {own.uid}),
        )

    def _find_room(self) -> _Room:
        small = [job for obj in self._in_state(JOB, SMALL) if (job := self._parse(obj)) is not None]
        beyond = [(job.uid, pod) for job in small for pod in self._pods_of(job) if not job.trains(pod.id)]
        looking = {pod.uid: job for job, pod in beyond if not pod.node and not pod.terminating}
        # Users can create pods with our labels, which must not keep jobs from growing.
        homeless = [
            pod
            for pod in self._in_state(names.POD, WAITING)
            if uid_of(pod) not in looking and self._has_job(pod)
        ]
        waiting = [_need(pod) for pod in homeless]
        refusals = [_need(pod) for pod in homeless if is_scheduled(pod)]
        restarts = [
            (uid_of(obj), (status_of(obj).get("lastRestart") or {}).get("time"))
            for obj in self._in_state(JOB, RESTARTING)
        ]
        growths = [
            (job, pod.started_at or pod.created_at) for job, pod in beyond if pod.state is PodState.STARTING
        ]
        needs, searches = _with_times((*waiting, *restarts)), frozenset(looking.values())
        return _Room(needs, _with_times(refusals), _with_times(growths), searches)

    def _in_state(self, kind: str, state: str) -> Sequence[Object]:
        return self._watch.of(kind).by_index(BY_ROOM, state)

    def _has_job(self, pod: Object) -> bool:
        owner = owner_of(pod)
        job = None if owner is None else self._watch.of(JOB).get(owner)
        return job is not None and controller_uid(pod) == [uid_of(job)]


class HeldRanks(Reader):
    """Remembers since when a deleted pod holds the lowest rank. After a restart, this time begins again."""

    def __init__(self, clock: Clock) -> None:
        self._since = Sightings(clock)

    def cached(self, seen: Observed) -> Observed:
        pods = held_pods(seen) if not seen.status.final else ()
        lowest = {pod.uid for pod in pods[:1]}
        return replace(seen, held_since=self._since.of(seen.job.uid, lowest))

    def forget(self, key: Key, job_uid: str) -> None:
        self._since.forget(job_uid)


@dataclass(frozen=True)
class _Room:
    """The use of room on the nodes by the pods of all jobs.

    Args:
        needs: jobs with pods that train and have no node, and jobs between two epochs, with the time.
        refusals: such jobs with pods for which a scheduler has found no node.
        growths: jobs with a worker that has found a node beyond the others, with the time.
        looking: jobs with workers that look for a node beyond the others.
    """

    needs: tuple[tuple[str, datetime], ...]
    refusals: tuple[tuple[str, datetime], ...]
    growths: tuple[tuple[str, datetime], ...]
    looking: frozenset[str]


def _need(pod: Object) -> tuple[str, str | None]:
    return "".join(controller_uid(pod)), pod["metadata"].get("creationTimestamp")


def _with_times(found: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, datetime], ...]:
    return tuple((job, at) for job, text in found if (at := parse_stamp(text)) is not None)
