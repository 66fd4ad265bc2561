"""When each scheduler was last seen at work: it has looked at a pod, or has renewed its Lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.pods import DEFAULT_SCHEDULER, is_scheduled, unseen_scheduler
from job_controller.features.stuck.no_scheduler import unseen_schedulers
from job_controller.leases import Leases
from job_controller.sightings import Sightings
from job_controller.timing import SCHEDULER_LEASE_GAP_TIMEOUT_SECONDS, SCHEDULER_LEASE_READ_INTERVAL_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Change, Cluster

_LEASES = {DEFAULT_SCHEDULER: Key("kube-system", "kube-scheduler")}
"""Leases that schedulers hold, where their names are known."""


class Schedulers:
    """By the pods of all jobs, and by Leases while a pod waits for its scheduler."""

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
        """A watched object was added, modified or deleted."""
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

    def forget(self, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
        self._unscheduled.forget(job_uid)
