"""The only composition root: adapters, reconciler, handlers, health, drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Protocol

from job_controller.cluster import KubernetesEvents, KubernetesJobs, KubernetesSampleSets
from job_controller.config import Settings
from job_controller.domain import names
from job_controller.handlers import DATASET_FACTS, DATASETS, DatasetFacts
from job_controller.metrics import Metrics
from job_controller.ports import Ports
from job_controller.reconciler import PaddleJobReconciler
from paddlewheel import bus as bus_library
from paddlewheel import kube
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Controller
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.membership import LeaseMembership
from paddlewheel.kube.ports import Cluster, Watches
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import Outbox
from paddlewheel.operator.rebuild import Owned, Rebuilder, answer_rebuilds
from paddlewheel.operator.sharding import Shard

FLUSH = 2.0
"""Seconds the last Kubernetes events get at the end."""

Tasks = list[Coroutine[None, None, None]]


class Api(Cluster, Watches, Protocol):
    """One API server, read, written and watched."""


class App:
    """The service over given adapters, until told to stop."""

    def __init__(self, settings: Settings, api: Api, bus: Bus, clock: Clock) -> None:
        self._settings = settings
        self._bus = bus
        self._recorder = EventRecorder(api, names.COMPONENT, settings.pod_name, clock)
        self._jobs = KubernetesJobs(api, api, settings.namespace, clock)
        me, home = settings.pod_name, settings.pod_namespace
        self._membership = LeaseMembership(api, api, home, names.SERVICE, me, clock)
        self._shard = Shard(me, self._membership.members)
        metrics = Metrics()
        outbox = Outbox(bus, CircuitBreaker(clock), clock, stream=JOBS, count=metrics.announced)
        reconciler = PaddleJobReconciler(self._ports(api, outbox), settings.options, clock, metrics)
        self._rebuilder = Rebuilder(outbox, [Owned(self._own_keys, reconciler.republish)], clock)
        self._controller = Controller(
            "paddlejob",
            reconciler.reconcile,
            clock=clock,
            keys=self._jobs.keys,
            owns=self._owns,
            workers=settings.workers,
            resync=settings.resync,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; the reconciles under way are finished first."""
        checks = {"caches": self._is_synced, "bus": self._bus.healthy}
        async with http.serve(self._settings.http_port, checks), asyncio.TaskGroup() as group:
            background = [group.create_task(c) for c in self._background()]
            work = group.create_task(self._work())
            await stop.wait()
            await self._drain(work)
            await end(*background)

    def _ports(self, api: Api, outbox: Outbox) -> Ports:
        return Ports(
            cache=self._jobs,
            sample_sets=KubernetesSampleSets(api),
            jobs=self._jobs,
            children=self._jobs,
            events=KubernetesEvents(self._recorder),
            outbox=outbox,
        )

    def _background(self) -> Tasks:
        tasks: Tasks = [
            self._jobs.run(self._controller.wake),
            self._recorder.run(),
            self._hear(),
            self._rebuild(),
        ]
        if self._settings.replicas_share:
            tasks.append(self._membership.run(self._share_changed))
        return tasks

    def _share_changed(self) -> None:
        self._controller.resync()
        self._rebuilder.wake()

    async def _rebuild(self) -> None:
        """By itself and on command; nothing can be said of objects before the caches are filled."""
        await self._jobs.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rebuilder.run())
            me = self._settings.pod_name
            group.create_task(answer_rebuilds(self._bus, self._rebuilder, names.SERVICE, me))

    async def _hear(self) -> None:
        """One durable consumer hands a fact to one replica only; where jobs are shared out, all must hear."""
        facts = DatasetFacts(self._jobs.users_of, self._controller.wake)
        if not self._settings.replicas_share:
            return await self._bus.consume(DATASETS, facts.handle)
        async for delivery in self._bus.read(Reading((DATASET_FACTS,))):
            await facts.handle(delivery)
        return None

    async def _work(self) -> None:
        await self._jobs.wait_synced()
        await self._controller.run()

    async def _drain(self, work: asyncio.Task[None]) -> None:
        self._controller.stop()
        if not self._jobs.synced:
            work.cancel()
        await asyncio.wait([work])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._recorder.flush(), FLUSH)

    def _owns(self, key: Key) -> bool:
        return not self._settings.replicas_share or self._shard.owns(key)

    def _own_keys(self) -> list[Key]:
        return list(filter(self._owns, self._jobs.keys()))

    async def _is_synced(self) -> bool:
        return self._jobs.synced


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Connect to the real things and run."""
    measured = telemetry.set_up(names.SERVICE)
    try:
        async with await kube.connect(settings.kubeconfig) as api:
            bus = await bus_library.connect(Access.of(settings, names.SERVICE), name=names.SERVICE)
            try:
                await App(settings, api, bus, SystemClock()).run(stop)
            finally:
                await bus.close()
    finally:
        measured.shutdown()
