"""The real trigger-controller on a fast clock, against a real API server and a real NATS."""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.sockets import free_ports
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Object, Objects, Resource
from paddlewheel.testkit.service_harness import WITHIN, Backends, Replica, ServiceHarness, ServiceSpec
from paddlewheel.testkit.triggers import make_ready
from paddlewheel.testkit.wait import eventually

EXAMPLES = Path(__file__).parents[3] / "examples" / "triggers"
TRIGGER_CONTROLLER = ServiceSpec(
    "trigger_controller", TRIGGERS, "pw.evt.triggers.>", {"SOURCES": '{"images": ["*"]}'}
)
TOKEN, OLDER_TOKEN = "a-secret-of-the-store", "what-it-sent-before"
EVENT = "events.paddlepaddle.org/event"
EVENTS = "events.paddlepaddle.org/events"


class TriggerServiceHarness(ServiceHarness):
    """trigger-controller and everything a test asks of it."""

    def __init__(self, backends: Backends) -> None:
        super().__init__(TRIGGER_CONTROLLER, backends)
        self.port, self._health_port = free_ports(2)
        self.tokens = backends.directory / "tokens"
        """A file for each source."""

    async def serve(self, **settings: str) -> Replica:
        """Start the replica whose webhook answers on `port`; everything behind it is up."""
        self.tokens.mkdir(exist_ok=True)
        (self.tokens / "images").write_text(f"{OLDER_TOKEN}\n{TOKEN}\n")
        ports = {"HTTP_PORT": str(self._health_port), "WEBHOOK_PORT": str(self.port)}
        service = await self.start(**ports, WEBHOOK_TOKENS_DIR=str(self.tokens), **settings)
        await eventually(self._is_ready, within=WITHIN, what="trigger-controller is ready")
        return service

    async def _is_ready(self) -> bool:
        return (await self.readiness())[0] == 200

    async def readiness(self) -> tuple[int, str]:
        """Status and text of /readyz, 0 while nobody answers."""
        url = f"http://127.0.0.1:{self._health_port}/readyz"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def watched(self, trigger: Object) -> Key:
        """Create the trigger; return once the service has seen it: from then on its events count."""
        key = await self.create(trigger)

        async def is_seen() -> bool:
            return "observedGeneration" in await self.status(key)

        await eventually(is_seen, within=WITHIN, what=f"{key} is seen")
        return key

    async def example(self, name: str, **spec: Any) -> Key:
        """A Trigger of examples/triggers with parts of its spec replaced."""
        trigger = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        trigger["spec"] |= spec
        return await self.watched(trigger)

    async def wait_jobs(
        self, count: int, resource: Resource = SAMPLE_JOBS, within: float = WITHIN
    ) -> Objects:
        return await self.wait_objects(resource, count, within=within)

    async def wait_waiting(self, key: Key, events: int) -> None:
        """Until so many events wait in the status."""

        async def reached() -> bool:
            waiting = (await self.status(key)).get("waiting") or {}
            return bool(waiting.get("events") == events)

        await eventually(reached, within=WITHIN, what=f"{events} events wait in {key}")

    async def end(self, job: Object, phase: str = "Succeeded") -> None:
        """Play the controller that runs the job."""
        resource = SAMPLE_JOBS if job["kind"] == "SampleJob" else PADDLE_JOBS
        await self.set_status(self.key(job["metadata"]["name"]), {"phase": phase}, resource)

    async def publish_ready(self, event_id: str, name: str = "digits") -> Event:
        """SampleSetReady of a set of the test's namespace."""
        event = make_ready(event_id, self.namespace, name)
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

        await eventually(taken, within=WITHIN, what=f"{event.id} is stored")

    async def post(
        self, body: bytes, source: str = "images", token: str = TOKEN, tls: ssl.SSLContext | None = None
    ) -> tuple[int, str]:
        """As an object store would; gives status and text."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/v1/sources/s3/{source}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=io.BytesIO(body), headers=headers, ssl=tls or True) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def harness(backends: Backends) -> AsyncIterator[TriggerServiceHarness]:
    """No replica is started yet."""
    async with TriggerServiceHarness(backends).opened() as opened:
        yield opened
