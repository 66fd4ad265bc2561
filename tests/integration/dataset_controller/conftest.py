"""The real dataset-controller as a process, a real API server with scheduler and controllers, a real NATS.

Nodes and kubelet are played by the test; the agents by a script that writes the real records.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, PaddlewheelError
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Change, Object, Resource, Watches
from paddlewheel.testkit.kubernetes import set_pod_status, toleration
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.samplesets import ScriptedRuntime
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class Cluster(ports.Cluster, Watches):
    """What the fixture `cluster` gives."""


@dataclass
class Kubelets:
    """Runs every pod of the namespace that a node was found for, and lets go of those that are deleted."""

    cluster: Cluster
    namespace: str

    async def run(self) -> None:
        async for change in self.cluster.watch(ports.PODS, self.namespace):
            if change.type != "DELETED":
                with suppress(NotFound):
                    await self._play(change.obj)

    async def _play(self, pod: Object) -> None:
        key = Key(self.namespace, pod["metadata"]["name"])
        if "deletionTimestamp" in pod["metadata"]:
            await self.cluster.delete(ports.PODS, key, grace_seconds=0)
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
            await set_pod_status(self.cluster, key, "Running", ip="10.1.0.1")


@dataclass
class DataBench:
    """What a test does and sees: sets, jobs, facts, phases."""

    cluster: Cluster
    namespace: str
    bus: Bus
    runtime: ScriptedRuntime
    events: list[Event] = field(default_factory=list)
    changes: list[Object] = field(default_factory=list)

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def create(self, resource: Resource, obj: Object) -> Object:
        obj["metadata"]["namespace"] = self.namespace
        if resource == ports.SAMPLE_SETS:
            obj["spec"]["tolerations"] = [toleration(self.namespace)]
        return await self.cluster.create(resource, obj)

    async def get(self, resource: Resource, name: str = "digits") -> Object:
        return await self.cluster.get(resource, self.key(name))

    async def phase(
        self, phase: str, resource: Resource = ports.SAMPLE_SETS, name: str = "digits", within: float = 60
    ) -> Object:
        async def reached() -> Object | None:
            obj = await self.get(resource, name)
            return obj if obj.get("status", {}).get("phase", "") == phase else None

        return await eventually(reached, within=within, what=f"{name} is {phase}") or {}

    async def condition(self, type_: str, reason: str, resource: Resource = ports.SAMPLE_SETS) -> Object:
        async def reached() -> Object | None:
            conditions = (await self.get(resource)).get("status", {}).get("conditions", ())
            return next((c for c in conditions if (c["type"], c["reason"]) == (type_, reason)), None)

        return await eventually(reached, within=30, what=f"{type_} is {reason}") or {}

    async def gone(self, resource: Resource, name: str = "digits", within: float = 60) -> None:
        async def is_gone() -> bool:
            try:
                await self.get(resource, name)
            except NotFound:
                return True
            return False

        await eventually(is_gone, within=within, what=f"{name} is gone")

    def facts(self) -> list[str]:
        """Names of all facts about data sets, in the order of the stream."""
        return [e.type.rpartition(".")[2] for e in self.events]

    def facts_of(self, name: str) -> list[str]:
        """Names of the facts about one set, in the order of the stream."""
        mine = (e for e in self.events if getattr(getattr(e.data, "sample_set", None), "name", "") == name)
        return [e.type.rpartition(".")[2] for e in mine]

    def phases(self) -> list[str]:
        """The phases the set `digits` was seen in, without repeats."""
        found = [o.get("status", {}).get("phase", "") for o in self.changes]
        return [p for i, p in enumerate(found) if p and (i == 0 or found[i - 1] != p)]

    async def listen(self) -> None:
        async for delivery in self.bus.read(Reading(("pw.evt.datasets.>",), BEGINNING)):
            self.events.append(delivery.event)

    async def look(self) -> None:
        def see(change: Change) -> None:
            if change.obj["metadata"]["name"] == "digits":
                self.changes.append(change.obj)

        async for change in self.cluster.watch(ports.SAMPLE_SETS, self.namespace):
            see(change)


@pytest.fixture
def service_env(api_server: str, namespace: str, nats_url: str) -> dict[str, str]:
    return {
        **os.environ,
        "DATASET_CONTROLLER_KUBECONFIG": api_server,
        "DATASET_CONTROLLER_NATS_URL": nats_url,
        "DATASET_CONTROLLER_NAMESPACE": namespace,
        "DATASET_CONTROLLER_POD_NAMESPACE": namespace,
        "DATASET_CONTROLLER_POD_NAME": "replica-0",
        "DATASET_CONTROLLER_HTTP_PORT": "0",
        "DATASET_CONTROLLER_LOG_LEVEL": "debug",
        "RUNTIME_IMAGE": "paddlewheel/cache-runtime:test",
    }


@pytest.fixture
async def service(service_env: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    """Not started yet."""
    made = Service("dataset_controller", service_env, tmp_path / "dataset-controller.log")
    yield made
    await made.stop()
    sys.stdout.write(made.log.read_text() if made.log.exists() else "")


@pytest.fixture
async def start_replica(
    service_env: dict[str, str], tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable[Service]]]:
    """Starts replicas that share the objects."""
    started: list[Service] = []

    async def start(name: str) -> Service:
        env = service_env | {"DATASET_CONTROLLER_POD_NAME": name}
        replica = Service("dataset_controller", env, tmp_path / f"{name}.log")
        started.append(replica)
        await replica.start()
        return replica

    yield start
    for replica in started:
        await replica.stop()


@pytest.fixture
async def bench(
    cluster: Cluster, namespace: str, nats_url: str, nodes: list[str]
) -> AsyncIterator[DataBench]:
    """The world around the service, alive until the test ends."""
    bus = await bus_library.connect(nats_url, name="test")
    made = DataBench(cluster, namespace, bus, ScriptedRuntime(bus, repeat=1.0))
    parts = (made.runtime.run(), made.listen(), made.look(), Kubelets(cluster, namespace).run())
    tasks = [asyncio.create_task(part) for part in parts]
    yield made
    await _clean_up(made)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await bus.close()


async def _clean_up(bench: DataBench) -> None:
    """Finalizers would keep the namespace when the service does not run any more."""
    for resource in (ports.SAMPLE_JOBS, ports.SAMPLE_SETS):
        for obj in await bench.cluster.list(resource, bench.namespace):
            key = bench.key(obj["metadata"]["name"])
            with suppress(PaddlewheelError):
                await bench.cluster.delete(resource, key)
                await bench.cluster.patch(resource, key, {"metadata": {"finalizers": None}})
    for volume in await bench.cluster.list(ports.PERSISTENT_VOLUMES):
        if volume["spec"].get("claimRef", {}).get("namespace") == bench.namespace:
            await bench.cluster.delete(ports.PERSISTENT_VOLUMES, Key("", volume["metadata"]["name"]))


__all__ = ["DataBench", "NatsServer", "Service"]
