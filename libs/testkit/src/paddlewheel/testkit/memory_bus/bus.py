"""MemoryBus: all ports over streams and buckets in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from paddlewheel.bus.admin.inspect import Inspector
from paddlewheel.bus.consume.consumer import Consumer, run_consumer
from paddlewheel.bus.consume.dead_letters import replays, replays_durable
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.dead_letters import DeadLetterBox
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import (
    CommandHandler,
    Delivery,
    FactHistory,
    Handler,
    KeyValue,
    RawMessage,
    Reading,
    Subscription,
    WorkStore,
)
from paddlewheel.bus.streams import (
    BUCKETS,
    DEAD_LETTERS,
    ID_TAKEN,
    REPLAYS,
    STREAMS,
    WORK,
    stream_named,
    stream_of,
)
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.testkit.memory_bus.commands import MemoryCommands
from paddlewheel.testkit.memory_bus.consume import MemoryDurable, MemorySource
from paddlewheel.testkit.memory_bus.dead_letters import MemoryDeadLetterBox, MemoryDeadLetters
from paddlewheel.testkit.memory_bus.history import MemoryHistory
from paddlewheel.testkit.memory_bus.inspect import MemoryInspector
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.memory_bus.read import MemoryReader
from paddlewheel.testkit.memory_bus.stream import Bell, MemoryStream, Stored
from paddlewheel.testkit.memory_bus.work import MemoryWorkStore

log = LibraryLogger(__name__)


class MemoryBus:
    """Bus without a server. Set `down` to see what a service does without its bus.

    `stored(stream)` and `events(stream)` let tests assert what a stream holds.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._handlers = Handlers(self._clock)
        self._instruments = Instruments(longest=self._handlers.longest)
        self._bell = Bell()
        self._streams = {spec.name: MemoryStream(spec, self._clock, self._bell) for spec in STREAMS}
        self._buckets = {name: MemoryKeyValue(name, self._check_up) for name in BUCKETS}
        self._history = MemoryHistory(self._streams, self._check_up)
        self._commands = MemoryCommands(self._clock, self._check_up)
        self._reader = MemoryReader(self._streams, self._bell, self._check_up)
        self._work = MemoryWorkStore(self._streams[WORK.name], self._check_up)
        self._durables: dict[tuple[str, str], MemoryDurable] = {}
        self._inspect = MemoryInspector(self._streams, self._durables, self._clock, self._check_up)
        self._stopped: list[str] = []
        self.down = False

    async def publish(self, event: Event) -> None:
        data, headers = wire.encode(event)
        with self._instruments.publishing(stream_of(event.subject).name):
            subject = self._store(RawMessage(event.subject, data, headers)).subject
            if subject != event.subject:
                raise Retry(
                    ID_TAKEN, f"{event.subject}: another fact has the same id: a message on {subject}"
                )

    async def publish_raw(self, message: RawMessage) -> None:
        """Publish a message as it is. Raises Retry or Permanent."""
        self._store(message)

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        dead = MemoryDeadLetters(self._streams[DEAD_LETTERS.name], subscription.durable, self._check_up)
        consumer = Consumer(
            subscription,
            handler,
            fresh=self._source(subscription),
            replayed=self._source(replays(subscription)),
            dead=dead,
            clock=self._clock,
            instruments=self._instruments,
            handlers=self._handlers,
            stopped=self._stopped,
        )
        await run_consumer(consumer)

    def _source(self, subscription: Subscription) -> MemorySource:
        stream = self._streams[stream_named(subscription.stream).name]
        durable = self._durables.setdefault(
            (stream.spec.name, subscription.durable),
            MemoryDurable(subscription.subjects, 0),
        )
        return MemorySource(stream, durable)

    def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        return self._reader.read(reading)

    def key_value(self, bucket: str) -> KeyValue:
        if bucket not in self._buckets:
            raise Permanent("UnknownBucket", f"{bucket} is not declared in paddlewheel.bus.streams")
        return self._buckets[bucket]

    async def answer(self, subject: str, handler: CommandHandler) -> None:
        await self._commands.answer(subject, handler)

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        return await self._commands.ask_all(subject, data, within=within)

    @property
    def history(self) -> FactHistory:
        return self._history

    @property
    def work(self) -> WorkStore:
        return self._work

    @property
    def inspect(self) -> Inspector:
        return self._inspect

    @property
    def dead_letters(self) -> DeadLetterBox:
        return MemoryDeadLetterBox(
            self._streams[DEAD_LETTERS.name], self._streams[REPLAYS.name], self._takes_replays, self._check_up
        )

    async def check(self) -> None:
        self._check_up()

    @property
    def trouble(self) -> str:
        return ""

    async def healthy(self) -> bool:
        return not self.down and not self._stopped

    def late_handlers(self) -> Mapping[str, float]:
        return self._handlers.late()

    async def close(self) -> None:
        return None

    def stored(self, stream: str) -> list[RawMessage]:
        """The messages of a stream, oldest first."""
        messages = self._streams[stream].messages.values()
        return [RawMessage(m.subject, m.data, m.headers) for m in messages]

    def events(self, stream: str) -> list[Event]:
        """The events in a stream, oldest first."""
        return [wire.decode(m.subject, m.data, m.headers) for m in self.stored(stream)]

    def lose_facts(self, stream: str) -> None:
        """Re-create the stream, empty, as after a server lost its data."""
        self._streams[stream].lose()
        self._history.epoch += 1

    def limit(self, stream: str, max_bytes: int) -> None:
        """Set how much a stream holds, as an operator may."""
        self._streams[stream].spec = replace(self._streams[stream].spec, max_bytes=max_bytes)

    def forget_consumer(self, stream: str, durable: str) -> None:
        """Lose a durable consumer, as a server that lost its data does."""
        del self._durables[stream, durable]

    def _store(self, message: RawMessage) -> Stored:
        self._check_up()
        return self._streams[stream_of(message.subject).name].store(
            message.subject, message.data, message.headers
        )

    def _takes_replays(self, durable: str) -> bool:
        return (REPLAYS.name, replays_durable(durable)) in self._durables

    def _check_up(self) -> None:
        if self.down:
            raise Unavailable("BusUnreachable", "the memory bus is set down")
