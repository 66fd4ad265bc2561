"""What services need of the bus. Adapters: `nats.NatsBus`, `memory.MemoryBus`, under one contract suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from paddlewheel.contracts.envelope import Event


@dataclass(frozen=True)
class RawMessage:
    """One message as it lies on the wire."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """One delivered message. `attempt` counts from 1; `sequence` is the stream's; `event` is decoded."""

    event: Event
    subject: str
    attempt: int
    sequence: int
    published_at: datetime


Handler = Callable[[Delivery], Awaitable[None]]
"""Return = effect is durable, ack. Raise `Retry` = nak with delay. Raise `Permanent` = park and term."""


@dataclass(frozen=True)
class Subscription:
    """A durable pull consumer: fixed name, subject filters, bounds. Streams are named in `bus.streams`."""

    durable: str
    stream: str
    subjects: tuple[str, ...]
    max_in_flight: int = 64
    ack_wait: float = 30.0
    max_attempts: int = 8
    deliver_new_only: bool = False


class Publisher(Protocol):
    """Puts facts on the bus."""

    async def publish(self, event: Event) -> None:
        """Return once the stream has stored it (a duplicate id counts as stored).

        Raises:
            Retry: the bus is unreachable or refused for now.
            Permanent: the event can never be stored (too large, no stream for its subject).
        """
        ...


class Subscriber(Protocol):
    """Runs handlers over durable consumers."""

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        """Deliver until cancelled; reconnects by itself. Messages of one object stay in order."""
        ...


class Tail(Protocol):
    """An ephemeral, ordered look at a stream, for viewers."""

    def tail(
        self, subjects: tuple[str, ...], *, since: datetime | None = None
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what is stored since `since` (None = only what comes from now on), then follow."""
        ...


@dataclass(frozen=True)
class Entry:
    """One key-value entry. `value` is None when the key was deleted."""

    key: str
    value: bytes | None
    revision: int


class KeyValue(Protocol):
    """A bucket of keys (`a.b.c` tokens of [A-Za-z0-9_-]) with compare-and-set."""

    async def get(self, key: str) -> Entry:
        """Raises NotFound when the key is absent or deleted."""
        ...

    async def create(self, key: str, value: bytes) -> int:
        """Returns the revision. Raises AlreadyExists."""
        ...

    async def put(self, key: str, value: bytes) -> int:
        """Write whatever stands there; returns the revision."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write only if the key is still at `revision`; returns the new one. Raises Conflict."""
        ...

    async def delete(self, key: str) -> None:
        """Idempotent."""
        ...

    async def entries(self, pattern: str) -> list[Entry]:
        """All live entries whose key matches a NATS pattern (`a.*`, `a.>`)."""
        ...

    def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
        """Yield all live entries that match, then None once, then every change until cancelled.

        Reconnects by itself; after a lost connection entries may be yielded again.
        """
        ...


class WorkQueue(Protocol):
    """Chunks of data-plane work: each is handed out until acknowledged. Stream `PW_WORK`."""

    async def enqueue(self, subject: str, data: bytes, *, message_id: str) -> None:
        """Return once stored; a repeated `message_id` is stored once. Raises Retry or Permanent."""
        ...

    def pull(
        self,
        subject: str,
        *,
        consumer: str,
        ack_wait: float = 60.0,
        inactive_after: float = 300.0,
        max_in_flight: int = 2,
    ) -> AsyncGenerator[WorkItem, None]:
        """Yield items of one subject through a short-lived named consumer until cancelled.

        The consumer is made if missing (also after the bus lost it) and vanishes when unused.
        """
        ...

    async def purge(self, subject: str) -> None:
        """Drop all items of the subject (wildcards allowed). Idempotent."""
        ...


class WorkItem(Protocol):
    """One pulled chunk; exactly one of `ack`, `nak` ends it."""

    @property
    def data(self) -> bytes: ...

    @property
    def attempt(self) -> int: ...

    async def ack(self) -> None:
        """Return when the server has confirmed the ack. Raises Retry when it did not: ack again, or go on.

        When the bus was lost since the item came, the ack is sent unconfirmed, and the item may come again.
        """
        ...

    async def nak(self, delay: float) -> None: ...

    async def in_progress(self) -> None:
        """Reset the redelivery timer during long work."""
        ...


class Bus(Publisher, Subscriber, Tail, Protocol):
    """Everything, as made by `bus.connect(settings)`; services take the narrow ports above."""

    def key_value(self, bucket: str) -> KeyValue: ...

    @property
    def work(self) -> WorkQueue: ...

    async def healthy(self) -> bool: ...

    async def close(self) -> None: ...
