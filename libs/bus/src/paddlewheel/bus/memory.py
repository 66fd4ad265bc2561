"""The whole bus in memory, with the semantics of the NATS adapter; for unit tests of services."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from paddlewheel.bus.dead_letters import dead_letter
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.lanes import run_consumer
from paddlewheel.bus.memory_kv import MemoryKeyValue
from paddlewheel.bus.memory_stream import Bell, MemoryStream, Stored
from paddlewheel.bus.memory_work import MemoryWorkQueue
from paddlewheel.bus.ports import Delivery, Handler, KeyValue, RawMessage, Subscription, WorkQueue
from paddlewheel.bus.settle import Message
from paddlewheel.bus.streams import (
    BUCKETS,
    DEAD_LETTERS,
    STREAMS,
    WORK,
    stream_named,
    stream_of,
    streams_under,
)
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger()


@dataclass
class _Durable:
    """What the server knows of a durable consumer."""

    filters: tuple[str, ...]
    position: int
    attempts: dict[int, int] = field(default_factory=dict)
    returned: dict[int, Stored] = field(default_factory=dict)


@dataclass
class _MemoryMessage:
    stored: Stored
    durable: _Durable
    bell: Bell
    attempt: int

    @property
    def subject(self) -> str:
        return self.stored.subject

    @property
    def data(self) -> bytes:
        return self.stored.data

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.stored.headers)

    @property
    def stream(self) -> str:
        return self.stored.stream

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    @property
    def published_at(self) -> datetime:
        return self.stored.at

    async def ack(self) -> None:
        self.durable.attempts.pop(self.sequence, None)

    async def term(self) -> None:
        self.durable.attempts.pop(self.sequence, None)

    async def release(self) -> None:
        self.durable.returned[self.sequence] = self.stored
        self.bell.ring()

    async def in_progress(self) -> None:
        return None


class _MemorySource:
    def __init__(self, stream: MemoryStream, durable: _Durable) -> None:
        self._stream = stream
        self._durable = durable

    async def fetch(self, room: int) -> list[Message]:
        while not (found := self._take(room)):
            await self._stream.bell.wait()
        return found

    def _take(self, room: int) -> list[Message]:
        durable = self._durable
        fresh = list(self._stream.after(durable.position, durable.filters))
        taken = [*sorted(durable.returned.values(), key=lambda s: s.sequence), *fresh][:room]
        return [self._deliver(stored) for stored in taken]

    def _deliver(self, stored: Stored) -> Message:
        durable = self._durable
        durable.returned.pop(stored.sequence, None)
        durable.position = max(durable.position, stored.sequence)
        attempt = durable.attempts.get(stored.sequence, 0) + 1
        durable.attempts[stored.sequence] = attempt
        return _MemoryMessage(stored, durable, self._stream.bell, attempt)


class MemoryBus:
    """Bus without a server. Set `down` to see what a service does without its bus.

    `stored(stream)` and `dead_letters` let tests assert what lies there.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._instruments = Instruments()
        self._bell = Bell()
        self._streams = {spec.name: MemoryStream(spec, self._clock, self._bell) for spec in STREAMS}
        self._buckets = {name: MemoryKeyValue(name, self._check_up) for name in BUCKETS}
        self._work = MemoryWorkQueue(self._streams[WORK.name], self._clock, self._check_up)
        self._durables: dict[tuple[str, str], _Durable] = {}
        self.down = False

    async def publish(self, event: Event) -> None:
        data, headers = wire.encode(event)
        with self._instruments.publishing(stream_of(event.subject).name):
            await self.publish_raw(RawMessage(event.subject, data, headers))

    async def publish_raw(self, message: RawMessage) -> None:
        """Whatever a stranger might put on the bus."""
        self._check_up()
        self._store(message.subject, message.data, message.headers)

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        stream = self._streams[stream_named(subscription.stream).name]
        durable = self._durables.setdefault(
            (stream.spec.name, subscription.durable),
            _Durable(subscription.subjects, stream.last if subscription.deliver_new_only else 0),
        )
        source = _MemorySource(stream, durable)
        dead = _MemoryDead(self, subscription.durable)
        await run_consumer(source, subscription, handler, dead, self._clock, self._instruments)

    async def tail(
        self, subjects: tuple[str, ...], *, since: datetime | None = None
    ) -> AsyncGenerator[Delivery, None]:
        touched = [(self._streams[name], filters) for name, filters in streams_under(subjects).items()]
        positions = {s.spec.name: 0 if since else s.last for s, _ in touched}
        while True:
            fresh = _in_order([m for s, f in touched for m in s.after(positions[s.spec.name], f)])
            for stored in fresh:
                positions[stored.stream] = stored.sequence
                if (since is None or stored.at >= since) and (delivery := _look(stored)):
                    yield delivery
            if not fresh:
                await self._bell.wait()

    def key_value(self, bucket: str) -> KeyValue:
        if bucket not in self._buckets:
            raise Permanent("UnknownBucket", f"{bucket} is not declared in paddlewheel.bus.streams")
        return self._buckets[bucket]

    @property
    def work(self) -> WorkQueue:
        return self._work

    async def healthy(self) -> bool:
        return not self.down

    async def close(self) -> None:
        return None

    def stored(self, stream: str) -> list[RawMessage]:
        """What lies in a stream, oldest first."""
        messages = self._streams[stream].messages.values()
        return [RawMessage(m.subject, m.data, m.headers) for m in messages]

    def events(self, stream: str) -> list[Event]:
        """The events in a stream, oldest first."""
        return [wire.decode(m.subject, m.data, m.headers) for m in self.stored(stream)]

    @property
    def dead_letters(self) -> list[RawMessage]:
        return self.stored(DEAD_LETTERS.name)

    def forget_consumer(self, stream: str, durable: str) -> None:
        """Lose a durable consumer, as a server that lost its data does."""
        del self._durables[stream, durable]

    def _store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        self._streams[stream_of(subject).name].store(subject, data, headers)

    def _check_up(self) -> None:
        if self.down:
            raise Retry("BusUnreachable", "the memory bus is set down")


class _MemoryDead:
    def __init__(self, bus: MemoryBus, durable: str) -> None:
        self._bus = bus
        self._durable = durable

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        await self._bus.publish_raw(dead_letter(self._durable, message, error, attempts))


def _in_order(messages: list[Stored]) -> list[Stored]:
    return sorted(messages, key=lambda stored: (stored.at, stored.stream, stored.sequence))


def _look(stored: Stored) -> Delivery | None:
    """For viewers: what cannot be read is skipped."""
    try:
        event = wire.decode(stored.subject, stored.data, stored.headers)
    except Permanent as error:
        log.warning("unreadable message skipped", subject=stored.subject, why=str(error))
        return None
    return Delivery(event, stored.subject, 1, stored.sequence, stored.at)
