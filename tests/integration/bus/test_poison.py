"""What a stranger puts on the bus is parked whole and its neighbours never notice; what a full box does."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from nats.aio.client import Client

from paddlewheel.bus.consume import consumer
from paddlewheel.bus.consume.dead_letters import FULL_SIZE, KEPT_PAYLOAD
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.ports import DeadLetter, Delivery, Subscription
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

ALL = Subscription("all-jobs", JOBS.name, ("pw.evt.jobs.>",))
MIB = 1024 * 1024
ROOMY = {"max_payload": 8 * MIB}


def make_gated(number: int, uid: str = "") -> Event:
    uid = uid or f"uid-{number}"
    return make_event(
        JobGated(message=str(number)),
        id=f"{uid}/{number}",
        source="t",
        namespace="ns",
        uid=uid,
        time=datetime(2026, 1, 1, tzinfo=UTC),
    )


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        assert isinstance(delivery.event.data, JobGated)
        self.numbers.append(int(delivery.event.data.message))


@asynccontextmanager
async def running(*work: Awaitable[object]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        yield
    finally:
        await end(*tasks)


async def letters(bus: NatsBus) -> list[DeadLetter]:
    async with aclosing(bus.dead_letters.list()) as found:
        return [letter async for letter in found]


# --- every kind of poison


@dataclass(frozen=True)
class Frame:
    """A message byte by byte, as no client library would send it."""

    complaint: str
    subject: bytes
    block: bytes
    data: bytes


def block_of(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def make_frames() -> list[Frame]:
    event = make_gated(0, "poison")
    data, headers = wire.encode(event)
    headers.pop(wire.MESSAGE_ID)
    subject, good = event.subject.encode(), block_of(headers)
    newer = subject.replace(b".v1.", b".v9.")
    odd = block_of({**headers, "ce-type": "no.such.Type"})
    bomb = block_of({f"x-bomb-{n}": "b" * 100 for n in range(540)})
    return [
        Frame("not JSON", subject, good, b"{nonsense"),
        Frame("not JSON", subject, good, bytes(range(256))),
        Frame("does not belong", newer, good, data),
        Frame("is not 1.0", subject, block_of({**headers, "ce-specversion": "9"}), data),
        Frame("is unknown", subject, odd, data),
        Frame("pw.evt.<context>", b"pw.evt.jobs.nonsense", good, data),
        Frame("does not belong", subject.replace(b"gated", b"failed"), good, data),
        Frame("header ce-specversion is missing", subject, b"NATS/1.0\r\n\r\n", data),
        Frame("header ce-specversion is missing", subject, bomb, data),
        Frame("header ce-specversion is missing", subject, b"NATS/1.0 503\r\n\r\n", data),
        Frame("header ce-specversion is missing", subject, b"\x00\xff\xfe\xfd", data),
        Frame("header ce-specversion is missing", subject, b"NATS/1.0\r\n\xff\xff: \xff\r\n\r\n", data),
        Frame("outside", subject.replace(b".poison", b".\xff\xfe"), good, data),
        Frame("ce-time", subject, block_of({**headers, "ce-time": "yesterday"}), data),
        Frame("not JSON", subject, good.replace(b"ce-id", b'na"me: x\r\nce-id'), b""),
    ]


def send(server: NatsServer, frames: list[Frame]) -> None:
    """Speak the protocol by hand; the server says +OK to each."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        heard = connection.makefile("rb")
        heard.readline()
        connection.sendall(b'CONNECT {"verbose":true,"headers":true,"lang":"hand","version":"0"}\r\n')
        assert heard.readline() == b"+OK\r\n"
        for frame in frames:
            sizes = (len(frame.block), len(frame.block) + len(frame.data))
            connection.sendall(b"HPUB %b %d %d\r\n" % (frame.subject, *sizes))
            connection.sendall(frame.block + frame.data + b"\r\n")
            assert heard.readline() == b"+OK\r\n"


async def test_poison_of_every_kind_is_parked_and_neighbours_are_handled(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    frames, seen = make_frames(), Seen()
    for number, frame in enumerate(frames):
        await asyncio.to_thread(send, nats_server, [frame])
        await bus.publish(make_gated(number))
    async with running(bus.consume(ALL, seen)):
        await eventually(lambda: sorted(seen.numbers) == list(range(len(frames))))
        await eventually(lambda: all_parked(bus, len(frames)))
        await bus.publish(make_gated(99, "poison"))
        await eventually(lambda: 99 in seen.numbers)
    found = sorted(await letters(bus), key=lambda letter: letter.source_sequence)
    assert [letter.data for letter in found] == [frame.data for frame in frames]
    for letter, frame in zip(found, frames, strict=True):
        assert frame.complaint in letter.message
        assert (letter.reason, letter.attempts, letter.durable) == ("MalformedEvent", 1, ALL.durable)
        assert letter.subject == frame.subject.decode(errors="backslashreplace")
    assert found[0].headers["ce-id"] == "poison/0"
    assert found[8].headers["x-bomb-7"] == "b" * 100
    assert found[10].headers == {"unreadable-headers": "AP/+/Q=="}
    assert found[14].headers['na"me'] == "x"


async def all_parked(bus: NatsBus, number: int) -> bool:
    return len(await letters(bus)) == number


async def test_poison_can_be_replayed_and_is_parked_again(nats_server: NatsServer, bus: NatsBus) -> None:
    frames = make_frames()
    await asyncio.to_thread(send, nats_server, frames)
    async with running(bus.consume(ALL, Seen())):
        await eventually(lambda: all_parked(bus, len(frames)))
        first = await letters(bus)
        for letter in first:
            await bus.dead_letters.replay(letter.sequence)
        await eventually(lambda: all_parked(bus, len(frames)))
        await eventually(lambda: parked_after(bus, first[-1].sequence, len(frames)))
        second = await letters(bus)
    by_source = {letter.source_sequence: letter for letter in second}
    for letter in first:
        again = by_source[letter.source_sequence]
        assert (again.data, again.headers, again.subject) == (letter.data, letter.headers, letter.subject)
        assert (again.message, again.attempts) == (letter.message, 1)


async def parked_after(bus: NatsBus, sequence: int, number: int) -> bool:
    return len([letter for letter in await letters(bus) if letter.sequence > sequence]) == number


async def test_neighbours_are_handled_while_poison_is_tried_again(bus: NatsBus) -> None:
    done, tried = list[int](), list[int]()

    async def handle(delivery: Delivery) -> None:
        assert isinstance(delivery.event.data, JobGated)
        number = int(delivery.event.data.message)
        if delivery.subject.endswith(".poison"):
            tried.append(delivery.attempt)
            raise Retry("Busy", after=3600.0)
        done.append(number)

    for number in range(100):
        await bus.publish(make_gated(number, "poison" if number in (0, 1) else ""))
    async with running(bus.consume(ALL, handle)):
        await eventually(lambda: sorted(done) == list(range(2, 100)))
        assert tried == [1]
        assert await letters(bus) == []


# --- size


async def raise_limit(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(JOBS.name)).config
    await js.update_stream(config.evolve(max_msg_size=4 * MIB))


async def publish_huge(url: str) -> bytes:
    """Two megabytes by a foreign client; returns the body."""
    event = make_gated(0, "poison")
    _, headers = wire.encode(event)
    body = b"\x00\x01" * MIB
    client = Client()
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
    await roomy.publish(make_gated(1))


async def test_two_megabytes_are_parked_whole_where_a_stream_takes_them(
    nats_server: NatsServer, roomy: NatsBus
) -> None:
    await raise_limit(roomy)
    body, seen = await publish_huge(nats_server.url), Seen()
    await roomy.publish(make_gated(1))
    async with running(roomy.consume(ALL, seen)):
        await eventually(lambda: seen.numbers == [1])
        [letter] = await eventually(lambda: letters(roomy))
        assert (letter.data, letter.is_cut, letter.reason) == (body, False, "MalformedEvent")
        await roomy.dead_letters.replay(letter.sequence)
        [again] = await eventually(lambda: letters(roomy))
    assert again.data == body


async def test_what_the_server_does_not_take_back_is_parked_cut_and_says_so(
    nats_server: NatsServer, roomy: NatsBus
) -> None:
    await raise_limit(roomy)
    body, seen = await publish_huge(nats_server.url), Seen()
    nats_server.config["max_payload"] = MIB
    await asyncio.to_thread(nats_server.restart)
    await eventually(roomy.healthy, within=30)
    await roomy.publish(make_gated(1))
    async with running(roomy.consume(ALL, seen)):
        await eventually(lambda: seen.numbers == [1])
        [letter] = await eventually(lambda: letters(roomy))
        assert (letter.data, letter.is_cut, letter.source_sequence) == (body[:KEPT_PAYLOAD], True, 1)
        stored, _, _ = await roomy._dead_letters._fetch(letter.sequence)
        assert stored.headers[FULL_SIZE] == str(len(body))
        with pytest.raises(Permanent, match="LetterCut"):
            await roomy.dead_letters.replay(letter.sequence)
        await roomy.publish(make_gated(2, "poison"))
        await eventually(lambda: seen.numbers == [1, 2])


# --- the box


async def set_box_size(bus: NatsBus, size: int) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(DEAD_LETTERS.name)).config
    await js.update_stream(config.evolve(max_bytes=size))


async def test_a_full_box_stops_the_consumer_loses_nothing_and_lets_it_go_on(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "LOOK_EVERY", 0.1)
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


async def is_ill(bus: NatsBus) -> bool:
    return not await bus.healthy()


async def test_ten_thousand_letters_are_listed_in_little_memory_though_the_server_dies(
    nats_server: NatsServer, bus: NatsBus
) -> None:
    client = Client()
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
        await bus.publish(make_gated(number, f"uid-{number % 10}"))
    async with running(bus.consume(replace(ALL, ack_wait=2.0, max_parked=1000), handle)):
        await eventually(lambda: all_parked(bus, 40))
        broken = False
        first = await letters(bus)
        await replay_all([letter.sequence for letter in first])
        await eventually(lambda: len(handled) == 20, within=30)
        await eventually(lambda: parked_after(bus, first[-1].sequence, 20), within=30)
    assert {letter.source_sequence for letter in await letters(bus)} | handled == set(range(1, 41))


async def replayed(bus: NatsBus, sequence: int) -> None:
    """What an operator does: try again on Retry."""
    while True:
        try:
            await bus.dead_letters.replay(sequence)
        except NotFound:
            return
        except Retry:
            await asyncio.sleep(0.05)


async def test_operators_who_are_not_connected_are_told_so(
    nats_server: NatsServer, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    await asyncio.to_thread(nats_server.kill)
    for call in (bus.dead_letters.get, bus.dead_letters.replay, bus.dead_letters.drop):
        with pytest.raises(Retry):
            await call(1)
    await asyncio.to_thread(nats_server.start)
    await eventually(bus.healthy)
    with pytest.raises(NotFound):
        await bus.dead_letters.get(1)
