"""Reading from a server that fails for a moment, repeats itself, is slow, or is late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import AsyncMock

import pytest
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo

from paddlewheel.bus.nats import NatsBus, cursors
from paddlewheel.bus.nats.feed import Feed
from paddlewheel.bus.nats.provision import SELECTION_KEY, Provision
from paddlewheel.bus.ports import Delivery, OtherSelection, Reading
from paddlewheel.bus.streams import DATASETS, JOBS
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Unavailable
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import started_bus
from paddlewheel.testkit.wait import eventually

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ALL = Reading(("pw.evt.jobs.>",), LONG_AGO)
DURABLE = replace(ALL, durable="sub-me")
EVENTS_TIMEOUT_SECONDS = 90.0

fetch = Feed.fetch


def number_of(delivery: Delivery) -> int:
    assert isinstance(delivery.event.data, JobGated)
    return int(delivery.event.data.message)


async def read_numbers(bus: NatsBus, reading: Reading, most: int) -> list[int]:
    """The next `most` events, or those until the reading ends."""
    found: list[int] = []
    async with asyncio.timeout(EVENTS_TIMEOUT_SECONDS), aclosing(bus.read(reading)) as events:
        async for delivery in events:
            found.append(number_of(delivery))
            if len(found) == most:
                break
    return found


async def durable_position(bus: NatsBus) -> tuple[int, int]:
    """Up to which event the durable consumer is acknowledged, and how many are in somebody's hands."""
    js = await bus._connection.jetstream()
    info = await js.consumer_info(JOBS.name, DURABLE.durable)
    assert info.ack_floor
    return info.ack_floor.stream_seq, info.num_ack_pending or 0


async def test_an_event_is_delivered_although_narrowing_its_consumer_failed(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure, failures = bus._provision.consumer, [Unavailable("BusUnreachable", "a leader is elected")]

    async def fail_once(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if config.filter_subjects != list(DURABLE.subjects) and failures:
            raise failures.pop()
        return await ensure(stream, config)

    async def narrow(delivery: Delivery) -> tuple[str, ...]:
        return (delivery.subject,)

    monkeypatch.setattr(bus._provision, "consumer", fail_once)
    for number in range(3):
        await bus.publish(make_gated(number))
    assert await read_numbers(bus, replace(DURABLE, refine=narrow), most=3) == [0, 1, 2]
    assert not failures


async def test_an_event_repeated_before_it_is_read_stays_unacknowledged_until_it_is_handled(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch_with_repetition(feed: Feed, room: int) -> list[Msg]:
        await feed._ask(room)
        await eventually(lambda: feed._arrived.qsize() >= 2)
        monkeypatch.setattr(Feed, "fetch", fetch)
        return await fetch(feed, room)

    monkeypatch.setattr(cursors, "READER_ACK_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(Feed, "fetch", fetch_with_repetition)
    await bus.publish(make_gated(0))
    await bus.publish(make_gated(1))
    async with asyncio.timeout(EVENTS_TIMEOUT_SECONDS), aclosing(bus.read(DURABLE)) as events:
        assert number_of(await anext(events)) == 0
        assert await durable_position(bus) == (0, 1)
        assert number_of(await anext(events)) == 1
        assert await durable_position(bus) == (1, 1)


async def test_events_that_arrive_together_are_acknowledged_one_by_one(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is redelivered to another reader of the name, which finishes it."""

    async def fetch_both(feed: Feed, room: int) -> list[Msg]:
        await feed._ask(room)
        first = await feed._next()
        feed._arrived.put_nowait(first)
        await feed._connection.request(first.reply, b"+ACK")
        await eventually(lambda: feed._arrived.qsize() >= 2)
        monkeypatch.setattr(Feed, "fetch", fetch)
        return await fetch(feed, room)

    monkeypatch.setattr(Feed, "fetch", fetch_both)
    await bus.publish(make_gated(0))
    await bus.publish(make_gated(1))
    async with asyncio.timeout(EVENTS_TIMEOUT_SECONDS), aclosing(bus.read(DURABLE)) as events:
        assert [number_of(await anext(events)) for _ in range(2)] == [0, 1]
        assert await durable_position(bus) == (1, 1)


async def test_an_event_is_not_held_up_by_a_quiet_stream_after_a_lost_connection(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = asyncio.Event()

    async def fetch_quiet_stream_last(feed: Feed, room: int) -> list[Msg]:
        is_quiet = feed.stream == JOBS.name
        if is_quiet and feed.generation:
            await arrived.wait()
            await asyncio.sleep(0.1)
        messages = await fetch(feed, room)
        if not is_quiet:
            arrived.set()
        return messages

    ready = make_event(
        SampleSetReady(), id="s", source="t", namespace="default", uid="s", time=datetime.now(UTC)
    )
    monkeypatch.setattr(Feed, "fetch", fetch_quiet_stream_last)
    await bus.publish(make_gated(0))
    reading = replace(ALL, subjects=("pw.evt.jobs.>", "pw.evt.datasets.>"))
    async with asyncio.timeout(EVENTS_TIMEOUT_SECONDS), aclosing(bus.read(reading)) as events:
        assert number_of(await anext(events)) == 0
        waiting = asyncio.ensure_future(anext(events))
        for stream in (JOBS.name, DATASETS.name):
            await eventually(lambda stream=stream: has_reader(bus, stream))  # type: ignore[misc]
        await (await bus._connection.client()).close()
        await bus.publish(ready)
        assert (await waiting).event.id == ready.id


async def has_reader(bus: NatsBus, stream: str) -> bool:
    """Somebody waits for the next message of the stream, and none is left."""
    consumers = await (await bus._connection.jetstream()).consumers_info(stream)
    return any(info.num_waiting and not info.num_pending for info in consumers)


async def test_reading_stored_events_ends_although_the_server_is_slow(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds: set[Feed] = set()

    async def fetch_slowly(feed: Feed, room: int) -> list[Msg]:
        if feed not in feeds:
            feeds.add(feed)
            await asyncio.sleep(1.5)
        return await fetch(feed, room)

    monkeypatch.setattr(Feed, "fetch", fetch_slowly)
    monkeypatch.setattr(cursors, "STORED_MESSAGE_TIMEOUT_SECONDS", EVENTS_TIMEOUT_SECONDS)
    await bus.publish(make_gated(0))
    assert await read_numbers(bus, replace(ALL, follow=False), most=2) == [0]
    assert len(feeds) == 1


async def test_a_consumer_that_delivers_nothing_is_deleted_when_it_is_replaced(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch_nothing(feed: Feed, room: int) -> list[Msg]:
        monkeypatch.setattr(Feed, "fetch", fetch)
        await asyncio.Event().wait()
        raise AssertionError("never returns")

    monkeypatch.setattr(cursors, "STORED_MESSAGE_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(Feed, "fetch", fetch_nothing)
    await bus.publish(make_gated(0))
    js = await bus._connection.jetstream()
    before = {info.name for info in await js.consumers_info(JOBS.name)}
    assert await read_numbers(bus, replace(ALL, follow=False), most=2) == [0]
    assert len({info.name for info in await js.consumers_info(JOBS.name)} - before) == 1


@pytest.fixture
async def publisher(nats_url: str) -> AsyncIterator[NatsBus]:
    """Another client of the same server."""
    async with started_bus(nats_url) as publisher:
        yield publisher


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_reading_from_now_on_begins_when_it_is_started_not_when_the_bus_answers(
    bus: NatsBus, publisher: NatsBus, monkeypatch: pytest.MonkeyPatch, durable: str
) -> None:
    ensure = bus._provision.consumer
    attempts: list[str] = []

    async def refuse(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        attempts.append(stream)
        raise Unavailable("BusUnreachable", "no route to the server")

    monkeypatch.setattr(bus._provision, "consumer", refuse)
    await publisher.publish(make_gated(0))
    async with (
        asyncio.timeout(EVENTS_TIMEOUT_SECONDS),
        aclosing(bus.read(replace(ALL, since=None, durable=durable))) as events,
    ):
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: attempts)
        await publisher.publish(make_gated(1))
        monkeypatch.setattr(bus._provision, "consumer", ensure)
        assert number_of(await waiting) == 1


async def kept_key(bus: NatsBus) -> str:
    js = await bus._connection.jetstream()
    info = await js.consumer_info(JOBS.name, DURABLE.durable)
    key: str = (info.config.metadata or {}).get(SELECTION_KEY, "")
    return key


async def test_a_durable_without_a_stored_selection_is_adopted_by_a_reader_with_the_same_filters(
    bus: NatsBus,
) -> None:
    js = await bus._connection.jetstream()
    old = ConsumerConfig(
        durable_name=DURABLE.durable, name=DURABLE.durable, filter_subjects=list(ALL.subjects),
        ack_policy=AckPolicy.EXPLICIT, metadata={"paddlewheel.selection": "in words of another version"},
    )  # fmt: skip
    await js.add_consumer(JOBS.name, old)
    failed = replace(
        DURABLE, follow=False, subjects=("pw.evt.jobs.job.failed.v1.*.*",), selection_key="failed"
    )
    with pytest.raises(OtherSelection):
        await read_numbers(bus, failed, 1)
    assert await kept_key(bus) == ""
    await bus.publish(make_gated(1))
    jobs = replace(DURABLE, follow=False, selection="context=jobs", selection_key="jobs")
    assert await read_numbers(bus, jobs, 2) == [1]
    assert await kept_key(bus) == "jobs"


async def test_the_second_of_two_first_readers_does_not_overwrite_the_consumer_of_the_first(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replace(DURABLE, follow=False, selection_key="jobs")
    assert await read_numbers(bus, first, 1) == []
    monkeypatch.setattr(Provision, "_find_consumer", AsyncMock(return_value=None))
    failed = replace(first, subjects=("pw.evt.jobs.job.failed.v1.*.*",), selection_key="failed")
    with pytest.raises(OtherSelection):
        await read_numbers(bus, failed, 1)
    assert await kept_key(bus) == "jobs"
