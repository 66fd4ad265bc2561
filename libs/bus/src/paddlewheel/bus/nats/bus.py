"""NatsBus: all ports over one connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.inspect import Inspector
from paddlewheel.bus.admin.services import declared_with
from paddlewheel.bus.consume.consumer import Consumer, run_consumer
from paddlewheel.bus.consume.dead_letters import replays
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.dead_letters import DeadLetterBox
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.nats.commands import NatsCommands
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import NatsSource
from paddlewheel.bus.nats.dead_letters import NatsDeadLetterBox, NatsDeadLetters
from paddlewheel.bus.nats.history import NatsHistory
from paddlewheel.bus.nats.inspect import NatsInspector
from paddlewheel.bus.nats.kv import NatsKeyValue
from paddlewheel.bus.nats.live import LiveReader
from paddlewheel.bus.nats.mirrors import Mirrors
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.publish import StreamPublisher
from paddlewheel.bus.nats.read import NatsReader
from paddlewheel.bus.nats.work import NatsWorkStore
from paddlewheel.bus.ports import (
    CommandHandler,
    Delivery,
    FactHistory,
    Handler,
    KeyValue,
    RawMessage,
    Reader,
    Reading,
    Subscription,
    WorkStore,
)
from paddlewheel.bus.streams import BUCKETS, stream_named, stream_of
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


class NatsBus:
    """Bus over NATS JetStream. Usable at once: calls wait for the server or raise Unavailable."""

    def __init__(
        self,
        access: Access | str,
        *,
        name: str = "paddlewheel",
        clock: Clock | None = None,
    ) -> None:
        access = Access(access) if isinstance(access, str) else access
        self._clock = clock or SystemClock()
        self._handlers = Handlers(self._clock)
        self._connection = Connection(access, name)
        declared = declared_with(access.services)
        self._provision = Provision(self._connection, declared, access)
        self._mirrors = Mirrors(self._connection, access.teams, access.replicas, declared.facts)
        self._instruments = Instruments(
            longest=self._handlers.longest,
            mirrors=lambda: self._mirrors.status,
            lags=lambda: self._provision.lags,
            loaded=lambda: self._provision.loaded,
        )
        self._publisher = StreamPublisher(self._connection, self._provision)
        self._history = NatsHistory(self._connection, self._provision)
        self._commands = NatsCommands(self._connection, self._clock)
        self._reader: Reader = (
            LiveReader(self._connection, access.namespaces, self._clock)
            if access.namespaces
            else NatsReader(self._connection, self._provision, self._clock)
        )
        self._dead_letters = NatsDeadLetterBox(
            self._connection, self._provision, self._publisher, self._clock
        )
        self._inspect = NatsInspector(self._connection, declared.streams, access)
        self._stopped: list[str] = []
        self._work = NatsWorkStore(self._connection, self._provision, self._publisher)

    async def start(self) -> None:
        """Connect and ensure the streams. An unreachable server is logged; later calls wait for it."""
        try:
            await self._provision.ready()
        except Retry as error:
            log.warning("bus is unreachable, continuing without it", why=str(error))

    async def install(self) -> None:
        """Make and correct streams, durables and mirrors, without relying on earlier checks. Raises Retry."""
        self._provision.forget()
        # Mirrors are made even if the server has no room for one of the streams.
        await self._provision.ready()
        await self._mirrors.ensure()
        await self._provision.check()

    async def publish(self, event: Event) -> None:
        data, headers = wire.encode(event)
        with self._instruments.publishing(stream_of(event.subject).name):
            await self._publisher.publish_fact(RawMessage(event.subject, data, headers))

    async def publish_raw(self, message: RawMessage) -> None:
        """Publish a message as it is. Raises Retry or Permanent, as `publish`."""
        stream_of(message.subject)
        await self._publisher.publish(message)

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        stream_named(subscription.stream)
        consumer = Consumer(
            subscription,
            handler,
            fresh=NatsSource(self._connection, self._provision, subscription, self._clock),
            replayed=NatsSource(self._connection, self._provision, replays(subscription), self._clock),
            dead=NatsDeadLetters(self._connection, self._provision, self._publisher, subscription.durable),
            clock=self._clock,
            instruments=self._instruments,
            handlers=self._handlers,
            stopped=self._stopped,
        )
        await run_consumer(consumer)

    def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        return self._reader.read(reading)

    def key_value(self, bucket: str) -> KeyValue:
        if bucket not in BUCKETS:
            raise Permanent("UnknownBucket", f"{bucket} is not declared in paddlewheel.bus.streams")
        return NatsKeyValue(bucket, self._connection, self._provision, self._publisher, self._clock)

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
        return self._dead_letters

    async def check(self) -> None:
        await self._provision.check()

    @property
    def trouble(self) -> str:
        return self._connection.cause

    async def healthy(self) -> bool:
        """Connected, every stream on disk exists, and no consumer has stopped because of its dead letters."""
        try:
            await self.check()
        except Retry:
            return False
        return self._connection.connected and not self._stopped

    def late_handlers(self) -> Mapping[str, float]:
        return self._handlers.late()

    async def close(self) -> None:
        await self._connection.close()
