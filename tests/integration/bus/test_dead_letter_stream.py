"""Dead letters too large for the server, a full stream of them, and long listings while the server dies."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.integration.bus.suite import (
    ALL,
    Seen,
    all_parked,
    is_ill,
    letters,
    make_fact,
    parked_after,
    running,
)

from paddlewheel.bus.consume import consumer
from paddlewheel.bus.consume.dead_letters import FULL_SIZE, KEPT_PAYLOAD
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.ports import Delivery
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.testkit.bare_client import BareClient
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually, patiently

MIB = 1024 * 1024
ROOMY = {"max_payload": 8 * MIB}


async def raise_limit(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(JOBS.name)).config
    await js.update_stream(config.evolve(max_msg_size=4 * MIB))


async def publish_huge(url: str) -> bytes:
    """Two megabytes by a foreign client; returns the body."""
    event = make_fact(0, "poison")
    _, headers = wire.encode(event)
    body = b"\x00\x01" * MIB
    client = BareClient()
    await client.connect(url)
    try:
        await client.jetstream().publish(event.subject, body, headers=headers)
    finally:
        await client.close()
    return body


@pytest.fixture
async def roomy(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    """A bus on a server that takes 8 MiB, as an operator may set it."""
    nats_server.config |= ROOMY
    await asyncio.to_thread(nats_server.restart)
    bus = NatsBus(nats_server.url)
    await bus.start()
    yield bus
    await bus.close()


async def test_two_megabytes_are_refused_at_publishing(nats_server: NatsServer, roomy: NatsBus) -> None:
    with pytest.raises(Exception, match="message size exceeds maximum allowed"):
        await publish_huge(nats_server.url)
    await roomy.publish(make_fact(1))


async def test_two_megabytes_are_parked_whole_when_the_stream_accepts_them(
    nats_server: NatsServer, roomy: NatsBus
) -> None:
    await raise_limit(roomy)
    body, seen = await publish_huge(nats_server.url), Seen()
    await roomy.publish(make_fact(1))
    async with running(roomy.consume(ALL, seen)):
        await eventually(lambda: seen.numbers == [1])
        [letter] = await eventually(lambda: letters(roomy))
        assert (letter.data, letter.is_cut, letter.reason) == (body, False, "MalformedEvent")
        await roomy.dead_letters.replay(letter.sequence)
        await eventually(lambda: parked_after(roomy, letter.sequence, 1), what="it is parked again")
        [again] = await letters(roomy)
    assert again.data == body


async def test_a_payload_the_server_refuses_is_parked_truncated_and_marked(
    nats_server: NatsServer, roomy: NatsBus
) -> None:
    await raise_limit(roomy)
    body, seen = await publish_huge(nats_server.url), Seen()
    nats_server.config["max_payload"] = MIB
    await asyncio.to_thread(nats_server.restart)
    await eventually(roomy.healthy)
    await patiently(lambda: roomy.publish(make_fact(1)))
    async with running(roomy.consume(ALL, seen)):
        await eventually(lambda: seen.numbers == [1])
        [letter] = await eventually(lambda: letters(roomy))
        assert (letter.data, letter.is_cut, letter.source_sequence) == (body[:KEPT_PAYLOAD], True, 1)
        stored = await roomy._dead_letters._fetch(letter.sequence)
        assert stored.message.headers[FULL_SIZE] == str(len(body))
        with pytest.raises(Permanent, match="LetterCut"):
            await roomy.dead_letters.replay(letter.sequence)
        await roomy.publish(make_fact(2, "poison"))
        await eventually(lambda: seen.numbers == [1, 2])


async def set_box_size(bus: NatsBus, size: int) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(DEAD_LETTERS.name)).config
    await js.update_stream(config.evolve(max_bytes=size))


async def test_a_full_dead_letter_stream_stops_the_consumer_until_there_is_room(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "DEAD_LETTERS_CHECK_INTERVAL_SECONDS", 0.1)
    await set_box_size(bus, MIB)

    async def refuse(delivery: Delivery) -> None:
        raise Permanent("Bad", "x" * 1000)

    for number in range(8):
        uid = f"uid-{number}"
        event = make_event(
            JobGated(message=str(number), reason="r" * 300_000),
            id=uid,
            source="t",
            namespace="ns",
            uid=uid,
            time=datetime(2026, 1, 1, tzinfo=UTC),
        )
        await bus.publish(event)
    async with running(bus.consume(ALL, refuse)):
        await eventually(lambda: is_ill(bus))
        kept = await letters(bus)
        assert 1 <= len(kept) < 8
        await set_box_size(bus, DEAD_LETTERS.max_bytes)
        await eventually(lambda: all_parked(bus, 8))
        await eventually(bus.healthy)
    found = await letters(bus)
    assert [letter.sequence for letter in found[: len(kept)]] == [letter.sequence for letter in kept]
    assert len({letter.source_sequence for letter in found}) == 8


@pytest.mark.long
async def test_ten_thousand_letters_are_listed_in_little_memory_though_the_server_dies(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    client = BareClient()
    await client.connect(nats_server.url)
    for number in range(10_000):
        await client.publish("pw.dlq.many", b"x" * 2000, headers={"pw-dlq-sequence": str(number)})
    await client.flush()
    await client.close()
    await eventually(lambda: stored(bus, 10_000))
    tracemalloc.start()
    try:
        numbers = await listed_with_a_crash(nats_server, bus)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert numbers == list(range(10_000))
    assert peak < 8 * MIB


async def stored(bus: NatsBus, number: int) -> bool:
    js = await bus._connection.jetstream()
    return (await js.stream_info(DEAD_LETTERS.name)).state.messages == number


async def listed_with_a_crash(server: NatsServer, bus: NatsBus) -> list[int]:
    numbers: list[int] = []
    async with aclosing(bus.dead_letters.list("many")) as found:
        async for letter in found:
            numbers.append(letter.source_sequence)
            if len(numbers) == 3000:
                await asyncio.to_thread(server.restart)
    return numbers


@pytest.mark.long
async def test_no_replay_is_lost_though_the_server_dies(nats_server: NatsServer, bus: NatsBus) -> None:
    handled: set[int] = set()
    broken = True

    async def handle(delivery: Delivery) -> None:
        if broken or delivery.sequence % 2:
            raise Permanent("Bad", "x")
        handled.add(delivery.sequence)

    async def replay_all(sequences: list[int]) -> None:
        for count, sequence in enumerate(sequences):
            if count in (5, 20, 35):
                await asyncio.to_thread(nats_server.restart)
            await replayed(bus, sequence)

    for number in range(40):
        await bus.publish(make_fact(number, f"uid-{number % 10}"))
    async with running(bus.consume(replace(ALL, ack_wait=2.0, max_parked=1000), handle)):
        await eventually(lambda: all_parked(bus, 40))
        broken = False
        first = await patiently(lambda: letters(bus))
        await replay_all([letter.sequence for letter in first])
        await eventually(lambda: len(handled) == 20)
        await eventually(lambda: parked_after(bus, first[-1].sequence, 20))
    left = await patiently(lambda: letters(bus))
    assert {letter.source_sequence for letter in left} | handled == set(range(1, 41))


async def replayed(bus: NatsBus, sequence: int) -> None:
    """What an operator does: try again on Retry."""
    while True:
        try:
            await bus.dead_letters.replay(sequence)
        except NotFound:
            return
        except Retry:
            await asyncio.sleep(0.05)


async def test_an_unreachable_bus_is_reported_to_operators(
    nats_server: NatsServer, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(nats_server.kill)
    with monkeypatch.context() as hasty:
        hasty.setattr(connection, "CALL_TIMEOUT_SECONDS", 0.3)
        for call in (bus.dead_letters.get, bus.dead_letters.replay, bus.dead_letters.drop):
            with pytest.raises(Retry):
                await call(1)
    await asyncio.to_thread(nats_server.start)
    await eventually(bus.healthy)
    with pytest.raises(NotFound):
        await patiently(lambda: bus.dead_letters.get(1))
