"""trigger-controller under the harness: its own `app.build` over fakes, no sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.bus.streams import DATASETS, TRIGGERS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.kube import ports
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, Object, Objects
from paddlewheel.testkit.harness import Fakes, Harness
from paddlewheel.testkit.operators import OperatorReplica
from paddlewheel.testkit.triggers import make_ready, s3_body, s3_record
from trigger_controller.app import build
from trigger_controller.config import Settings
from trigger_controller.metrics import Metrics
from trigger_controller.webhook import Webhook

WARM = Key("default", "warm")
SETTINGS = Settings(sources={"images": ("*",), "logs": ("team-a",)})
NO_TOKENS = Path("/nonexistent")
"""What is stored here has not come by HTTP."""


class TriggerHarness(Harness[OperatorReplica]):
    """One trigger-controller. Methods about one trigger are about `warm` when no key is given."""

    def __init__(self, fakes: Fakes | None = None) -> None:
        made = partial(build, SETTINGS)
        super().__init__(
            lambda fakes, wake_of: OperatorReplica(fakes, wake_of, made, ports.TRIGGERS), TRIGGERS, fakes
        )
        self.webhook = Webhook(self.bus, self.clock, Metrics(), NO_TOKENS)

    async def apply(self, trigger: Object) -> Object:
        """As kubectl would, and the controller has dealt with it."""
        created = await self.cluster.create(ports.TRIGGERS, trigger)
        await self.drain_queue()
        return created

    async def publish(self, *events: Event) -> None:
        """Facts on the bus, and the controller has dealt with them."""
        for event in events:
            await self.bus.publish(event)
        await self.drain_queue()

    async def publish_again(self, event: Event) -> None:
        """The same message once more, after the stream has forgotten that it has it."""
        await self.clock.advance(DATASETS.duplicate_window + 1)
        await self.publish(event)

    def make_ready(self, event_id: str, **where: str) -> Event:
        """SampleSetReady of now."""
        return make_ready(event_id, time=self.clock.now(), **where)

    async def publish_ready(self, *event_ids: str) -> None:
        """SampleSetReady, each of another set where there are several."""
        several = len(event_ids) > 1
        sets = [f"set-{event_id}" if several else "digits" for event_id in event_ids]
        await self.publish(*(self.make_ready(e, name=name) for e, name in zip(event_ids, sets, strict=True)))

    async def notify(self, *keys: str, n: int = 1) -> None:
        """An object store posts that these keys were written."""
        await self.webhook.store("images", s3_body(*(s3_record(key, n=n) for key in keys)))
        await self.drain_queue()

    async def sample_jobs(self) -> Objects:
        return await self.objects(SAMPLE_JOBS)

    async def paddle_jobs(self) -> Objects:
        return await self.objects(PADDLE_JOBS)

    async def end(self, job: Object, phase: str = "Succeeded") -> None:
        """Play the controller that runs the job."""
        resource = SAMPLE_JOBS if job["kind"] == "SampleJob" else PADDLE_JOBS
        await self.set_status(Key("default", job["metadata"]["name"]), {"phase": phase}, resource)
        await self.drain_queue()

    async def change(self, spec: Object, key: Key = WARM) -> None:
        """Patch the spec, and the controller has dealt with it."""
        await self.patch(key, {"spec": spec})
        await self.drain_queue()

    async def delete_job(self, job: Object) -> None:
        await self.delete(Key("default", job["metadata"]["name"]), SAMPLE_JOBS)
        await self.drain_queue()

    async def status_of(self, name: str = "warm") -> Object:
        return await self.status(Key("default", name))

    async def condition_of(self, type_: str, name: str = "warm") -> Object:
        return await self.condition(Key("default", name), type_)

    def jobs_created(self) -> int:
        """SampleJobs created, also those gone since."""
        return self.cluster.writes["create", "samplejobs"]

    def status_writes(self) -> int:
        return self.cluster.writes["patch-status", "triggers"]

    async def event_reasons(self) -> list[tuple[str, str]]:
        return [(event.type, event.reason) for event in await self.kubernetes_events()]


OpenHarness = Callable[[], AbstractAsyncContextManager[TriggerHarness]]


def events_of(job: Object) -> Any:
    """How many events the job was created for."""
    return job["metadata"]["annotations"]["events.paddlepaddle.org/events"]


def event_of(job: Object) -> Any:
    """ce-id of the event the job was created for."""
    return job["metadata"]["annotations"]["events.paddlepaddle.org/event"]


@pytest.fixture
def fakes() -> Fakes:
    return Fakes.create()


@pytest.fixture
def open_harness(fakes: Fakes) -> OpenHarness:
    """Runs a controller; all of a test share the same API server and bus."""
    return lambda: TriggerHarness(fakes).running()


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[TriggerHarness]:
    async with open_harness() as running:
        yield running
