"""NatsBus: all ports over one connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime

import structlog

from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.lanes import run_consumer
from paddlewheel.bus.nats.consume import NatsDeadLetters, NatsSource
from paddlewheel.bus.nats.kv import NatsKeyValue
from paddlewheel.bus.nats.link import Link
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.store import Store
from paddlewheel.bus.nats.tail import NatsTail
from paddlewheel.bus.nats.work import NatsWorkQueue
from paddlewheel.bus.ports import Delivery, Handler, KeyValue, RawMessage, Subscription, WorkQueue
from paddlewheel.bus.streams import BUCKETS, STREAMS, stream_named, stream_of
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger()


class NatsBus:
    """Bus over NATS JetStream. Usable at once: what needs the server waits for it or raises Retry."""

    def __init__(
        self,
        url: str,
        creds_file: str | None = None,
        *,
        name: str = "paddlewheel",
        replicas: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._instruments = Instruments()
        self._link = Link(url, creds_file, name)
        self._provision = Provision(self._link, STREAMS, replicas)
        self._store = Store(self._link, self._provision)
        self._tail = NatsTail(self._link, self._provision, self._clock)
        self._work = NatsWorkQueue(self._link, self._provision, self._store, self._clock)

    async def start(self) -> None:
        """Connect and make the streams; a server that is away is only logged, it is waited for later."""
        try:
            await self._provision.ready()
        except Retry as error:
            log.warning("bus is away, going on without it", why=str(error))

    async def publish(self, event: Event) -> None:
        data, headers = wire.encode(event)
        with self._instruments.publishing(stream_of(event.subject).name):
            await self._store.store(RawMessage(event.subject, data, headers))

    async def publish_raw(self, message: RawMessage) -> None:
        """Put a message on the bus as it is. Raises Retry or Permanent, as `publish`."""
        stream_of(message.subject)
        await self._store.store(message)

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        stream_named(subscription.stream)
        source = NatsSource(self._link, self._provision, subscription, self._clock)
        dead = NatsDeadLetters(self._store, subscription.durable)
        try:
            await run_consumer(source, subscription, handler, dead, self._clock, self._instruments)
        finally:
            await source.close()

    def tail(
        self, subjects: tuple[str, ...], *, since: datetime | None = None
    ) -> AsyncGenerator[Delivery, None]:
        return self._tail.tail(subjects, since=since)

    def key_value(self, bucket: str) -> KeyValue:
        if bucket not in BUCKETS:
            raise Permanent("UnknownBucket", f"{bucket} is not declared in paddlewheel.bus.streams")
        return NatsKeyValue(bucket, self._link, self._provision, self._store, self._clock)

    @property
    def work(self) -> WorkQueue:
        return self._work

    async def healthy(self) -> bool:
        """Connected, and every stream is there."""
        try:
            await self._provision.ready()
        except Retry:
            return False
        return self._link.connected

    async def close(self) -> None:
        await self._link.close()
