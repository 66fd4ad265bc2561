"""The real trigger-controller as a process, against a real API server and a real NATS."""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import EVENTS, PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Cluster, Object
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.triggers import make_ready
from paddlewheel.testkit.wait import eventually

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[3] / "examples" / "triggers"
JOBS = {"SampleJob": SAMPLE_JOBS, "PaddleJob": PADDLE_JOBS}


class TriggerBench:
    """What a test does and sees."""

    def __init__(self, cluster: Cluster, namespace: str, bus: Bus, port: int) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.bus = bus
        self.port = port
        self.events: list[Event] = []

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def create(self, trigger: Object) -> Key:
        """Return once the service has seen it: from then on it hears."""
        trigger["metadata"]["namespace"] = self.namespace
        await self.cluster.create(TRIGGERS, trigger)
        key = self.key(trigger["metadata"]["name"])
        await eventually(lambda: self._is_seen(key), within=40, what=f"{key} is seen")
        return key

    async def example(self, name: str, **spec: Any) -> Key:
        """A Trigger of examples/triggers with parts of its spec replaced."""
        trigger = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        trigger["spec"] |= spec
        return await self.create(trigger)

    async def _is_seen(self, key: Key) -> bool:
        return "observedGeneration" in await self.status(key)

    async def status(self, key: Key) -> Object:
        return (await self.cluster.get(TRIGGERS, key)).get("status") or {}

    async def wait_status(self, key: Key, within: float = 40, **wanted: Any) -> Object:
        async def reached() -> Object | None:
            status = await self.status(key)
            return status if {name: status.get(name) for name in wanted} == wanted else None

        found = await eventually(reached, within=within, what=f"{key} has {wanted}")
        assert found is not None
        return found

    async def wait_condition(self, key: Key, type_: str, reason: str, within: float = 40) -> Object:
        async def reached() -> Object | None:
            conditions = (await self.status(key)).get("conditions") or ()
            return next((c for c in conditions if (c["type"], c["reason"]) == (type_, reason)), None)

        found = await eventually(reached, within=within, what=f"{key} is {type_} {reason}")
        assert found is not None
        return found

    async def jobs(self, kind: str = "SampleJob") -> list[Object]:
        return await self.cluster.list(JOBS[kind], self.namespace)

    async def wait_jobs(self, count: int, kind: str = "SampleJob", within: float = 40) -> list[Object]:
        async def there() -> list[Object]:
            jobs = await self.jobs(kind)
            return jobs if len(jobs) == count else []

        return await eventually(there, within=within, what=f"{count} {kind}s")

    async def end(self, job: Object, phase: str = "Succeeded") -> None:
        """Play the controller that runs the job."""
        key = self.key(job["metadata"]["name"])
        patch = {"status": {"phase": phase}}
        await self.cluster.patch(JOBS[job["kind"]], key, patch, subresource="status")

    async def ready(self, event_id: str, **where: Any) -> Event:
        event = make_ready(event_id, self.namespace, **where)
        await self.publish(event)
        return event

    async def publish(self, event: Event) -> None:
        """As every publisher has to: what the bus did not take is published again under its id."""

        async def taken() -> bool:
            try:
                await self.bus.publish(event)
            except Retry:
                return False
            return True

        await eventually(taken, within=30, what=f"{event.id} is stored")

    async def post(self, body: bytes, source: str = "images", token: str = "") -> tuple[int, str]:
        """As an object store would; gives status and text."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{self.port}/v1/sources/s3/{source}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=io.BytesIO(body), headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    async def wait_serving(self) -> None:
        """The webhook answers and everything behind it is there."""

        async def ready() -> bool:
            url = f"http://127.0.0.1:{self.port}/readyz"
            try:
                async with aiohttp.ClientSession() as session, session.get(url) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(ready, within=40, what="trigger-controller is ready")

    async def listen(self) -> None:
        """Collect every fact about triggers, from the stream's beginning on."""
        async with aclosing(self.bus.read(Reading(("pw.evt.triggers.>",), BEGINNING))) as told:
            async for delivery in told:
                self.events.append(delivery.event)

    def facts(self) -> list[str]:
        return [e.type.rpartition(".")[2] for e in self.events]

    async def notes(self) -> list[Object]:
        """Kubernetes events on triggers."""
        listed = await self.cluster.list(EVENTS, self.namespace)
        return [e for e in listed if e["involvedObject"]["kind"] == "Trigger"]


@pytest.fixture
def http_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def service_env(api_server: str, namespace: str, nats_url: str, http_port: int) -> dict[str, str]:
    own = {
        "KUBECONFIG": api_server,
        "NATS_URL": nats_url,
        "NAMESPACE": namespace,
        "HTTP_PORT": str(http_port),
    }
    return {**os.environ, **{f"TRIGGER_CONTROLLER_{name}": value for name, value in own.items()}}


@pytest.fixture
async def service(service_env: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    """Not started yet."""
    made = Service("trigger_controller", service_env, tmp_path / "trigger-controller.log")
    yield made
    await made.stop()


@pytest.fixture
async def start_replica(
    service_env: dict[str, str], tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable[Service]]]:
    """Starts replicas that share the durables."""
    started: list[Service] = []

    async def start(name: str) -> Service:
        env = service_env | {"TRIGGER_CONTROLLER_HTTP_PORT": "0", "TRIGGER_CONTROLLER_POD_NAME": name}
        replica = Service("trigger_controller", env, tmp_path / f"{name}.log")
        started.append(replica)
        await replica.start()
        return replica

    yield start
    for replica in started:
        await replica.stop()


@pytest.fixture
async def bench(
    cluster: Cluster, namespace: str, nats_url: str, http_port: int
) -> AsyncIterator[TriggerBench]:
    bus = await bus_library.connect(nats_url, name="test")
    opened = TriggerBench(cluster, namespace, bus, http_port)
    listening = asyncio.create_task(opened.listen())
    try:
        yield opened
    finally:
        await end(listening)
        await bus.close()
