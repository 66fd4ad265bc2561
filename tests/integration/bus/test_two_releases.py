"""Two releases side by side on one bus, as during an upgrade: the older has the last release's contracts."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.bus.suite import letters, running

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated, JobResumed
from paddlewheel.testkit import bare_client, released
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

OLDER = Path(__file__).parent / "older_release.py"
EACH = 20


def make_fact(data: JobGated | JobResumed, number: int) -> Event:
    """Of an object of its own."""
    name = type(data).__name__
    uid = f"uid-{name}-{number}".lower()
    return make_event(
        data,
        id=f"{uid}/{name}/0",
        source="test",
        namespace="default",
        uid=uid,
        time=datetime.now(UTC),
    )


class Process:
    """The older consumer, and what it has handled."""

    def __init__(self) -> None:
        self.handled: Counter[str] = Counter()

    async def listen(self, url: str, durable: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(OLDER), url, durable, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                self.handled[line.decode().strip()] += 1
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def both_releases(
    bus: NatsBus, url: str, newer: str, older: str
) -> AsyncIterator[tuple[Counter[str], Counter[str]]]:
    """What the newer and the older consumer have handled."""
    handled: Counter[str] = Counter()

    async def handle(delivery: Delivery) -> None:
        handled[type(delivery.event.data).__name__] += 1

    process = Process()
    subscription = Subscription(newer, JOBS.name, JOBS.subjects)
    async with running(process.listen(url, older), bus.consume(subscription, handle)):
        yield handled, process.handled


def test_the_last_release_lacks_a_fact_that_this_one_has() -> None:
    """Or nothing is tested: choose a newer fact after `make snapshot`."""
    known = released.messages()
    assert (JobGated.proto_name in known, JobResumed.proto_name in known) == (True, False)


async def publish_newer(bus: NatsBus, url: str) -> None:
    """Known facts, those that the older release lacks, and known ones with a field that neither knows."""
    client = await bare_client.connect(url)
    for number in range(EACH):
        await bus.publish(make_fact(JobResumed(), number))
        body, headers = wire.encode(make_fact(JobGated(message=str(number)), number))
        wider = body[:-1] + b', "colour": "red"}'
        subject = make_fact(JobGated(), number).subject
        await client.jetstream().publish(subject, wider, headers=headers)
    await client.close()


async def test_the_older_release_skips_what_it_does_not_know_and_handles_all_else(
    bus: NatsBus, nats_url: str
) -> None:
    async with both_releases(bus, nats_url, "newer", "older") as (newer, older):
        await publish_newer(bus, nats_url)
        await eventually(lambda: newer == {"JobResumed": EACH, "JobGated": EACH})
        await eventually(lambda: older == {"JobGated": EACH})
        await eventually(is_done(bus, "older"))
    assert await letters(bus) == []


async def test_replicas_of_both_releases_share_a_durable_and_park_nothing(
    bus: NatsBus, nats_url: str
) -> None:
    async with both_releases(bus, nats_url, "shared", "shared") as (newer, older):
        await publish_newer(bus, nats_url)
        await eventually(lambda: newer["JobGated"] + older["JobGated"] == EACH)
        await eventually(is_done(bus, "shared"))
    assert await letters(bus) == []
    assert older["JobResumed"] == 0


async def test_the_newer_release_reads_facts_of_the_older_with_fields_missing(
    bus: NatsBus, nats_url: str
) -> None:
    client = await bare_client.connect(nats_url)
    async with both_releases(bus, nats_url, "newer", "older") as (newer, older):
        for number in range(EACH):
            event = make_fact(JobGated(), number)
            _, headers = wire.encode(event)
            await client.jetstream().publish(event.subject, b"{}", headers=headers)
        await eventually(lambda: newer == older == {"JobGated": EACH})
    await client.close()
    assert await letters(bus) == []


def is_done(bus: NatsBus, durable: str) -> Callable[[], Awaitable[bool]]:
    """Every message has been delivered and acknowledged."""

    async def check() -> bool:
        info = await (await bus._connection.jetstream()).consumer_info(JOBS.name, durable)
        return (info.num_pending, info.num_ack_pending) == (0, 0)

    return check
