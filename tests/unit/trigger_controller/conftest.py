"""The service at a desk: memory cluster, memory bus, a clock moved by hand, no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.streams import TRIGGERS_BUCKET
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Conflict, Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import EVENTS, PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Object
from paddlewheel.testkit.triggers import make_ready, s3_body, s3_record
from trigger_controller.cluster import KubernetesNotes, KubernetesTriggers
from trigger_controller.handlers import SUBSCRIPTIONS, Events
from trigger_controller.inbox import Inbox
from trigger_controller.memory import BucketMemory
from trigger_controller.metrics import Metrics
from trigger_controller.ports import Ports
from trigger_controller.reconciler import TriggerReconciler
from trigger_controller.webhook import Webhook

TURNS = 60
"""Turns of the loop in which every notice on its way arrives."""
WARM = Key("default", "warm")


class TriggerDesk:
    """One trigger-controller whose reconciles the test calls."""

    def __init__(self, cluster: MemoryCluster, bus: MemoryBus, clock: ManualClock) -> None:
        self.cluster, self.bus, self.clock = cluster, bus, clock
        self.woken: set[Key] = set()
        self.again: dict[Key, float] = {}
        self.triggers = KubernetesTriggers(cluster, cluster, "", clock)
        self.recorder = EventRecorder(cluster, "trigger-controller", "test", clock)
        self.memory = BucketMemory(bus.key_value(TRIGGERS_BUCKET))
        self.inbox = Inbox(self.woken.add)
        self.events = Events(self.triggers, self.inbox)
        self.webhook = Webhook(bus, clock, Metrics(), None)
        notes = KubernetesNotes(self.recorder)
        ports = Ports(self.triggers, self.triggers, self.triggers, self.memory, bus, notes)
        self.reconciler = TriggerReconciler(ports, self.inbox, clock, Metrics())

    async def create(self, trigger: Object) -> Object:
        made = await self.cluster.create(TRIGGERS, trigger)
        await self.settle()
        return made

    async def catch_up(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Reconcile what was woken until nothing is; delays are kept in `again`."""
        for _ in range(30):
            await self.catch_up()
            if not self.woken:
                return
            for key in tuple(self.woken):
                self.woken.discard(key)
                await self.reconcile(key)
        raise AssertionError(f"never settles: {self.woken}")

    async def reconcile(self, key: Key) -> None:
        try:
            wait = (await self.reconciler.reconcile(key)).requeue_after
        except (Retry, Conflict):
            self.again[key] = 1.0
            return
        self.again.pop(key, None)
        if wait == 0:
            self.woken.add(key)
        elif wait is not None:
            self.again[key] = wait

    async def pass_time(self, seconds: float) -> None:
        """Move the clock on, and reconcile what asked for it."""
        await self.clock.advance(seconds)
        self.woken.update(self.again)
        await self.settle()

    async def tell(self, *events: Event) -> None:
        for event in events:
            await self.bus.publish(event)
        await self.settle()

    async def ready(self, event_id: str, **where: Any) -> None:
        await self.tell(make_ready(event_id, time=self.clock.now(), **where))

    async def notify(self, *keys: str, n: int = 1) -> None:
        """An object store posts that these keys were written."""
        await self.webhook.store("images", s3_body(*(s3_record(key, n=n) for key in keys)))
        await self.settle()

    async def sample_jobs(self) -> list[Object]:
        return await self.cluster.list(SAMPLE_JOBS)

    async def paddle_jobs(self) -> list[Object]:
        return await self.cluster.list(PADDLE_JOBS)

    async def end(self, job: Object, phase: str = "Succeeded") -> None:
        meta = job["metadata"]
        resource = SAMPLE_JOBS if job["kind"] == "SampleJob" else PADDLE_JOBS
        key = Key(meta["namespace"], meta["name"])
        await self.cluster.patch(resource, key, {"status": {"phase": phase}}, subresource="status")
        await self.settle()

    async def change(self, spec: dict[str, Any], key: Key = WARM) -> None:
        await self.cluster.patch(TRIGGERS, key, {"spec": spec})
        await self.settle()

    async def status(self, key: Key = WARM) -> Object:
        return (await self.cluster.get(TRIGGERS, key)).get("status") or {}

    async def condition(self, type_: str, key: Key = WARM) -> Object:
        """Raises LookupError when there is none."""
        conditions = {c["type"]: c for c in (await self.status(key))["conditions"]}
        found: Object = conditions[type_]
        return found

    def facts(self) -> list[str]:
        return [e.type.rpartition(".")[2] for e in self.bus.events("PW_TRIGGERS")]

    async def notes(self) -> list[tuple[str, str]]:
        await self.recorder.flush()
        return sorted((e["type"], e["reason"]) for e in await self.cluster.list(EVENTS))


OpenDesk = Callable[[], AbstractAsyncContextManager[TriggerDesk]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory_cluster(clock: ManualClock) -> MemoryCluster:
    return MemoryCluster(clock.now)


@pytest.fixture
def memory_bus(clock: ManualClock) -> MemoryBus:
    return MemoryBus(clock)


@pytest.fixture
def open_desk(memory_cluster: MemoryCluster, memory_bus: MemoryBus, clock: ManualClock) -> OpenDesk:
    """Starts a service over the same cluster and bus; several stand for restarts and replicas."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[TriggerDesk]:
        desk = TriggerDesk(memory_cluster, memory_bus, clock)
        tasks = [
            asyncio.create_task(desk.triggers.run(desk.woken.add)),
            asyncio.create_task(desk.recorder.run()),
        ]
        await desk.triggers.wait_synced()
        tasks += [asyncio.create_task(memory_bus.consume(s, desk.events.handle)) for s in SUBSCRIPTIONS]
        try:
            yield desk
        finally:
            await end(*tasks)

    return opened


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[TriggerDesk]:
    async with open_desk() as opened:
        yield opened
