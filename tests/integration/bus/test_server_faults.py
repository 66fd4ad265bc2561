"""The NATS adapter while its server is killed with -9, restarted, emptied or changed behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.integration.bus.suite import (
    ALL_JOBS,
    OBJECTS,
    grown,
    is_ill,
    make_spread,
    nothing_pending,
    publish_all,
    restart,
    running,
    stored_ids,
    until_done,
)

from paddlewheel import bus as bus_package
from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.ports import Delivery
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.nats import NatsServer, started_bus
from paddlewheel.testkit.wait import eventually


async def test_nothing_acknowledged_is_lost_and_nothing_stored_twice(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    done: list[int] = []
    async with running(publish_all(bus, range(400), done)):
        for threshold in (50, 150, 250):
            await grown(done, threshold)
            await restart(nats_server)
        await eventually(lambda: len(done) == 400)
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
        await eventually(lambda: len(effects) == 300)
    for first in range(OBJECTS):
        places = [effects[make_spread(n).id] for n in range(first, 300, OBJECTS)]
        assert places == sorted(places)


async def test_an_effect_whose_ack_was_lost_is_not_repeated(nats_server: NatsServer, bus: NatsBus) -> None:
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
        await eventually(lambda: make_spread(1).id in attempts)
        await eventually(lambda: nothing_pending(bus))
    assert attempts == [make_spread(0).id, make_spread(1).id]


async def test_everything_is_recreated_after_the_server_lost_its_data(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.event.id)

    await bus.publish(make_spread(1))
    async with running(bus.consume(ALL_JOBS, handle)):
        await eventually(lambda: make_spread(1).id in seen)
        await asyncio.to_thread(nats_server.lose_data)
        await until_done(bus.publish, make_spread(2))
        await eventually(lambda: make_spread(2).id in seen)
    assert await stored_ids(bus) == [make_spread(2).id]


async def test_a_stream_deleted_under_a_live_connection_is_recreated(bus: NatsBus) -> None:
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
    monkeypatch.setattr(connection, "_PING_INTERVAL_SECONDS", 3600)
    async with started_bus(nats_url) as bus:
        yield bus


async def test_a_client_whose_read_loop_ended_silently_is_replaced(
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
        await until_done(pingless.publish, make_spread(1), within=90)
        await until_done(pingless.publish, make_spread(2), within=90)
        await eventually(lambda: len(seen) == 3)
    assert set(seen) == {make_spread(n).id for n in range(3)}
    # The client is replaced again when a slow server does not answer the probe.
    assert pingless._connection.generation > generation


async def test_a_bus_may_start_before_its_server(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.stop()
    with monkeypatch.context() as hasty:
        hasty.setattr(connection, "CALL_TIMEOUT_SECONDS", 0.3)
        bus = await bus_package.connect(nats_server.url, name="early")
        assert not await bus.healthy()
        with pytest.raises(Retry, match="BusUnreachable"):
            await bus.publish(make_spread(1))
        with pytest.raises(Retry, match="BusUnreachable"):
            await bus.key_value(RUNS_BUCKET).get("a")
    try:
        await asyncio.to_thread(nats_server.start)
        await eventually(bus.healthy)
        await bus.publish(make_spread(1))
        await asyncio.to_thread(nats_server.kill)
        await eventually(lambda: is_ill(bus))
    finally:
        await bus.close()


async def test_a_bad_credentials_file_is_reported_and_survived(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 0.3)
    with capture_logs() as logs:
        bus = await bus_package.connect(Access(nats_url, creds_file="/nowhere/bus.creds"), name="test")
        assert not await bus.healthy()
        await bus.close()
    assert "bus cannot connect" in {entry["event"] for entry in logs}
