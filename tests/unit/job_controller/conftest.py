"""job-controller under the harness: its own `app.build` over fakes, no sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from job_controller.app import build
from job_controller.config import Settings
from job_controller.timing import FIRST_STATUS_GRACE_SECONDS
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, SERVICES, Object
from paddlewheel.testkit.harness import Fakes, Harness
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.operators import OperatorReplica

SETTINGS = Settings()
GATED = {"gate_image": "example/gate:1", "gate_url": "http://job-controller.paddle-system.svc:8080"}
"""Settings with which pods have a gate."""


class JobHarness(Harness[OperatorReplica]):
    """One job-controller. `settings` are those of `Settings`, by field."""

    def __init__(self, fakes: Fakes | None = None, **settings: Any) -> None:
        made = partial(build, Settings(**settings) if settings else SETTINGS)
        super().__init__(
            lambda fakes, wake_of: OperatorReplica(fakes, wake_of, made, PADDLE_JOBS), JOBS, fakes
        )

    async def reconcile_stale(self, key: Key) -> Result:
        """One pass with the caches as they are."""
        return await self.replica.reconcilers[PADDLE_JOBS](key)

    async def pod_names(self) -> list[str]:
        return await self.names(PODS)

    async def service_names(self) -> list[str]:
        return await self.names(SERVICES)

    async def config(self, key: Key) -> dict[str, str]:
        """Data of the job's ConfigMap."""
        data: dict[str, str] = (await self.get(key, CONFIG_MAPS))["data"]
        return data

    async def begin(self, job: Object) -> Key:
        """Create a job, and wait until its pods are made and its first status is written."""
        key = await self.create(job)
        await self.settle(key)
        await self.advance(FIRST_STATUS_GRACE_SECONDS)
        return key

    async def restarts(self, key: Key) -> tuple[int, dict[str, int]]:
        """Epoch, and restarts by cause."""
        status = await self.status(key)
        return status.get("epoch", 0), status.get("restarts", {})

    async def announced(self, key: Key) -> dict[str, bool]:
        """Whether each recorded fact is confirmed as published, by name."""
        return {a["fact"]: a["announced"] for a in (await self.status(key))["announcements"]}

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


OpenHarness = Callable[..., AbstractAsyncContextManager[JobHarness]]


@pytest.fixture
def fakes() -> Fakes:
    return Fakes.create()


@pytest.fixture
def open_harness(fakes: Fakes) -> OpenHarness:
    """Runs a controller with the given settings; all of a test share the same API server and bus."""
    return lambda **settings: JobHarness(fakes, **settings).running()


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[JobHarness]:
    async with open_harness() as running:
        yield running
