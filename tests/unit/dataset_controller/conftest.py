"""dataset-controller under the harness: its own `app.build` over fakes, Kubernetes and agents simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from dataset_controller.app import build
from dataset_controller.config import Settings
from paddlewheel.bus.streams import DATASETS, NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.dataset_names import node_label, runtime_name
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import annotations_of, spec_of, uid_of
from paddlewheel.core.errors import AlreadyExists
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.testkit.harness import Fakes, Harness
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.operators import OperatorReplica
from paddlewheel.testkit.samplesets import ScriptedRuntime, make_sample_set, make_secret

SET = Key("default", "digits")
JOB = Key("default", "job")
RUNTIME = Key("default", "digits-runtime")
HOME = "paddle-system"
"""The namespace of the release where it is not that of the set."""
FAR_RUNTIME = Key(HOME, runtime_name("default", "digits", HOME))
LABEL = node_label("default", "digits")
ROUNDS = 100
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@dataclass
class Kubernetes:
    """Binds claims and runs StatefulSets on `nodes`, as controllers, scheduler and kubelet would."""

    cluster: MemoryCluster
    nodes: tuple[str, ...] = ("node-0", "node-1", "node-2")
    unready: set[str] = field(default_factory=set)

    async def start(self) -> None:
        for name in self.nodes:
            with suppress(AlreadyExists):
                await self.cluster.create(ports.NODES, {"metadata": {"name": name}})

    async def settle(self) -> None:
        """One step of every controller."""
        volumes = await self.cluster.list(ports.PERSISTENT_VOLUMES)
        claims = await self.cluster.list(ports.PERSISTENT_VOLUME_CLAIMS)
        for claim in claims:
            if any(_is_seen(volume, claim) for volume in volumes):
                await self._set_status(ports.PERSISTENT_VOLUME_CLAIMS, claim, {"phase": "Bound"})
        for volume in volumes:
            phase = "Available"
            if claimant := _claimant(volume):
                is_there = any(claim["metadata"]["uid"] == claimant for claim in claims)
                phase = "Bound" if is_there else "Released"
            await self._set_status(ports.PERSISTENT_VOLUMES, volume, {"phase": phase})
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
        ready, waits = 0, spec["podManagementPolicy"] != "Parallel"
        for index, name in enumerate(wanted):
            if name not in pods:
                await self._create_pod(owner, name, self.nodes[index])
            elif name in self.unready:
                await self._set_status(ports.PODS, pods[name], {"phase": "Pending", "conditions": []})
            else:
                await self._set_status(ports.PODS, pods[name], READY)
                ready += 1
                continue
            if waits:
                break
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


def _is_seen(volume: Object, claim: Object) -> bool:
    """The volume is the claim's, and the binder has noticed it before the claim was made, or changed."""
    owner, told = _claimant(volume), annotations_of(claim).get("paddlepaddle.org/volume-uid")
    return not owner or (owner == uid_of(claim) and told == uid_of(volume))


def _claimant(volume: Object) -> str:
    return str((spec_of(volume).get("claimRef") or {}).get("uid") or "")


DEFAULTS: dict[str, Any] = {
    "pod_name": "replica-0",
    "runtime_image": "runtime:1",
    "nats_url": "nats://bus:4222",
    "replicas_share": False,
}
SETTINGS = Settings(**DEFAULTS)


class DataHarness(Harness[OperatorReplica]):
    """One dataset-controller and the world around it. `settings` are those of `Settings`, by field."""

    def __init__(self, fakes: Fakes | None = None, **settings: Any) -> None:
        made = partial(build, Settings(**(DEFAULTS | settings)) if settings else SETTINGS)
        super().__init__(
            lambda fakes, wake_of: OperatorReplica(
                fakes, wake_of, made, ports.SAMPLE_SETS, ports.SAMPLE_JOBS
            ),
            DATASETS,
            fakes,
        )
        self.kubernetes = Kubernetes(self.cluster)
        self.runtime = ScriptedRuntime(self.bus)
        self.phases: list[str] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[DataHarness]:
        """With the service, agents and nodes."""
        await self.kubernetes.start()
        tasks = [asyncio.create_task(part) for part in (self.runtime.run(), self._follow_phases())]
        try:
            async with self.running():
                yield self
        finally:
            await end(*tasks)

    async def drive(self) -> None:
        """Let the service, Kubernetes and the agents work until nothing changes; delayed keys wait."""
        for _ in range(ROUNDS):
            before = self._versions()
            await self.drain_queue()
            await self.kubernetes.settle()
            await self.catch_up()
            if before == self._versions() and not self.woken:
                return
        raise AssertionError(f"the world does not settle: {self.woken}")

    def _versions(self) -> tuple[int, int]:
        return sum(self.cluster.writes.values()), len(self.runtime.seen)

    async def wait(self, seconds: float) -> None:
        """Let time pass second by second, and the world work."""
        for _ in range(round(seconds)):
            await self.advance(1)
            await self.drive()

    async def start_set(self, **spec: Any) -> str:
        """A set with its Secret, driven as far as it goes; gives its uid."""
        await self.create(make_secret(), ports.SECRETS)
        await self.create(make_sample_set(**spec))
        await self.drive()
        return str((await self.get(SET))["metadata"]["uid"])

    async def ready_set(self, **spec: Any) -> str:
        """Gives the uid of a set that is Ready."""
        uid = await self.start_set(**spec)
        await self.expect_phase("Ready")
        return uid

    async def create_job(self, job: Object) -> None:
        """Driven as far as it goes."""
        await self.create(job, ports.SAMPLE_JOBS)
        await self.drive()

    async def expect_phase(self, phase: str, key: Key = SET, resource: Resource | None = None) -> Object:
        """The object's status, which is in this phase."""
        status = await self.status(key, resource)
        assert status.get("phase", "") == phase, status
        return status

    async def expect_job(self, phase: str, name: str = "job") -> Object:
        return await self.expect_phase(phase, Key("default", name), ports.SAMPLE_JOBS)

    async def expect_condition(
        self, type_: str, reason: str, key: Key = SET, resource: Resource | None = None
    ) -> Object:
        condition = await self.condition(key, type_, resource)
        assert condition["reason"] == reason, condition
        return condition

    async def announcements(
        self, key: Key = SET, resource: Resource | None = None
    ) -> list[tuple[str, int, bool]]:
        """Recorded facts: name, attempt, and whether the status says that they are published."""
        found = (await self.status(key, resource)).get("announcements") or ()
        return [(a["fact"], a["attempt"], a["announced"]) for a in found]

    async def event_reasons(self) -> set[tuple[str, str]]:
        """Type and reason of all Kubernetes Events."""
        return {(event.type, event.reason) for event in await self.kubernetes_events()}

    async def records(self) -> list[str]:
        """Keys in the buckets."""
        buckets = (self.bus.key_value(RUNS_BUCKET), self.bus.key_value(NODES_BUCKET))
        return [entry.key for bucket in buckets for entry in await bucket.entries(">")]

    async def labels(self) -> Mapping[str, str]:
        """The set's label by node."""
        found = {
            n["metadata"]["name"]: n["metadata"].get("labels", {}).get(LABEL)
            for n in await self.objects(ports.NODES)
        }
        return {name: value for name, value in found.items() if value is not None}

    async def _follow_phases(self) -> None:
        async for change in self.cluster.watch(ports.SAMPLE_SETS):
            phase = change.obj.get("status", {}).get("phase")
            if phase and (not self.phases or self.phases[-1] != phase):
                self.phases.append(phase)


OpenData = Callable[..., AbstractAsyncContextManager[DataHarness]]


@pytest.fixture
def open_data() -> OpenData:
    """Opens a harness with settings of one's own."""
    return lambda **settings: DataHarness(**settings).opened()


@pytest.fixture
async def far() -> AsyncIterator[DataHarness]:
    """The same, with the service in another namespace than the sets."""
    async with DataHarness(pod_namespace=HOME).opened() as harness:
        yield harness


@pytest.fixture
async def data() -> AsyncIterator[DataHarness]:
    """The service and its world."""
    async with DataHarness().opened() as harness:
        yield harness
