"""The reconciler at a desk: memory cluster, memory bus, a clock moved by hand, no sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from job_controller.cluster import KubernetesEvents, KubernetesJobs, KubernetesSampleSets
from job_controller.ports import Ports

from job_controller.domain.model import Options
from job_controller.metrics import Metrics
from job_controller.reconciler import PaddleJobReconciler
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import ManualClock
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import CONFIG_MAPS, EVENTS, PADDLE_JOBS, PODS, SERVICES, Object
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import Outbox
from paddlewheel.testkit.kubernetes import set_pod_status

TURNS = 50
"""Turns of the loop in which every notice on its way arrives."""


class JobDesk:
    """One job-controller whose reconciles the test calls. `woken` are the keys its caches woke."""

    def __init__(self, cluster: MemoryCluster, bus: MemoryBus, clock: ManualClock, options: Options) -> None:
        self.cluster = cluster
        self.bus = bus
        self.clock = clock
        self.woken: list[Key] = []
        self.jobs = KubernetesJobs(cluster, cluster, "", clock)
        self.recorder = EventRecorder(cluster, "paddlejob-controller", "test", clock)
        metrics = Metrics()
        ports = Ports(
            cache=self.jobs,
            sample_sets=KubernetesSampleSets(cluster),
            jobs=self.jobs,
            children=self.jobs,
            events=KubernetesEvents(self.recorder),
            outbox=Outbox(bus, CircuitBreaker(clock), clock, stream=JOBS, count=metrics.announced),
        )
        self.reconciler = PaddleJobReconciler(ports, options, clock, metrics)

    async def create(self, job: Object) -> Key:
        """As kubectl would."""
        created = await self.cluster.create(PADDLE_JOBS, job)
        return Key(created["metadata"]["namespace"], created["metadata"]["name"])

    async def reconcile(self, key: Key) -> Result:
        """One pass with caches that have seen everything."""
        await self.catch_up()
        return await self.reconciler.reconcile(key)

    async def settle(self, key: Key) -> Result:
        """Pass after pass until one writes nothing."""
        for _ in range(10):
            before = Counter(self.cluster.writes)
            result = await self.reconcile(key)
            if self.cluster.writes == before:
                return result
        raise AssertionError(f"never settles: {self.cluster.writes}")

    async def catch_up(self) -> None:
        """Let the caches see every change."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def job(self, key: Key) -> Object:
        return await self.cluster.get(PADDLE_JOBS, key)

    async def status(self, key: Key) -> Object:
        return (await self.job(key)).get("status") or {}

    async def condition(self, key: Key, type_: str) -> Object:
        """Raises LookupError when there is none."""
        found = [c for c in (await self.status(key))["conditions"] if c["type"] == type_]
        condition: Object = found[0]
        return condition

    async def pod_names(self) -> list[str]:
        return [p["metadata"]["name"] for p in await self.cluster.list(PODS)]

    async def service_names(self) -> list[str]:
        return [s["metadata"]["name"] for s in await self.cluster.list(SERVICES)]

    async def config(self, key: Key) -> dict[str, str]:
        data: dict[str, str] = (await self.cluster.get(CONFIG_MAPS, key))["data"]
        return data

    async def run_pods(self, *pods: str, namespace: str = "default") -> None:
        """All named pods run; with no name, all there are."""
        for index, name in enumerate(pods or await self.pod_names()):
            await set_pod_status(self.cluster, Key(namespace, name), "Running", ip=f"10.0.0.{index + 1}")

    async def end_pods(self, *pods: str, phase: str = "Succeeded", **status: Any) -> None:
        for name in pods or await self.pod_names():
            await set_pod_status(self.cluster, Key("default", name), phase, ip="10.0.0.9", **status)

    async def to_running(self, job: Object) -> Key:
        """A job that has been seen running."""
        key = await self.create(job)
        await self.settle(key)
        await self.run_pods()
        await self.settle(key)
        assert (await self.status(key))["phase"] == "Running"
        return key

    def facts(self) -> list[str]:
        """Names of the facts on the bus, in order."""
        return [e.type.rpartition(".")[2] for e in self.bus.events("PW_JOBS")]

    async def events(self) -> list[tuple[str, str, str]]:
        """Kubernetes events: type, reason, message."""
        await self.recorder.flush()
        listed = await self.cluster.list(EVENTS)
        return sorted((e["type"], e["reason"], e["message"]) for e in listed)


OpenDesk = Callable[..., AbstractAsyncContextManager[JobDesk]]


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
    """Starts a controller over the same cluster and bus; several stand for restarts and replicas."""

    @asynccontextmanager
    async def opened(options: Options | None = None) -> AsyncIterator[JobDesk]:
        desk = JobDesk(memory_cluster, memory_bus, clock, options or Options())
        tasks = [
            asyncio.create_task(desk.jobs.run(lambda key, _: desk.woken.append(key))),
            asyncio.create_task(desk.recorder.run()),
        ]
        await desk.jobs.wait_synced()
        try:
            yield desk
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return opened


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[JobDesk]:
    async with open_desk() as opened:
        yield opened
