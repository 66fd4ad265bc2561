"""What a stranger publishes is parked whole, and its neighbours never notice."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

from tests.integration.bus.suite import ALL, Seen, all_parked, letters, make_fact, parked_after, running

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts import wire
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


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
    event = make_fact(0, "poison")
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
        await bus.publish(make_fact(number))
    async with running(bus.consume(ALL, seen)):
        await eventually(lambda: sorted(seen.numbers) == list(range(len(frames))))
        await eventually(lambda: all_parked(bus, len(frames)))
        await bus.publish(make_fact(99, "poison"))
        await eventually(lambda: 99 in seen.numbers)
    found = sorted(await letters(bus), key=lambda letter: letter.source_sequence)
    assert [letter.data for letter in found] == [frame.data for frame in frames]
    for letter, frame in zip(found, frames, strict=True):
        assert frame.complaint in letter.message
        assert (letter.reason, letter.attempts, letter.durable) == ("MalformedEvent", 1, ALL.durable)
        assert letter.subject == frame.subject.decode(errors="backslashreplace")
    assert found[0].headers["ce-id"] == make_fact(0, "poison").id
    assert found[8].headers["x-bomb-7"] == "b" * 100
    assert found[10].headers == {"unreadable-headers": "AP/+/Q=="}
    assert found[14].headers['na"me'] == "x"


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
        await bus.publish(make_fact(number, "poison" if number in (0, 1) else ""))
    async with running(bus.consume(ALL, handle)):
        await eventually(lambda: sorted(done) == list(range(2, 100)))
        assert tried == [1]
        assert await letters(bus) == []


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
