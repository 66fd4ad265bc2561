"""Which replicas of a service are alive: each renews a Lease of its own, all watch all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, PaddlewheelError
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import LEASES, Change, Cluster, Object, Watches

RENEW = 5.0
"""Seconds between renewals."""
EXPIRY = 15.0
"""Seconds without a renewal after which a replica counts as dead."""
PRUNE = 300.0
"""Seconds after which the Lease of a dead replica is deleted by the others."""
LABEL = "paddlepaddle.org/replica-of"
LEAVE_TIMEOUT = 2.0

log = structlog.get_logger(__name__)


@dataclass
class _Sighting:
    """When, by our own monotonic clock, a Lease was last seen to be renewed: clocks of others may be off."""

    renewed: str
    at: float


class LeaseMembership:
    """This replica's Lease and the view of everybody's.

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

    def members(self) -> frozenset[str]:
        """Names of the live replicas; without this one while its own Lease is not renewed in time."""
        return self._members if self._is_renewed() else self._members - {self._me}

    async def run(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Renew and watch for ever; `on_change` is called when the members have changed.

        Ends only by cancellation, and gives the Lease up then, so that others take over at once.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._leases.run(lambda change: self._see(change, on_change)))
                await self._leases.wait_synced()
                await self._beat_for_ever(on_change)
        finally:
            await self._leave()

    async def _beat_for_ever(self, on_change: Callable[[], None]) -> None:
        while True:
            await self._renew()
            self._update(on_change)
            await self._prune()
            await self._clock.sleep(RENEW)

    async def _renew(self) -> None:
        """A failure is waited out: this replica leaves the members when its Lease expires."""
        lease = self._lease()
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(RENEW):
                await self._write(lease)
        except (PaddlewheelError, TimeoutError) as error:
            log.warning("lease not renewed", lease=str(self._key), error=repr(error))
            return
        self._renewed_at = started

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

    def _see(self, change: Change, on_change: Callable[[], None]) -> None:
        key = key_of(change.obj)
        renewed = str(change.obj["spec"].get("renewTime", ""))
        seen = self._sightings.get(key)
        if change.type == "DELETED":
            self._sightings.pop(key, None)
        elif seen is None:
            self._sightings[key] = _Sighting(renewed, self._clock.monotonic() - self._age(renewed))
        elif seen.renewed != renewed:
            self._sightings[key] = _Sighting(renewed, self._clock.monotonic())
        self._update(on_change)

    def _age(self, renewed: str) -> float:
        """Seconds since the renewal by the wall clock: all there is to go by at first sight."""
        try:
            return max(0.0, (self._clock.now() - datetime.fromisoformat(renewed)).total_seconds())
        except ValueError:
            return EXPIRY

    def _update(self, on_change: Callable[[], None]) -> None:
        now = self._clock.monotonic()
        alive = {
            str(lease["spec"]["holderIdentity"])
            for lease in self._leases.list()
            if now - self._sightings[key_of(lease)].at < EXPIRY
        }
        # Its own writes tell a replica more than the watch does: both must hold.
        members = frozenset(alive if self._is_renewed() else alive - {self._me})
        if members == self._members:
            return
        log.info("members changed", service=self._service, members=sorted(members))
        self._members = members
        on_change()

    def _is_renewed(self) -> bool:
        return self._clock.monotonic() - self._renewed_at < EXPIRY

    async def _prune(self) -> None:
        """Pods get new names, so Leases of replicas that were killed would pile up."""
        now = self._clock.monotonic()
        for lease in self._leases.list():
            if now - self._sightings[key_of(lease)].at < PRUNE:
                continue
            try:
                await self._cluster.delete(LEASES, key_of(lease), uid=uid_of(lease))
            except PaddlewheelError as error:
                log.info("old lease not deleted", lease=str(key_of(lease)), error=str(error))

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self._cluster.delete(LEASES, self._key)
        except (PaddlewheelError, TimeoutError) as error:
            log.info("lease not given up; it will expire", lease=str(self._key), error=repr(error))
