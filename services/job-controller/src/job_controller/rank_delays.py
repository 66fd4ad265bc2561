"""How long pods wait that are made again each by itself, by place: kept in memory, as a kubelet does.

A restart of this service makes such pods at once, and so does a change by the user, who may have fixed the
cause. A change also ends the wait of a whole epoch, which the status holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.losses import places_of
from job_controller.core.model import Observed
from job_controller.core.parts import Delay
from job_controller.core.pods import PodId
from job_controller.core.verdict import restart_delay
from job_controller.reading import Reader
from job_controller.timing import RESTART_RESET_GRACE_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock


class _Asked(NamedTuple):
    """The user's wish: generation of the job's spec, and its annotation `restart`."""

    generation: int
    restart: str


@dataclass(frozen=True)
class _Losses:
    """Losses of a place in a row, while the user asked for the same; `at`: the last one, on the monotonic
    clock."""

    count: int
    at: float
    why: str
    asked: _Asked

    @property
    def until(self) -> float:
        return self.at + restart_delay(self.count).total_seconds()


class RankDelays(Reader):
    """The losses of each place of each job, until the job is gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses: defaultdict[str, dict[PodId, _Losses]] = defaultdict(dict)
        self._asked: dict[str, _Asked] = {}
        """By uid of the job, when its last restart was recorded."""

    def cached(self, seen: Observed) -> Observed:
        job = seen.job
        return replace(
            seen, delays=self.of(job), was_changed_since_restart=self.was_changed_since_restart(job)
        )

    def of(self, job: Job) -> Mapping[PodId, Delay]:
        """The delays that are not over."""
        now, wall = self._clock.monotonic(), self._clock.now()
        found = self._losses.get(job.uid, {})
        return {
            place: Delay(wall + timedelta(seconds=losses.until - now), losses.why)
            for place, losses in found.items()
            if losses.until > now and losses.asked == _asked(job)
        }

    def was_changed_since_restart(self, job: Job) -> bool:
        """The user has changed the job since its last restart."""
        return self._asked.get(job.uid, _asked(job)) != _asked(job)

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        if status.restarts == seen.status.restarts:
            return
        self._asked[seen.job.uid] = _asked(seen.job)
        if status.epoch != seen.status.epoch:
            return
        why = status.last_restart.message if status.last_restart else ""
        lost = set(status.replacing) - set(seen.status.replacing)
        known, asked = self._losses[seen.job.uid], _asked(seen.job)
        for place in places_of(seen, lost):
            known[place] = self._counted(known.get(place), why, asked)

    def forget(self, key: Key, job_uid: str) -> None:
        self._losses.pop(job_uid, None)
        self._asked.pop(job_uid, None)

    def _counted(self, before: _Losses | None, why: str, asked: _Asked) -> _Losses:
        now = self._clock.monotonic()
        if before is None or before.asked != asked or now >= before.until + RESTART_RESET_GRACE_SECONDS:
            return _Losses(1, now, why, asked)
        return _Losses(before.count + 1, now, why, asked)


def _asked(job: Job) -> _Asked:
    return _Asked(job.generation, job.restart_request)
