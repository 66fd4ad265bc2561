"""The live replicas of a service. Each replica renews its own Lease and watches the Leases of all replicas.

A replica that is killed cannot release its Lease. The other replicas remove it from the members
LEASE_TIMEOUT_SECONDS after its last renewal, plus the latency of the watch. With 10 s, takeover takes less
than 15 s, and two renewals in a row may fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from paddlewheel.contracts.keys import Key
from paddlewheel.core.alarm import Alarm
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, PaddlewheelError
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import LEASES, Change, Cluster, Object, Watches

RENEW_INTERVAL_SECONDS = 3.0
"""Interval between two renewals."""
RENEW_TIMEOUT_SECONDS = 2 * RENEW_INTERVAL_SECONDS
"""Maximum duration of one renewal."""
LEASE_TIMEOUT_SECONDS = 10.0
"""Time without a renewal after which a replica counts as dead."""
PRUNE_GRACE_SECONDS = 300.0
"""Time without a renewal after which the other replicas delete the Lease."""
LABEL = "paddlepaddle.org/replica-of"
RELEASE_TIMEOUT_SECONDS = 2.0

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class _Sighting:
    """The last report of the watch about one Lease.

    Times are those of our own monotonic clock, because the wall clocks of other replicas may be wrong.

    Args:
        renewed_at: when the watch reported the last renewal. For a renewal before the watch started, the
            estimated time.
        seen_at: when the watch reported the last renewal, never before the watch started.
    """

    holder: str
    uid: str
    renew_time: str
    renewed_at: float
    seen_at: float


class LeaseMembership:
    """The Lease of this replica, and the watch of the Leases of all replicas.

    Args:
        namespace: the namespace of the service.
        service: the name of the service. A Lease is called `<service>-<me>` and has a label with the service.
        me: the name of this replica (the pod's name). It must be unique among the live replicas.
    """

    def __init__(
        self, cluster: Cluster, watches: Watches, namespace: str, service: str, me: str, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._key = Key(namespace, f"{service}-{me}")
        self._service = service
        self._me = me
        self._clock = clock
        self._leases = Informer(watches, LEASES, namespace, clock=clock, label_selector=f"{LABEL}={service}")
        self._sightings: dict[Key, _Sighting] = {}
        self._renewed_at = float("-inf")
        self._members: frozenset[str] = frozenset()
        self._expiry = Alarm(clock)
        self._renewal = Alarm(clock)

    def members(self) -> frozenset[str]:
        """Names of the live replicas. This replica is not among them while its own Lease is expired."""
        return self._members if self._is_renewed() else self._members - {self._me}

    async def run(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Renew and watch forever. `on_change` is called when the members have changed.

        Only cancellation ends this method. It then releases the Lease, so that others take over at once.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._leases.run(self._see))
                await self._leases.wait_synced()
                group.create_task(self._renew_forever())
                group.create_task(self._prune_forever())
                await self._update_forever(on_change)
        finally:
            await self._release()

    async def _renew_forever(self) -> None:
        while True:
            started = self._clock.monotonic()
            await self._renew(started)
            await self._renewal.wait(started + RENEW_INTERVAL_SECONDS)

    async def _renew(self, started: float) -> None:
        """Renew the Lease. A failure is logged; if renewals keep failing, the Lease expires."""
        try:
            async with asyncio.timeout(RENEW_TIMEOUT_SECONDS):
                await self._write(self._lease())
        except (PaddlewheelError, TimeoutError) as error:
            log.warning("lease not renewed", lease=str(self._key), error=repr(error))
            return
        if not self._is_renewed():
            # The Lease had expired, perhaps unnoticed. Remove this replica, so that its return is a change.
            self._members -= {self._me}
        self._renewed_at = started
        self._expiry.ring()

    async def _write(self, lease: Object) -> None:
        try:
            await self._cluster.patch(LEASES, self._key, lease)
        except NotFound:
            await self._cluster.create(LEASES, lease)

    def _lease(self) -> Object:
        return {
            "metadata": {
                "namespace": self._key.namespace,
                "name": self._key.name,
                "labels": {LABEL: self._service},
            },
            "spec": {
                "holderIdentity": self._me,
                "leaseDurationSeconds": int(LEASE_TIMEOUT_SECONDS),
                "renewTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    def _see(self, change: Change) -> None:
        key = key_of(change.obj)
        if change.type == "DELETED":
            self._sightings.pop(key, None)
            if key == self._key:
                self._renewal.ring()
        else:
            self._sightings[key] = self._sighting(self._sightings.get(key), change)
        self._expiry.ring()

    def _sighting(self, seen: _Sighting | None, change: Change) -> _Sighting:
        holder, uid = str(_spec(change.obj).get("holderIdentity") or ""), uid_of(change.obj)
        renew_time = _renew_time(change.obj)
        if seen and (seen.uid, seen.renew_time) == (uid, renew_time):
            return replace(seen, holder=holder)
        now = self._clock.monotonic()
        # A Lease that exists when the watch begins may belong to a dead replica.
        age = self._age(renew_time) if seen is None and change.listed else 0.0
        return _Sighting(holder, uid, renew_time, renewed_at=now - age, seen_at=now)

    def _age(self, renew_time: str) -> float:
        """Seconds since a renewal before the watch started, estimated by the wall clock."""
        try:
            return max(0.0, (self._clock.now() - datetime.fromisoformat(renew_time)).total_seconds())
        except (ValueError, TypeError):
            return LEASE_TIMEOUT_SECONDS

    async def _update_forever(self, on_change: Callable[[], None]) -> None:
        """Compute the members after every change, and when the next Lease expires."""
        while True:
            self._update(on_change)
            await self._expiry.wait(self._next_expiry())

    def _update(self, on_change: Callable[[], None]) -> None:
        alive = {s.holder for s in self._sightings.values() if s.holder and self._is_fresh(s.renewed_at)}
        # This replica is alive only if its own renewal and the watch both confirm it.
        members = frozenset(alive if self._is_renewed() else alive - {self._me})
        if members == self._members:
            return
        log.info("members changed", service=self._service, members=sorted(members))
        self._members = members
        on_change()

    def _next_expiry(self) -> float | None:
        renewals = [self._renewed_at, *(sighting.renewed_at for sighting in self._sightings.values())]
        return min((at + LEASE_TIMEOUT_SECONDS for at in renewals if self._is_fresh(at)), default=None)

    def _is_fresh(self, renewed_at: float) -> bool:
        return self._clock.monotonic() < renewed_at + LEASE_TIMEOUT_SECONDS

    def _is_renewed(self) -> bool:
        return self._is_fresh(self._renewed_at)

    async def _prune_forever(self) -> None:
        """Delete Leases of killed replicas, forever. They would pile up, because new pods have new names."""
        while True:
            await self._clock.sleep(PRUNE_GRACE_SECONDS / 5)
            now = self._clock.monotonic()
            for key, sighting in [*self._sightings.items()]:
                if key != self._key and now - sighting.seen_at >= PRUNE_GRACE_SECONDS:
                    await self._prune(key, sighting)

    async def _prune(self, key: Key, sighting: _Sighting) -> None:
        """Delete the Lease, unless a read shows a renewal that the watch has missed."""
        try:
            lease = await self._cluster.get(LEASES, key)
            if _renew_time(lease) == sighting.renew_time:
                await self._cluster.delete(LEASES, key, uid=sighting.uid)
        except NotFound:
            return
        except PaddlewheelError as error:
            log.info("old lease not deleted", lease=str(key), error=str(error))

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                await self._cluster.delete(LEASES, self._key)
        except (PaddlewheelError, TimeoutError) as error:
            log.info("lease not released; it will expire", lease=str(self._key), error=repr(error))


def _spec(lease: Object) -> Object:
    return lease.get("spec") or {}


def _renew_time(lease: Object) -> str:
    return str(_spec(lease).get("renewTime") or "")
