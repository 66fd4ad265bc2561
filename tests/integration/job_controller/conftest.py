"""The real job-controller on a fast clock, against a real API server and a real NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_JOBS, PODS
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.service_harness import WITHIN, Backends, ServiceHarness, ServiceSpec
from paddlewheel.testkit.wait import eventually

JOB_CONTROLLER = ServiceSpec("job_controller", PADDLE_JOBS, "pw.evt.jobs.>")


class JobServiceHarness(ServiceHarness):
    """Jobs and their pods; the test plays the kubelet."""

    async def pods(self, key: Key) -> list[str]:
        """Names of the job's pods."""
        names = [str(pod["metadata"]["name"]) for pod in await self.objects(PODS)]
        return [name for name in names if name.startswith(f"{key.name}-")]

    async def wait_pods(self, key: Key, count: int, within: float = WITHIN) -> list[str]:
        """Wait until the job has exactly this many. Returns their names."""

        async def there() -> tuple[list[str]] | None:
            names = await self.pods(key)
            return (names,) if len(names) == count else None

        return (await eventually(there, within=within, what=f"{count} pods of {key}"))[0]

    async def set_pods(self, key: Key, phase: str, **status: Any) -> None:
        """Play the kubelet for all pods of the job."""
        pods = enumerate(await self.pods(key))
        ips = ((f"10.1.{i // 250}.{i % 250 + 1}", self.key(name)) for i, name in pods)
        await asyncio.gather(*(set_pod_status(self.cluster, p, phase, ip=ip, **status) for ip, p in ips))

    async def to_running(self, name: str) -> Key:
        """A job of two workers that is running."""
        key = await self.create(make_paddle_job(name, cleanPodPolicy="Never", worker=make_role(2)))
        await self.wait_pods(key, 2)
        await self.set_pods(key, "Running")
        await self.wait_phase(key, "Running")
        return key

    async def to_end(self, key: Key) -> None:
        """All its pods succeed."""
        await self.set_pods(key, "Succeeded")
        await self.wait_phase(key, "Completed")

    async def announced(self, key: Key) -> dict[str, bool]:
        """Recorded facts by name: whether the status has them as published."""
        return {a["fact"]: a["announced"] for a in (await self.status(key))["announcements"]}


@pytest.fixture
async def jobs(backends: Backends) -> AsyncIterator[JobServiceHarness]:
    """No replica is started yet."""
    async with JobServiceHarness(JOB_CONTROLLER, backends).opened() as opened:
        yield opened
