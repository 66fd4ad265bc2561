"""The real dataset-controller as a process, a real API server with scheduler and controllers, a real NATS.

The test stands in for nodes and kubelets, a script that writes the real records for the agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import pytest

from paddlewheel.contracts.dataset_names import node_label, runtime_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, PaddlewheelError
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import Object, Objects
from paddlewheel.testkit.kubernetes import set_pod_status, toleration
from paddlewheel.testkit.samplesets import ScriptedRuntime, make_sample_set, make_secret
from paddlewheel.testkit.service_harness import Backends, ServiceHarness, ServiceSpec

DATASET_CONTROLLER = ServiceSpec(
    "dataset_controller",
    ports.SAMPLE_SETS,
    "pw.evt.datasets.>",
    {"LOG_LEVEL": "debug", "RUNTIME_IMAGE": "paddlewheel/cache-runtime:test"},
)


class DataServiceHarness(ServiceHarness):
    """Sets and their jobs. `changes` are all versions of the set `digits`, in order."""

    def __init__(self, spec: ServiceSpec, backends: Backends) -> None:
        super().__init__(spec, backends)
        self.changes: Objects = []
        self.home = self.namespace
        """The namespace of the release."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """With kubelets and agents; objects that are left lose their finalizers at the end."""
        async with super().opened():
            self.runtime = ScriptedRuntime(self.bus, repeat=1.0)
            parts = (self.runtime.run(), self._record_changes(), self._run_pods())
            tasks = [asyncio.create_task(part) for part in parts]
            try:
                yield self
            finally:
                await self._clean_up()
                await end(*tasks)

    async def move_home(self) -> str:
        """Create another namespace for the release than the one of the sets, and give its name."""
        self.home = f"{self.namespace}-home"
        await self.cluster.create(ports.NAMESPACES, {"metadata": {"name": self.home}})
        return self.home

    def env(self, replica: str = "replica-0", **settings: str) -> dict[str, str]:
        return super().env(replica, **{"POD_NAMESPACE": self.home, **settings})

    def runtime_key(self, name: str = "digits") -> Key:
        """The runtime of a set."""
        return Key(self.home, runtime_name(self.namespace, name, self.home))

    async def create_set(self, name: str = "digits", **spec: Any) -> Key:
        """A set that may use the test's nodes, and its Secret."""
        await self.create(make_secret(name), ports.SECRETS)
        return await self.create_set_only(name, **spec)

    async def create_set_only(self, name: str = "digits", **spec: Any) -> Key:
        return await self.create(make_sample_set(name, tolerations=[toleration(self.namespace)], **spec))

    def phases(self) -> list[str]:
        """The phases that the set `digits` was seen in, without repetitions."""
        found = [o.get("status", {}).get("phase", "") for o in self.changes]
        return [p for i, p in enumerate(found) if p and (i == 0 or found[i - 1] != p)]

    async def labels(self, name: str = "digits") -> list[dict[str, str]]:
        """Labels of the set's nodes."""
        label = node_label(self.namespace, name)
        nodes = await self.cluster.list(ports.NODES, label_selector=label)
        return [node["metadata"]["labels"] for node in nodes]

    async def _record_changes(self) -> None:
        async for change in self.cluster.watch(ports.SAMPLE_SETS, self.namespace):
            if change.obj["metadata"]["name"] == "digits":
                self.changes.append(change.obj)

    async def _run_pods(self) -> None:
        """Run every scheduled pod of the test's namespaces, and end those that are being deleted."""
        async for change in self.cluster.watch(ports.PODS):
            is_ours = key_of(change.obj).namespace in (self.namespace, self.home)
            if is_ours and change.type != "DELETED":
                with suppress(NotFound):
                    await self._run_pod(change.obj)

    async def _run_pod(self, pod: Object) -> None:
        key = key_of(pod)
        if "deletionTimestamp" in pod["metadata"]:
            # The change may be an old one, and the next pod of that name runs.
            await self.cluster.delete(ports.PODS, key, uid=uid_of(pod), grace_seconds=0)
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
            await set_pod_status(self.cluster, key, "Running", ip="10.1.0.1")

    async def _clean_up(self) -> None:
        """Finalizers would keep the namespace once the service is stopped."""
        for resource in (ports.SAMPLE_JOBS, ports.SAMPLE_SETS):
            for obj in await self.objects(resource):
                key = self.key(obj["metadata"]["name"])
                with suppress(PaddlewheelError):
                    await self.cluster.delete(resource, key)
                    await self.cluster.patch(resource, key, {"metadata": {"finalizers": None}})
        if self.home != self.namespace:
            with suppress(NotFound):
                await self.cluster.delete(ports.NAMESPACES, Key("", self.home))
        for volume in await self.cluster.list(ports.PERSISTENT_VOLUMES):
            if volume["spec"].get("claimRef", {}).get("namespace") == self.namespace:
                await self.cluster.delete(ports.PERSISTENT_VOLUMES, Key("", volume["metadata"]["name"]))


@pytest.fixture
async def data(backends: Backends, nodes: list[str]) -> AsyncIterator[DataServiceHarness]:
    """No replica is started yet."""
    async with DataServiceHarness(DATASET_CONTROLLER, backends).opened() as opened:
        yield opened
