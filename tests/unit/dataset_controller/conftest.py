"""The service over memory adapters, with the rest of Kubernetes and the agents played by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from dataset_controller.app import App
from dataset_controller.config import Settings
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import AlreadyExists, NotFound
from paddlewheel.kube import ports
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.testkit.samplesets import ScriptedRuntime
from paddlewheel.testkit.wait import eventually

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@dataclass
class Kubernetes:
    """Binds claims and runs StatefulSets on `nodes`, as controllers, scheduler and kubelet would."""

    cluster: MemoryCluster
    nodes: tuple[str, ...] = ("node-0", "node-1", "node-2")
    unready: set[str] = field(default_factory=set)

    async def run(self) -> None:
        for name in self.nodes:
            await self.cluster.create(ports.NODES, {"metadata": {"name": name}})
        volumes = (ports.PERSISTENT_VOLUMES, ports.PERSISTENT_VOLUME_CLAIMS)
        watched = (ports.STATEFUL_SETS, ports.PODS, *volumes)
        async with asyncio.TaskGroup() as group:
            for resource in watched:
                group.create_task(self._follow(resource))

    async def _follow(self, resource: Resource) -> None:
        async for _ in self.cluster.watch(resource):
            with suppress(NotFound, AlreadyExists):
                await self.settle()

    async def settle(self) -> None:
        for volume in await self.cluster.list(ports.PERSISTENT_VOLUMES):
            await self._set_status(ports.PERSISTENT_VOLUMES, volume, {"phase": "Available"})
        for claim in await self.cluster.list(ports.PERSISTENT_VOLUME_CLAIMS):
            await self._set_status(ports.PERSISTENT_VOLUME_CLAIMS, claim, {"phase": "Bound"})
        for stateful_set in await self.cluster.list(ports.STATEFUL_SETS):
            await self._run_pods(stateful_set)

    async def _run_pods(self, owner: Object) -> None:
        meta, spec = owner["metadata"], owner["spec"]
        pods = {
            p["metadata"]["name"]: p
            for p in await self.cluster.list(ports.PODS, meta["namespace"])
            if any(o["uid"] == meta["uid"] for o in p["metadata"].get("ownerReferences", ()))
        }
        wanted = [f"{meta['name']}-{i}" for i in range(spec["replicas"])]
        for name in set(pods) - set(wanted):
            await self.cluster.delete(ports.PODS, Key(meta["namespace"], name))
        ready = 0
        for index, name in enumerate(wanted):
            if name not in pods:
                await self._create_pod(owner, name, self.nodes[index])
                break
            if name in self.unready:
                await self._set_status(ports.PODS, pods[name], {"phase": "Pending", "conditions": []})
                break
            await self._set_status(ports.PODS, pods[name], READY)
            ready += 1
        count = {"replicas": len(set(pods) & set(wanted)), "readyReplicas": ready}
        await self._set_status(ports.STATEFUL_SETS, owner, count)

    async def _create_pod(self, owner: Object, name: str, node: str) -> None:
        meta, template = owner["metadata"], owner["spec"]["template"]
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": meta["name"], "uid": meta["uid"]}
        pod = {
            "metadata": {
                **template["metadata"],
                "name": name,
                "namespace": meta["namespace"],
                "ownerReferences": [{**reference, "controller": True}],
            },
            "spec": {**template["spec"], "nodeName": node},
        }
        await self.cluster.create(ports.PODS, pod)

    async def _set_status(self, resource: Resource, obj: Object, status: dict[str, Any]) -> None:
        if any(obj.get("status", {}).get(k) != v for k, v in status.items()):
            key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            await self.cluster.patch(resource, key, {"status": status}, subresource="status")


@dataclass
class Stand:
    """Everything of one test."""

    cluster: MemoryCluster
    bus: MemoryBus
    kubernetes: Kubernetes
    runtime: ScriptedRuntime
    phases: list[str] = field(default_factory=list)

    async def get(self, resource: Resource, name: str, namespace: str = "default") -> Object:
        return await self.cluster.get(resource, Key(namespace, name))

    async def sample_set(self, name: str = "digits") -> Object:
        return await self.get(ports.SAMPLE_SETS, name)

    async def set_phase(self, phase: str, name: str = "digits") -> Object:
        """Wait for it."""

        async def reached() -> Any:
            obj = await self.sample_set(name)
            return obj if obj.get("status", {}).get("phase", "") == phase else None

        return await eventually(reached, within=5, every=0.01, what=f"{name} is {phase}")

    async def job_phase(self, phase: str, name: str = "job") -> Object:
        """Wait for it."""

        async def reached() -> Any:
            obj = await self.get(ports.SAMPLE_JOBS, name)
            return obj if obj.get("status", {}).get("phase", "") == phase else None

        return await eventually(reached, within=5, every=0.01, what=f"{name} is {phase}")

    async def condition(
        self, type_: str, reason: str, resource: Resource = ports.SAMPLE_SETS, name: str = "digits"
    ) -> Object:
        """Wait until the condition has the reason."""

        async def reached() -> Any:
            conditions = (await self.get(resource, name)).get("status", {}).get("conditions", ())
            return next((c for c in conditions if (c["type"], c["reason"]) == (type_, reason)), None)

        return await eventually(reached, within=5, every=0.01, what=f"{type_} is {reason}")

    async def gone(self, resource: Resource, name: str, namespace: str = "default") -> None:
        """Wait until the object is away."""

        async def is_gone() -> bool:
            try:
                await self.get(resource, name, namespace)
            except NotFound:
                return True
            return False

        await eventually(is_gone, within=5, every=0.01, what=f"{resource.kind} {name} is gone")

    async def events(self) -> set[tuple[str, str]]:
        """Type and reason of all Kubernetes events."""
        return {(e["type"], e["reason"]) for e in await self.cluster.list(ports.EVENTS)}

    async def told(self, *events: tuple[str, str]) -> None:
        """Wait for Kubernetes events: they are written by a task of their own."""

        async def all_there() -> bool:
            return set(events) <= await self.events()

        await eventually(all_there, within=5, every=0.01, what=f"{events}")

    async def records(self) -> list[str]:
        """Keys that lie in the buckets."""
        buckets = (self.bus.key_value("pw_cache_runs"), self.bus.key_value("pw_cache_nodes"))
        return [entry.key for bucket in buckets for entry in await bucket.entries(">")]

    def facts(self) -> list[str]:
        """Facts on the bus, oldest first, as names of their models."""
        return [event.type.rpartition(".")[2] for event in self.bus.events("PW_DATASETS")]

    async def follow_phases(self) -> None:
        async for change in self.cluster.watch(ports.SAMPLE_SETS):
            phase = change.obj.get("status", {}).get("phase")
            if phase and (not self.phases or self.phases[-1] != phase):
                self.phases.append(phase)


@asynccontextmanager
async def serving(cluster: MemoryCluster, bus: MemoryBus) -> AsyncIterator[None]:
    """One replica of the service, until the block ends."""
    stop = asyncio.Event()
    settings = Settings(pod_name="replica-0", runtime_image="runtime:1", nats_url="nats://bus:4222")
    task = asyncio.create_task(App(settings, cluster, bus, SystemClock()).operate(stop))
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def playing(*parts: Any) -> AsyncIterator[None]:
    """Background coroutines, cancelled at the end."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def quiet_stand() -> AsyncIterator[Stand]:
    """The world without the service; a test starts that itself with `serving`."""
    cluster, bus = MemoryCluster(), MemoryBus()
    stand = Stand(cluster, bus, Kubernetes(cluster), ScriptedRuntime(bus))
    async with playing(stand.kubernetes.run(), stand.runtime.run(), stand.follow_phases()):
        yield stand


@pytest.fixture
def serve(quiet_stand: Stand) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Starts and stops the service within a test."""
    return lambda: serving(quiet_stand.cluster, quiet_stand.bus)


@pytest.fixture
async def stand(quiet_stand: Stand) -> AsyncIterator[Stand]:
    """The world with the service."""
    async with serving(quiet_stand.cluster, quiet_stand.bus):
        yield quiet_stand
