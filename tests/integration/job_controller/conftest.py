"""The real job-controller as a process, against a real API server and a real NATS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Cluster, Object
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class JobBench:
    """What a test does and sees: jobs, their pods, their facts."""

    def __init__(self, cluster: Cluster, namespace: str, bus: Bus) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.bus = bus
        self.events: list[Event] = []

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def create(self, job: Object) -> Key:
        job["metadata"]["namespace"] = self.namespace
        await self.cluster.create(PADDLE_JOBS, job)
        return self.key(job["metadata"]["name"])

    async def status(self, key: Key) -> Object:
        return (await self.cluster.get(PADDLE_JOBS, key)).get("status") or {}

    async def wait_phase(self, key: Key, phase: str, within: float = 40) -> Object:
        async def reached() -> Object | None:
            status = await self.status(key)
            return status if status.get("phase") == phase else None

        found = await eventually(reached, within=within, what=f"{key} is {phase}")
        assert found is not None
        return found

    async def pods(self, key: Key) -> list[str]:
        """Names of the job's pods."""
        pods = await self.cluster.list(PODS, key.namespace)
        return [n for p in pods if (n := p["metadata"]["name"]).startswith(f"{key.name}-")]

    async def wait_pods(self, key: Key, count: int, within: float = 40) -> list[str]:
        async def there() -> list[str]:
            names = await self.pods(key)
            return names if len(names) == count else []

        return await eventually(there, within=within, what=f"{count} pods of {key}")

    async def set_pods(self, key: Key, phase: str, **status: Any) -> None:
        """Play the kubelet for all pods of the job."""
        pods = enumerate(await self.pods(key))
        ips = ((f"10.1.{i // 250}.{i % 250 + 1}", self.key(name)) for i, name in pods)
        await asyncio.gather(*(set_pod_status(self.cluster, p, phase, ip=ip, **status) for ip, p in ips))

    async def listen(self) -> None:
        """Collect every job fact, from the stream's beginning on."""
        async for delivery in self.bus.read(Reading(("pw.evt.jobs.>",), BEGINNING)):
            self.events.append(delivery.event)

    def facts(self, key: Key) -> list[str]:
        """Names of the job's facts, in the order of the stream."""
        mine = (e for e in self.events if getattr(e.data, "job", None) and e.data.job.name == key.name)  # type: ignore[attr-defined]
        return [e.type.rpartition(".")[2] for e in mine]

    async def wait_facts(self, key: Key, *expected: str, within: float = 30) -> None:
        await eventually(
            lambda: self.facts(key) == list(expected), within=within, what=f"{expected}; {self.facts(key)}"
        )

    async def is_gone(self, key: Key) -> bool:
        try:
            await self.cluster.get(PADDLE_JOBS, key)
        except NotFound:
            return True
        return False


OpenBench = Callable[[str], AbstractAsyncContextManager[JobBench]]


@pytest.fixture
def service_env(api_server: str, namespace: str, nats_url: str) -> dict[str, str]:
    return {
        **os.environ,
        "JOB_CONTROLLER_KUBECONFIG": api_server,
        "JOB_CONTROLLER_NATS_URL": nats_url,
        "JOB_CONTROLLER_NAMESPACE": namespace,
        "JOB_CONTROLLER_HTTP_PORT": "0",
        "JOB_CONTROLLER_PUBLISH_RETRY": "0.5",
    }


@pytest.fixture
async def service(service_env: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    """Not started yet."""
    made = Service("job_controller", service_env, tmp_path / "job-controller.log")
    yield made
    await made.stop()


@pytest.fixture
def open_bench(cluster: Cluster, namespace: str) -> OpenBench:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[JobBench]:
        bus = await bus_library.connect(url, name="test")
        bench = JobBench(cluster, namespace, bus)
        listening = asyncio.create_task(bench.listen())
        try:
            yield bench
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await bus.close()

    return opened


@pytest.fixture
async def bench(open_bench: OpenBench, nats_url: str) -> AsyncIterator[JobBench]:
    async with open_bench(nats_url) as opened:
        yield opened


@pytest.fixture
async def start_replica(
    service_env: dict[str, str], namespace: str, tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable[Service]]]:
    """Starts replicas that share the jobs."""
    started: list[Service] = []

    async def start(name: str) -> Service:
        own = {"REPLICAS_SHARE": "true", "POD_NAME": name, "POD_NAMESPACE": namespace}
        env = service_env | {f"JOB_CONTROLLER_{k}": v for k, v in own.items()}
        replica = Service("job_controller", env, tmp_path / f"{name}.log")
        started.append(replica)
        await replica.start()
        return replica

    yield start
    for replica in started:
        await replica.stop()
