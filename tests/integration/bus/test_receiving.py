"""Consumers, watches, readers and work items on a server that restarts, and next to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from nats.js.api import ConsumerConfig, ConsumerInfo
from tests.integration.bus.suite import (
    ALL_JOBS,
    grown,
    make_spread,
    nothing_pending,
    publish_all,
    restart,
    running,
    until_done,
)

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Entry, Reading
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET
from paddlewheel.contracts.subjects import event_filter, work_subject
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


@pytest.mark.long
async def test_long_work_is_not_given_to_another(bus: NatsBus) -> None:
    attempts: list[int] = []
    impatient = replace(ALL_JOBS, ack_wait=4)

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        await asyncio.sleep(9)

    await bus.publish(make_spread(1))
    async with running(bus.consume(impatient, handle), bus.consume(impatient, handle)):
        await eventually(lambda: attempts)
        await eventually(lambda: nothing_pending(bus))
    assert attempts == [1]


async def test_two_replicas_share_a_durable(bus: NatsBus, nats_url: str) -> None:
    other = NatsBus(nats_url)
    seen: tuple[list[str], list[str]] = ([], [])

    def recorder(index: int) -> Callable[[Delivery], Awaitable[None]]:
        async def handle(delivery: Delivery) -> None:
            seen[index].append(delivery.event.id)
            await asyncio.sleep(0.01)

        return handle

    narrow = replace(ALL_JOBS, max_in_flight=2)
    try:
        async with running(bus.consume(narrow, recorder(0)), other.consume(narrow, recorder(1))):
            await publish_all(bus, range(60), [])
            await eventually(lambda: len(seen[0]) + len(seen[1]) == 60)
    finally:
        await other.close()
    assert sorted(seen[0] + seen[1]) == sorted(make_spread(n).id for n in range(60))


async def test_chunks_survive_the_server(nats_server: NatsServer, bus: NatsBus) -> None:
    subjects = [work_subject("set-1", "run-1", 0, number) for number in range(40)]
    done: list[bytes] = []

    async def publish() -> None:
        for number, subject in enumerate(subjects):
            await until_done(bus.work.put, subject, b"%d" % number)

    async def agent() -> None:
        for subject in subjects:
            while (data := await until_done(bus.work.get, subject)) is None:
                await asyncio.sleep(0.01)
            done.append(data)
            await until_done(bus.work.drop, subject)

    async with running(publish(), agent()):
        for threshold in (5, 20):
            await grown(done, threshold)
            await restart(nats_server)
        await eventually(lambda: len(done) == 40)
        await eventually(lambda: no_work_left(bus))
    assert done == [b"%d" % n for n in range(40)]


async def no_work_left(bus: NatsBus) -> bool:
    js = await bus._connection.jetstream()
    return (await js.stream_info("PW_WORK")).state.messages == 0


async def test_a_watch_outlives_restart_and_data_loss(nats_server: NatsServer, bus: NatsBus) -> None:
    kv = bus.key_value(RUNS_BUCKET)
    told: list[Entry | None] = []

    async def follow() -> None:
        async with aclosing(kv.watch("s.>")) as watch:
            async for entry in watch:
                told.append(entry)

    async def told_of(key: str, value: bytes | None) -> bool:
        return any(e is not None and (e.key, e.value) == (key, value) for e in told)

    await kv.put("s.a", b"1")
    async with running(follow()):
        await eventually(lambda: None in told)
        await restart(nats_server)
        await until_done(kv.put, "s.b", b"1")
        await eventually(lambda: told_of("s.b", b"1"))
        await asyncio.to_thread(nats_server.lose_data)
        await eventually(lambda: told_of("s.a", None))
        await until_done(kv.put, "s.c", b"1")
        await eventually(lambda: told_of("s.c", b"1"))
    assert told.count(None) == 1


async def test_a_tail_outlives_a_restart_without_repeating(nats_server: NatsServer, bus: NatsBus) -> None:
    seen: list[str] = []

    async def follow() -> None:
        since = datetime(2020, 1, 1, tzinfo=UTC)
        async with aclosing(bus.read(Reading(("pw.evt.>",), since))) as tail:
            async for delivery in tail:
                seen.append(delivery.event.id)

    await publish_all(bus, range(5), [])
    async with running(follow()):
        await eventually(lambda: len(seen) == 5)
        await restart(nats_server)
        await publish_all(bus, range(5, 10), [])
        await eventually(lambda: len(seen) >= 10)
    assert seen == [make_spread(n).id for n in range(10)]


async def test_a_changed_subscription_updates_its_consumer(bus: NatsBus) -> None:
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    async with running(
        bus.consume(replace(ALL_JOBS, subjects=(event_filter("jobs", "job", "running"),)), handle)
    ):
        await eventually(lambda: consumer_exists(bus))
    await bus.publish(make_spread(1))
    async with running(bus.consume(ALL_JOBS, handle)):
        await bus.publish(make_spread(2))
        await eventually(lambda: make_spread(2).id in seen)


async def consumer_exists(bus: NatsBus) -> bool:
    js = await bus._connection.jetstream()
    return any(c.name == ALL_JOBS.durable for c in await js.consumers_info(JOBS.name))


async def test_streams_that_open_late_and_empty_do_not_hold_back_what_is_stored(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = datetime.now(UTC)
    await bus.publish(make_spread(1))
    others_may_open = asyncio.Event()
    consumer = bus._provision.consumer

    async def late(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if stream != JOBS.name:
            await others_may_open.wait()
        return await consumer(stream, config)

    monkeypatch.setattr(bus._provision, "consumer", late)
    async with aclosing(bus.read(Reading(("pw.evt.>",), since))) as events:
        first = asyncio.ensure_future(anext(events))
        await eventually(lambda: has_delivered(bus))
        others_may_open.set()
        async with asyncio.timeout(90):
            assert (await first).event.id == make_spread(1).id


async def has_delivered(bus: NatsBus) -> bool:
    consumers = await (await bus._connection.jetstream()).consumers_info(JOBS.name)
    return any(found.delivered and found.delivered.stream_seq for found in consumers)
