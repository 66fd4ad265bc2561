"""The only composition root: adapters, reconcilers, mirrors, health, drain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Protocol

from dataset_controller.bus_certificate import BusCertificate
from dataset_controller.config import Settings
from dataset_controller.domain.names import SOURCE
from dataset_controller.effects import Effects
from dataset_controller.handlers import Wakes
from dataset_controller.metrics import Metrics
from dataset_controller.mirrors import NodeMirror, RunMirror
from dataset_controller.observe import Observer
from dataset_controller.performer import Outside
from dataset_controller.ports import DataBus
from dataset_controller.reconciler import SampleJobReconciler, SampleSetReconciler
from dataset_controller.view import View
from paddlewheel import bus as bus_library
from paddlewheel import kube
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import DATASETS, NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Controller, Reconcile
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.membership import LeaseMembership
from paddlewheel.kube.ports import SAMPLE_JOBS, SAMPLE_SETS, Cluster, Resource, Watches
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import Outbox, Republished
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
        self._clock = clock
        self._runs, self._nodes = RunMirror(clock), NodeMirror(clock)
        self._view = View(api, settings.namespace, clock)
        self._recorder = EventRecorder(api, SOURCE, settings.pod_name, clock)
        me, home = settings.pod_name, settings.pod_namespace
        self._membership = LeaseMembership(api, api, home, SOURCE, me, clock)
        self._shard = Shard(me, self._membership.members)
        certificate = BusCertificate(settings.runtime_nats_tls_dir)
        observer = Observer(self._view, self._runs, self._nodes, api, certificate)
        metrics = Metrics()
        # One each: trouble with key-value records must not silence facts.
        outbox = Outbox(bus, CircuitBreaker(clock), clock, stream=DATASETS, count=metrics.announced)
        effects = Effects(api, self._view, self._data_bus(), CircuitBreaker(clock), clock)
        outside = Outside(api, self._view, outbox, effects, self._recorder, metrics, clock)
        sets = SampleSetReconciler(observer, outside, settings.runtime)
        jobs = SampleJobReconciler(observer, outside)
        self._sets = self._controller("sampleset", sets.reconcile, self._view.of(SAMPLE_SETS))
        self._jobs = self._controller("samplejob", jobs.reconcile, self._view.of(SAMPLE_JOBS))
        kinds = [self._owned(SAMPLE_SETS, sets.republish), self._owned(SAMPLE_JOBS, jobs.republish)]
        self._rebuilder = Rebuilder(outbox, kinds, clock)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, with the addresses every service answers."""
        checks = {"caches": self._is_synced, "bus": self._bus.healthy}
        async with http.serve(self._settings.http_port, checks):
            await self.operate(stop)

    async def operate(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop`; what is under way then is finished first."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(task) for task in self._background()]
            work = group.create_task(self._work())
            await stop.wait()
            await self._drain(work)
            await end(*background)

    def _data_bus(self) -> DataBus:
        runs, nodes = self._bus.key_value(RUNS_BUCKET), self._bus.key_value(NODES_BUCKET)
        return DataBus(runs, nodes, self._bus.work)

    def _owned(self, resource: Resource, republish: Callable[[Key, bool], Awaitable[Republished]]) -> Owned:
        informer = self._view.of(resource)
        return Owned(lambda: filter(self._shard.owns, informer.keys()), republish)

    def _controller(self, name: str, reconcile: Reconcile, informer: Informer) -> Controller:
        return Controller(
            name,
            reconcile,
            clock=self._clock,
            keys=informer.keys,
            owns=self._shard.owns,
            workers=self._settings.workers,
            resync=self._settings.resync,
        )

    def _background(self) -> Tasks:
        wakes = Wakes(self._view, self._sets.wake, self._jobs.wake)
        return [
            self._view.run(wakes.changed),
            self._runs.follow(self._bus.key_value(RUNS_BUCKET), wakes.run_changed),
            self._nodes.follow(self._bus.key_value(NODES_BUCKET), wakes.report_changed),
            self._recorder.run(),
            self._membership.run(self._share_changed),
            self._rebuild(),
        ]

    def _share_changed(self) -> None:
        self._sets.resync()
        self._jobs.resync()
        self._rebuilder.wake()

    async def _rebuild(self) -> None:
        """By itself and on command; nothing can be said of objects before the view is filled."""
        await self._view.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rebuilder.run())
            group.create_task(answer_rebuilds(self._bus, self._rebuilder, SOURCE, self._settings.pod_name))

    async def _work(self) -> None:
        await self._view.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sets.run())
            group.create_task(self._jobs.run())

    async def _drain(self, work: asyncio.Task[None]) -> None:
        self._sets.stop()
        self._jobs.stop()
        if not self._view.synced:
            work.cancel()
        await asyncio.wait([work])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._recorder.flush(), FLUSH)

    async def _is_synced(self) -> bool:
        return self._view.synced


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Connect to the real things and run."""
    measured = telemetry.set_up(SOURCE)
    try:
        async with await kube.connect(settings.kubeconfig) as api:
            bus = await bus_library.connect(Access.of(settings, SOURCE), name=SOURCE)
            try:
                await App(settings, api, bus, SystemClock()).run(stop)
            finally:
                await bus.close()
    finally:
        measured.shutdown()
