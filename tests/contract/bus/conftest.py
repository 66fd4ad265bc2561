"""Both adapters: every test of this folder runs on the memory bus and on a real NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.js.errors import NotFoundError
from tests.contract.bus.suite import BUSES, AnyBus, Probe

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import JOBS
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.nats import NatsServer


@pytest.fixture(params=BUSES)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[Probe]:
    async with probing(request) as found:
        yield found


@asynccontextmanager
async def probing(request: pytest.FixtureRequest) -> AsyncIterator[Probe]:
    """The bus that the fixture's parameter names."""
    if request.param == "memory":
        yield memory_probe()
        return
    server: NatsServer = request.getfixturevalue("nats_server")
    bus = NatsBus(Access(server.url, reads="directly" if request.param == "nats-direct" else "consumers"))
    await bus.start()
    yield nats_probe(bus, server)
    await bus.close()


@pytest.fixture
async def other(probe: Probe, request: pytest.FixtureRequest) -> AsyncIterator[AnyBus]:
    """Another client of the same bus."""
    if isinstance(probe.bus, MemoryBus):
        yield probe.bus
        return
    bus = NatsBus(request.getfixturevalue("nats_server").url)
    await bus.start()
    yield bus
    await bus.close()


def memory_probe() -> Probe:
    bus = MemoryBus()

    async def stored(stream: str) -> list[RawMessage]:
        return bus.stored(stream)

    async def forget_consumer(stream: str, durable: str) -> None:
        bus.forget_consumer(stream, durable)

    async def drop_first() -> None:
        bus._streams[JOBS.name].drop(1)

    def go_away() -> None:
        bus.down = True

    async def limit(stream: str, max_bytes: int) -> None:
        bus.limit(stream, max_bytes)

    return Probe(bus, stored, forget_consumer, lambda: bus.lose_facts(JOBS.name), drop_first, go_away, limit)


def nats_probe(bus: NatsBus, server: NatsServer) -> Probe:
    async def stored(stream: str) -> list[RawMessage]:
        js = await bus._connection.jetstream()
        state = (await js.stream_info(stream)).state
        numbers = range(state.first_seq, state.last_seq + 1) if state.messages else range(0)
        found = list[RawMessage]()
        for number in numbers:
            with suppress(NotFoundError):  # removed meanwhile
                message = await js.get_msg(stream, seq=number)
                found.append(RawMessage(message.subject or "", message.data or b"", message.headers or {}))
        return found

    async def forget_consumer(stream: str, durable: str) -> None:
        await (await bus._connection.jetstream()).delete_consumer(stream, durable)

    async def drop_first() -> None:
        await (await bus._connection.jetstream()).delete_msg(JOBS.name, 1)

    async def limit(stream: str, max_bytes: int) -> None:
        js = await bus._connection.jetstream()
        config = (await js.stream_info(stream)).config
        await js.update_stream(config.evolve(max_bytes=max_bytes))

    return Probe(bus, stored, forget_consumer, server.lose_data, drop_first, server.stop, limit)
