"""The only composition root: adapters, reconciler, handlers, webhook, health, drain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from paddlewheel import bus as bus_library
from paddlewheel import kube
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus, Subscription
from paddlewheel.bus.streams import TRIGGERS_BUCKET
from paddlewheel.control.controller import Controller
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.ports import Cluster, Watches
from trigger_controller.cluster import KubernetesNotes, KubernetesTriggers
from trigger_controller.config import Settings
from trigger_controller.domain import names
from trigger_controller.handlers import SUBSCRIPTIONS, Events
from trigger_controller.inbox import Inbox
from trigger_controller.memory import BucketMemory
from trigger_controller.metrics import Metrics
from trigger_controller.ports import Ports
from trigger_controller.reconciler import TriggerReconciler
from trigger_controller.webhook import Webhook

FLUSH = 2.0
"""Seconds the last Kubernetes events get at the end."""


class Api(Cluster, Watches, Protocol):
    """One API server, read, written and watched."""


class App:
    """The service over given adapters, until told to stop."""

    def __init__(self, settings: Settings, api: Api, bus: Bus, clock: Clock) -> None:
        self._settings = settings
        self._bus = bus
        metrics = Metrics()
        self._recorder = EventRecorder(api, names.SERVICE, settings.pod_name, clock)
        self._triggers = KubernetesTriggers(api, api, settings.namespace, clock)
        memory = BucketMemory(bus.key_value(TRIGGERS_BUCKET))
        inbox = Inbox(lambda key: self._controller.wake(key))
        self._events = Events(self._triggers, inbox)
        self._webhook = Webhook(bus, clock, metrics, settings.webhook_token_file)
        notes = KubernetesNotes(self._recorder)
        ports = Ports(self._triggers, self._triggers, self._triggers, memory, bus, notes)
        self._controller = Controller(
            "trigger",
            TriggerReconciler(ports, inbox, clock, metrics).reconcile,
            clock=clock,
            keys=self._triggers.keys,
            workers=settings.workers,
            resync=settings.resync,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; the reconciles under way are finished first."""
        checks = {"caches": self._is_synced, "bus": self._bus.healthy}
        port = self._settings.http_port
        async with http.serve(port, checks, self._webhook.routes()), asyncio.TaskGroup() as group:
            follow = group.create_task(self._triggers.run(self._controller.wake))
            record = group.create_task(self._recorder.run())
            hear = [group.create_task(self._hear(subscription)) for subscription in SUBSCRIPTIONS]
            work = group.create_task(self._work())
            await stop.wait()
            # First nothing new, then what is under way, then the rest.
            await end(*hear)
            await self._drain(work)
            await end(follow, record)

    async def _hear(self, subscription: Subscription) -> None:
        """Only once all triggers are known: an event that finds none is done with."""
        await self._triggers.wait_synced()
        await self._bus.consume(subscription, self._events.handle)

    async def _work(self) -> None:
        await self._triggers.wait_synced()
        await self._controller.run()

    async def _drain(self, work: asyncio.Task[None]) -> None:
        self._controller.stop()
        if not self._triggers.synced:
            work.cancel()
        await asyncio.wait([work])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._recorder.flush(), FLUSH)

    async def _is_synced(self) -> bool:
        return self._triggers.synced


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
