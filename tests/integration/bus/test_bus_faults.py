"""The NATS adapter while its server is killed with -9, restarted, emptied or changed behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from nats.js.api import ConsumerConfig, ConsumerInfo
from structlog.testing import capture_logs

from paddlewheel import bus as bus_package
from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.ports import Bus, Delivery, Entry, Reading, Subscription
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.subjects import event_filter, work_subject
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually, patiently

ALL_JOBS = Subscription("faults", JOBS.name, (event_filter("jobs"),), ack_wait=2.0)
OBJECTS = 10


def make_spread(number: int) -> Event:
    """Facts of `OBJECTS` objects in turn."""
    return make_gated(number, f"uid-{number % OBJECTS}")


async def until_done(
    action: Callable[..., Awaitable[object]], *args: object, within: float = 300, **named: object
) -> None:
    """What a service does: try again on Retry."""
    await patiently(lambda: action(*args, **named), within=within)


async def publish_all(bus: NatsBus, numbers: range, done: list[int]) -> None:
    for number in numbers:
        await until_done(bus.publish, make_spread(number))
        done.append(number)


async def grown(collection: Sized, beyond: int) -> None:
    await eventually(lambda: len(collection) > beyond, within=60)


async def restart(server: NatsServer) -> None:
    await asyncio.to_thread(server.restart)


@asynccontextmanager
async def running(*work: Awaitable[object]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stored_ids(bus: NatsBus) -> list[str]:
    js = await bus._connection.jetstream()
    state = (await js.stream_info(JOBS.name)).state
    messages = [await js.get_msg(JOBS.name, seq=n) for n in range(state.first_seq, state.last_seq + 1)]
    return [(m.headers or {})["ce-id"] for m in messages]


async def test_nothing_acknowledged_is_lost_and_nothing_stored_twice(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    done: list[int] = []
    async with running(publish_all(bus, range(400), done)):
        for threshold in (50, 150, 250):
            await grown(done, threshold)
            await restart(nats_server)
        await eventually(lambda: len(done) == 400, within=60)
    ids = await stored_ids(bus)
    assert sorted(ids) == sorted(make_spread(n).id for n in range(400))


async def test_every_effect_happens_in_order_though_the_server_dies(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    done: list[int] = []
    effects: dict[str, int] = {}

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0.002)
        effects.setdefault(delivery.event.id, len(effects))

    async with running(bus.consume(ALL_JOBS, handle), publish_all(bus, range(300), done)):
        for threshold in (50, 120, 200):
            await grown(effects, threshold)
            await restart(nats_server)
        await eventually(lambda: len(effects) == 300, within=60)
    for first in range(OBJECTS):
        places = [effects[make_spread(n).id] for n in range(first, 300, OBJECTS)]
        assert places == sorted(places)


async def test_an_effect_whose_ack_was_lost_is_not_done_again(nats_server: NatsServer, bus: NatsBus) -> None:
    attempts: list[str] = []
    gate = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.event.id)
        if delivery.event.id == make_spread(0).id:
            await gate.wait()

    await bus.publish(make_spread(0))
    async with running(bus.consume(ALL_JOBS, handle)):
        await eventually(lambda: attempts)
        await asyncio.to_thread(nats_server.kill)
        gate.set()
        await asyncio.to_thread(nats_server.start)
        await until_done(bus.publish, make_spread(1))
        await eventually(lambda: make_spread(1).id in attempts, within=30)
        await eventually(lambda: nothing_pending(bus), within=30)
    assert attempts == [make_spread(0).id, make_spread(1).id]


async def nothing_pending(bus: NatsBus) -> bool:
    try:
        info = await (await bus._connection.jetstream()).consumer_info(JOBS.name, ALL_JOBS.durable)
    except Exception:
        return False
    return not info.num_ack_pending and not info.num_pending


async def test_all_is_made_again_when_the_server_lost_its_data(nats_server: NatsServer, bus: NatsBus) -> None:
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    await bus.publish(make_spread(1))
    async with running(bus.consume(ALL_JOBS, handle)):
        await eventually(lambda: make_spread(1).id in seen)
        await asyncio.to_thread(nats_server.lose_data)
        await until_done(bus.publish, make_spread(2))
        await eventually(lambda: make_spread(2).id in seen, within=30)
    assert await stored_ids(bus) == [make_spread(2).id]


async def test_new_only_misses_nothing_published_while_its_consumer_was_lost(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    seen: list[str] = []
    new = replace(ALL_JOBS, durable="new-only", deliver_new_only=True)

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    async def first_seen() -> bool:
        await bus.publish(make_spread(1000 + int(asyncio.get_running_loop().time() * 1000)))
        return bool(seen)

    async with running(bus.consume(new, handle)):
        await eventually(first_seen)
        await asyncio.to_thread(nats_server.lose_data)
        for number in range(5):
            await until_done(bus.publish, make_spread(number))
        await eventually(lambda: {make_spread(n).id for n in range(5)} <= set(seen), within=30)


async def test_a_stream_deleted_under_a_live_connection_is_made_again(bus: NatsBus) -> None:
    await (await bus._connection.jetstream()).delete_stream(JOBS.name)
    await bus.publish(make_spread(1))
    assert await stored_ids(bus) == [make_spread(1).id]


async def test_a_client_that_gave_up_is_replaced(bus: NatsBus) -> None:
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    async with running(bus.consume(ALL_JOBS, handle)):
        await bus.publish(make_spread(1))
        await eventually(lambda: len(seen) == 1)
        await (await bus._connection.client()).close()
        await bus.publish(make_spread(2))
        await eventually(lambda: len(seen) == 2)


@pytest.fixture
async def pingless(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsBus]:
    """A bus whose client never pings on its own."""
    monkeypatch.setattr(connection, "_PING_EVERY", 3600)
    bus = NatsBus(nats_url)
    await bus.start()
    yield bus
    await bus.close()


async def test_a_read_loop_that_ended_without_notice_is_replaced(
    pingless: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py logs the error and leaves a client that looks connected and receives nothing."""
    read = Client._process_msg
    seen: list[str] = []

    async def fail_once(client: Client, *message: Any) -> None:
        if make_spread(1).id.encode() in (message[-1] or b""):
            monkeypatch.setattr(Client, "_process_msg", read)
            raise RuntimeError("a bug in the client")
        await read(client, *message)

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    async with running(pingless.consume(ALL_JOBS, handle)):
        await pingless.publish(make_spread(0))
        await eventually(lambda: len(seen) == 1)
        generation = pingless._connection.generation
        monkeypatch.setattr(Client, "_process_msg", fail_once)
        await until_done(pingless.publish, make_spread(1), within=60)
        await until_done(pingless.publish, make_spread(2), within=60)
        await eventually(lambda: len(seen) == 3, within=30)
    assert set(seen) == {make_spread(n).id for n in range(3)}
    assert pingless._connection.generation == generation + 1


async def test_a_bus_may_start_before_its_server(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    nats_server.stop()
    bus = await bus_package.connect(nats_server.url, name="early")
    try:
        assert not await bus.healthy()
        with pytest.raises(Retry, match="BusUnreachable"):
            await bus.publish(make_spread(1))
        with pytest.raises(Retry, match="BusUnreachable"):
            await bus.key_value(RUNS_BUCKET).get("a")
        await asyncio.to_thread(nats_server.start)
        await eventually(bus.healthy)
        await bus.publish(make_spread(1))
        await asyncio.to_thread(nats_server.kill)
        await eventually(lambda: is_ill(bus))
    finally:
        await bus.close()


async def is_ill(bus: Bus) -> bool:
    return not await bus.healthy()


async def test_long_work_is_not_given_to_another(bus: NatsBus) -> None:
    attempts: list[int] = []
    impatient = replace(ALL_JOBS, ack_wait=0.4)

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        await asyncio.sleep(1.2)

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


async def test_chunks_survive_the_server_and_are_done_once(nats_server: NatsServer, bus: NatsBus) -> None:
    subject = work_subject("set-1", "run-1", 0)
    done: list[bytes] = []

    async def enqueue() -> None:
        for number in range(40):
            await until_done(bus.work.enqueue, subject, b"%d" % number, message_id=str(number))

    async def agent() -> None:
        async with aclosing(bus.work.pull(subject, consumer="agent", ack_wait=1.0)) as items:
            async for item in items:
                if item.data not in done:
                    done.append(item.data)
                await until_done(item.ack)

    async with running(enqueue(), agent()):
        for threshold in (5, 20):
            await grown(done, threshold)
            await restart(nats_server)
        await eventually(lambda: len(done) == 40, within=60)
        await eventually(lambda: no_work_left(bus), within=30)
    assert sorted(done) == sorted(b"%d" % n for n in range(40))


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
        await eventually(lambda: told_of("s.b", b"1"), within=30)
        await asyncio.to_thread(nats_server.lose_data)
        await eventually(lambda: told_of("s.a", None), within=30)
        await until_done(kv.put, "s.c", b"1")
        await eventually(lambda: told_of("s.c", b"1"), within=30)
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
        await eventually(lambda: len(seen) >= 10, within=30)
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


async def test_a_bad_credentials_file_is_said_and_survived(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    with capture_logs() as logs:
        bus = await bus_package.connect(Access(nats_url, creds_file="/nowhere/bus.creds"), name="test")
        assert not await bus.healthy()
        await bus.close()
    assert "bus cannot connect" in {entry["event"] for entry in logs}


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
        async with asyncio.timeout(20):
            assert (await first).event.id == make_spread(1).id


async def has_delivered(bus: NatsBus) -> bool:
    consumers = await (await bus._connection.jetstream()).consumers_info(JOBS.name)
    return any(found.delivered and found.delivered.stream_seq for found in consumers)
