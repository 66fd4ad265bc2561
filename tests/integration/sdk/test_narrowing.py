"""What the server delivers to a subscription to one job of a busy namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest
from nats.js import JetStreamContext
from pydantic import BaseModel

import paddlewheel
from paddlewheel.bus.nats.ephemeral import BATCH
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.events import make_event
from paddlewheel.sdk import Event, JobAccepted, JobDeleted, JobGated, JobSucceeded, ObjectRef
from paddlewheel.testkit import bare_client

OTHERS = 20
"""Other jobs of the namespace."""


class Jobs:
    """Publishes facts of jobs in namespace team-a."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._number = 0

    async def publish(self, fact: type[BaseModel], name: str, uid: str, count: int = 1) -> list[str]:
        events = []
        for _ in range(count):
            self._number += 1
            job = ObjectRef(namespace="team-a", name=name, uid=uid)
            id_, now = f"{uid}/{fact.__name__}/{self._number}", datetime.now(UTC)
            events.append(
                make_event(fact(job=job), id=id_, source="test", namespace="team-a", uid=uid, time=now)
            )
        for event in events:
            await self._bus.publish(event)
        return [event.id for event in events]

    async def publish_others(self, count: int) -> None:
        """So many facts that repeat, of each other job."""
        for number in range(OTHERS):
            await self.publish(JobGated, f"other-{number}", f"o{number}", count)

    async def accept_others(self) -> None:
        for number in range(OTHERS):
            await self.publish(JobAccepted, f"other-{number}", f"o{number}")


@pytest.fixture
def jobs(bus: Bus) -> Jobs:
    return Jobs(bus)


@pytest.fixture
async def jetstream(nats_url: str) -> AsyncIterator[JetStreamContext]:
    client = await bare_client.connect(nats_url)
    yield client.jetstream()
    await client.close()


async def delivered(jetstream: JetStreamContext) -> int:
    """How many messages the server has delivered through all consumers of the stream."""
    consumers = await jetstream.consumers_info(JOBS.name)
    return sum(info.delivered.consumer_seq for info in consumers if info.delivered)


async def take(events: AsyncIterator[Event], count: int) -> list[str]:
    async with asyncio.timeout(90):
        return [(await anext(events)).id for _ in range(count)]


@pytest.mark.parametrize("durable", ["", "me"])
async def test_stored_facts_of_other_jobs_stay_on_the_server(
    jobs: Jobs, jetstream: JetStreamContext, nats_url: str, durable: str
) -> None:
    await jobs.accept_others()
    own = await jobs.publish(JobAccepted, "resnet", "u1")
    await jobs.publish_others(100)
    own += await jobs.publish(JobSucceeded, "resnet", "u1")
    source = paddlewheel.events(url=nats_url, job="team-a/resnet", follow=False, durable=durable)
    async with aclosing(source) as events:
        assert [event.id async for event in events] == own
    # The first batch, the first facts of all jobs, and what is wanted together with those.
    assert await delivered(jetstream) <= BATCH + 3 * (OTHERS + len(own))


@pytest.mark.parametrize("durable", ["", "me"])
async def test_live_facts_of_other_jobs_stay_on_the_server(
    jobs: Jobs, jetstream: JetStreamContext, nats_url: str, durable: str
) -> None:
    own = await jobs.publish(JobAccepted, "resnet", "u1")
    await jobs.publish(JobGated, "other", "o0")
    own += await jobs.publish(JobGated, "resnet", "u1")
    source = paddlewheel.events(url=nats_url, job="team-a/resnet", since="all", durable=durable)
    async with aclosing(source) as events:
        assert await take(events, 2) == own
        before = await delivered(jetstream)
        await jobs.publish_others(20)
        last = await jobs.publish(JobSucceeded, "resnet", "u1")
        assert await take(events, 1) == last
        assert await delivered(jetstream) <= before + 2


@pytest.mark.parametrize("durable", ["", "me"])
async def test_a_job_created_again_under_the_name_is_followed(
    jobs: Jobs, nats_url: str, durable: str
) -> None:
    own = await jobs.publish(JobAccepted, "resnet", "u1")
    await jobs.publish(JobGated, "other", "o0")
    source = paddlewheel.events(url=nats_url, job="team-a/resnet", since="all", durable=durable)
    async with aclosing(source) as events:
        assert await take(events, 1) == own
        for uid in ("u2", "u3"):
            wanted = []
            for fact in (JobAccepted, JobGated, JobSucceeded, JobDeleted):
                await jobs.publish(JobGated, "other", "o0", 5)
                wanted += await jobs.publish(fact, "resnet", uid)
            assert await take(events, 4) == wanted


@pytest.mark.parametrize("durable", ["", "me"])
async def test_a_job_that_does_not_exist_yet_is_waited_for(
    jobs: Jobs, jetstream: JetStreamContext, nats_url: str, durable: str
) -> None:
    await jobs.publish(JobGated, "other", "o0", 3)
    source = paddlewheel.events(url=nats_url, job="team-a/resnet", since="all", durable=durable)
    async with aclosing(source) as events:
        waiting = asyncio.ensure_future(anext(events))
        # The name is not known: any fact may be the first one seen of it.
        await jobs.publish(JobGated, "other", "o0", 3)
        own = await jobs.publish(JobGated, "resnet", "u1")
        async with asyncio.timeout(90):
            assert (await waiting).id == own[0]
        before = await delivered(jetstream)
        await jobs.publish_others(5)
        last = await jobs.publish(JobSucceeded, "resnet", "u1")
        assert await take(events, 1) == last
        assert await delivered(jetstream) <= before + 3


async def test_a_second_reader_of_the_name_misses_nothing_that_the_first_has_learned(
    jobs: Jobs, nats_url: str
) -> None:
    """Both narrow one consumer, each knowing only the events it was given itself."""

    async def follow(seen: asyncio.Queue[str]) -> None:
        source = paddlewheel.events(url=nats_url, job="team-a/resnet", since="all", durable="me")
        async with aclosing(source) as events:
            async for event in events:
                seen.put_nowait(event.id)

    seen: asyncio.Queue[str] = asyncio.Queue()
    readers = [asyncio.create_task(follow(seen)) for _ in range(2)]
    wanted: list[str] = []
    async with asyncio.timeout(90):
        got: list[str] = []
        for uid in ("u1", "u2", "u3", "u4"):
            for fact in (JobAccepted, JobGated, JobSucceeded):
                wanted += await jobs.publish(fact, "resnet", uid)
                await jobs.publish_others(1)
            while len(set(got)) < len(wanted):
                got.append(await seen.get())
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert list(dict.fromkeys(got)) == wanted


async def test_other_selections_are_delivered_beside_the_job(jobs: Jobs, nats_url: str) -> None:
    own = await jobs.publish(JobAccepted, "resnet", "u1")
    await jobs.publish_others(2)
    own += await jobs.publish(JobGated, "resnet", "u1")
    for types in ((), ("JobGated", "JobAccepted")):
        async with aclosing(
            paddlewheel.events(
                url=nats_url, job="team-a/resnet", sample_set="team-a/images", types=types, follow=False
            )
        ) as events:
            assert [event.id async for event in events] == own
