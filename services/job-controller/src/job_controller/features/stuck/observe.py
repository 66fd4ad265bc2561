"""Reads why pods do not start: Kubernetes Events about them, and whether their schedulers work."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.parse_pod import is_scheduled, unseen_scheduler
from job_controller.core.pods import DEFAULT_SCHEDULER, Pod
from job_controller.features.stuck.no_scheduler import unseen_schedulers
from job_controller.features.stuck.unprepared import find_cause, unprepared_pod, with_hindrance
from job_controller.leases import Leases
from job_controller.reading import Reader
from job_controller.sightings import Sightings
from job_controller.timing import (
    EVENTS_READ_INTERVAL_SECONDS,
    SCHEDULER_LEASE_GAP_TIMEOUT_SECONDS,
    SCHEDULER_LEASE_READ_INTERVAL_SECONDS,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import EVENTS, Change, Cluster
from paddlewheel.operator.domain.hindrance import Hindrance

EVENTS_AT_ONCE = 4
"""Pods of all jobs whose Events are read at the same time."""


@dataclass(frozen=True)
class _Answer:
    """The cause in the Events about a pod. `until`: on the monotonic clock."""

    uid: str
    until: float
    hindrance: Hindrance | None


class PodEvents(Reader):
    """The last answer for each job. After a restart, the Events are read again."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked: dict[Key, _Answer] = {}
        self._slots = asyncio.Semaphore(EVENTS_AT_ONCE)

    async def read(self, seen: Observed) -> Observed:
        """The same with the cause in the Events about a pod that waits too long for volumes or network."""
        pod = unprepared_pod(seen, self._clock.now())
        if pod is None:
            self._asked.pop(seen.job.key, None)
            return seen
        answer = self._asked.get(seen.job.key)
        if answer is None or answer.uid != pod.uid or answer.until <= self._clock.monotonic():
            answer = await self._ask(seen.job.key.namespace, pod)
            self._asked[seen.job.key] = answer
        return with_hindrance(seen, pod, answer.hindrance) if answer.hindrance else seen

    async def _ask(self, namespace: str, pod: Pod) -> _Answer:
        about, hindrance = f"involvedObject.uid={pod.uid},type=Warning", None
        # Without an answer nothing is known, and it is asked again.
        with suppress(Retry, Permanent):
            async with self._slots:
                found = await self._cluster.list(EVENTS, namespace, field_selector=about)
            hindrance = find_cause(found)
        return _Answer(pod.uid, self._clock.monotonic() + EVENTS_READ_INTERVAL_SECONDS, hindrance)

    def forget(self, key: Key, job_uid: str) -> None:
        self._asked.pop(key, None)


_LEASES = {DEFAULT_SCHEDULER: Key("kube-system", "kube-scheduler")}
"""Leases that schedulers hold, where their names are known."""


class Schedulers(Reader):
    """When each scheduler was last seen at work: it has looked at a pod, or has renewed its Lease.

    After a restart nothing is known of what a scheduler did before, so each pod has its whole grace period
    again.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._clock = clock
        self._leases = Leases(
            cluster,
            clock,
            interval=SCHEDULER_LEASE_READ_INTERVAL_SECONDS,
            longest_gap=SCHEDULER_LEASE_GAP_TIMEOUT_SECONDS,
        )
        self._waiting: dict[str, str] = {}
        """Schedulers of the pods that wait for them, by the pod's uid."""
        self._active_at: dict[str, float] = {}
        self._unscheduled = Sightings(clock)

    def heard(self, kind: str, change: Change) -> None:
        if kind != names.POD:
            return
        uid, pod = uid_of(change.obj), change.obj
        scheduler = self._waiting.pop(uid, "")
        if scheduler and is_scheduled(pod):
            self._active_at[scheduler] = self._clock.monotonic()
        elif change.type != "DELETED" and (waits_for := unseen_scheduler(pod)):
            self._waiting[uid] = waits_for

    async def read(self, seen: Observed) -> Observed:
        """The same, with what is known of the schedulers that its pods wait for."""
        waiting = {pod.uid for pod in seen.pods if pod.unseen_scheduler}
        seen = replace(seen, unscheduled_since=self._unscheduled.of(seen.job.uid, waiting))
        wall, now = self._clock.now(), self._clock.monotonic()
        unseen = unseen_schedulers(seen, wall)
        leases = {name: key for name, key in _LEASES.items() if name in unseen}
        await self._leases.read(leases.values())
        for name, key in leases.items():
            lease = self._leases.get(key)
            if lease is not None and lease.is_readable:
                # It may have been renewed just before the first read with this content.
                self._active_at[name] = max(lease.since, self._active_at.get(name, 0.0))
        active = {name: at for name, at in self._active_at.items() if name in unseen}
        return replace(
            seen, schedulers={name: wall - timedelta(seconds=now - at) for name, at in active.items()}
        )

    def forget(self, key: Key, job_uid: str) -> None:
        self._unscheduled.forget(job_uid)
