"""Which replicas of a service are alive: each renews a Lease of its own, all watch all.

A replica that dies without releasing its Lease leaves the members EXPIRY seconds after the others have seen
its last renewal, so at most EXPIRY plus the latency of the watch after its death. With 10 s, takeover takes
less than 15 s, and two renewals in a row may fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from paddlewheel.contracts.keys import Key
from paddlewheel.core.alarm import Alarm
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, PaddlewheelError
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import LEASES, Change, Cluster, Object, Watches

RENEW = 3.0
"""Seconds between renewals."""
RENEWAL_TIMEOUT = 2 * RENEW
"""Seconds for one renewal."""
EXPIRY = 10.0
"""Seconds without a renewal after which a replica counts as dead."""
PRUNE = 300.0
"""Seconds without a renewal after which the Lease of a dead replica is deleted by the others."""
LABEL = "paddlepaddle.org/replica-of"
LEAVE_TIMEOUT = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Sighting:
    """What the watch last reported of one Lease.

    Times are of our own monotonic clock, since the wall clocks of others may be off: `renewed_at` is when we
    saw the last renewal, or when it must have been if it is older than our watch; `seen_at` is never earlier
    than our watch.
    """

    holder: str
    uid: str
    renew_time: str
    renewed_at: float
    seen_at: float


class LeaseMembership:
    """This replica's Lease and the watch of everybody's.

    Args:
        namespace: of the service.
        service: its name; Leases are called `<service>-<me>` and labelled with it.
        me: this replica's name, unique among live ones (the pod's name).
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
        """Names of the live replicas; without this one while its own Lease is not renewed in time."""
        return self._members if self._is_renewed() else self._members - {self._me}

    async def run(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Renew and watch forever; `on_change` is called when the members have changed.

        Ends only by cancellation, and releases the Lease then, so that others take over at once.
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
            await self._renewal.wait(started + RENEW)

    async def _renew(self, started: float) -> None:
        """A failure is waited out: this replica leaves the members when its Lease expires."""
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT):
                await self._write(self._lease())
        except (PaddlewheelError, TimeoutError) as error:
            log.warning("lease not renewed", lease=str(self._key), error=repr(error))
            return
        if not self._is_renewed():
            # Nobody has noticed yet that it was out; coming back must be a change all the same.
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
                "leaseDurationSeconds": int(EXPIRY),
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
        # A Lease that is there when the watch begins may be a dead replica's.
        age = self._age(renew_time) if seen is None and change.listed else 0.0
        return _Sighting(holder, uid, renew_time, renewed_at=now - age, seen_at=now)

    def _age(self, renew_time: str) -> float:
        """Seconds since the renewal by the wall clock: all there is to go by at first sight."""
        try:
            return max(0.0, (self._clock.now() - datetime.fromisoformat(renew_time)).total_seconds())
        except (ValueError, TypeError):
            return EXPIRY

    async def _update_forever(self, on_change: Callable[[], None]) -> None:
        """Evaluate the members after every change, and when the earliest expiry is due."""
        while True:
            self._update(on_change)
            await self._expiry.wait(self._next_expiry())

    def _update(self, on_change: Callable[[], None]) -> None:
        alive = {s.holder for s in self._sightings.values() if s.holder and self._is_fresh(s.renewed_at)}
        # A replica knows more from its own writes than from the watch: both must hold.
        members = frozenset(alive if self._is_renewed() else alive - {self._me})
        if members == self._members:
            return
        log.info("members changed", service=self._service, members=sorted(members))
        self._members = members
        on_change()

    def _next_expiry(self) -> float | None:
        renewals = [self._renewed_at, *(sighting.renewed_at for sighting in self._sightings.values())]
        return min((at + EXPIRY for at in renewals if self._is_fresh(at)), default=None)

    def _is_fresh(self, renewed_at: float) -> bool:
        return self._clock.monotonic() < renewed_at + EXPIRY

    def _is_renewed(self) -> bool:
        return self._is_fresh(self._renewed_at)

    async def _prune_forever(self) -> None:
        """Pods get new names, so Leases of replicas that were killed would pile up."""
        while True:
            await self._clock.sleep(PRUNE / 5)
            now = self._clock.monotonic()
            for key, sighting in [*self._sightings.items()]:
                if key != self._key and now - sighting.seen_at >= PRUNE:
                    await self._prune(key, sighting)

    async def _prune(self, key: Key, sighting: _Sighting) -> None:
        """Read the Lease again first: our watch may have missed its renewals."""
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
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self._cluster.delete(LEASES, self._key)
        except (PaddlewheelError, TimeoutError) as error:
            log.info("lease not released; it will expire", lease=str(self._key), error=repr(error))


def _spec(lease: Object) -> Object:
    return lease.get("spec") or {}


def _renew_time(lease: Object) -> str:
    return str(_spec(lease).get("renewTime") or "")
