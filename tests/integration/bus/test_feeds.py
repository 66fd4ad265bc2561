"""Feeds of messages that cannot be opened, or whose messages vanish before they are delivered."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js.api import ConsumerConfig, ConsumerInfo

from paddlewheel.bus.nats import NatsBus, ephemeral
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET
from paddlewheel.core.errors import Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually

ALL_JOBS = Subscription("feeds", JOBS.name, ("pw.evt.jobs.>",), ack_wait=2.0)


async def test_a_consumer_outlives_a_loss_between_making_its_consumer_and_subscribing(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    make_consumer, find_client = bus._provision.consumer, bus._connection.client
    losses: list[None] = []

    async def consumer(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        info = await make_consumer(stream, config)
        if stream == JOBS.name and not losses:
            monkeypatch.setattr(bus._connection, "client", lost)
        return info

    async def lost() -> Client:
        losses.append(None)
        monkeypatch.setattr(bus._connection, "client", find_client)
        raise Unavailable("BusUnreachable")

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    monkeypatch.setattr(bus._provision, "consumer", consumer)
    task = asyncio.create_task(bus.consume(ALL_JOBS, handle))
    await bus.publish(make_gated(1))
    await eventually(lambda: seen or task.done())
    assert (seen, len(losses)) == ([make_gated(1).id], 1)
    await end(task)


async def test_a_feed_that_cannot_subscribe_leaves_nothing_behind(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> NatsSubscription:
        raise OSError("the connection was lost")

    before = len(bus._connection._listeners)
    monkeypatch.setattr(Client, "subscribe", refuse)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await bus.key_value(RUNS_BUCKET).entries(">")
    assert len(bus._connection._listeners) == before


@pytest.fixture
def vanishing(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The first time a bucket is listed, its only key is gone before it could be delivered."""
    times: list[None] = []
    make_consumer = bus._provision.consumer

    async def consumer(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        info = await make_consumer(stream, config)
        if not times:
            times.append(None)
            await (await bus._connection.jetstream()).purge_stream(stream)
        return info

    monkeypatch.setattr(ephemeral, "STORED_MESSAGE_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(bus._provision, "consumer", consumer)
    return times


@pytest.mark.usefixtures("vanishing")
async def test_a_listing_ends_though_what_it_counted_has_vanished(bus: NatsBus) -> None:
    records = bus.key_value(RUNS_BUCKET)
    await records.put("a", b"1")
    async with asyncio.timeout(90):
        with pytest.raises(Unavailable):
            await records.entries(">")
        assert await records.entries(">") == []


@pytest.mark.usefixtures("vanishing")
async def test_a_watch_marks_the_end_though_what_it_counted_has_vanished(bus: NatsBus) -> None:
    records = bus.key_value(RUNS_BUCKET)
    await records.put("a", b"1")
    async with asyncio.timeout(90), aclosing(records.watch(">")) as watch:
        assert await anext(watch) is None
