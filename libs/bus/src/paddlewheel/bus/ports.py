"""What services need of the bus. Adapters: `nats.NatsBus`, `memory.MemoryBus`, under one contract suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from paddlewheel.bus.admin.inspect import Inspector
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
    """A durable pull consumer: fixed name, subject filters, bounds. Streams are named in `bus.streams`.

    Args:
        max_in_flight: messages taken and not yet ended.
        ack_wait: seconds until the server gives a message to somebody else when it hears nothing of it.
        max_attempts: after so many a message is parked.
        max_parked: the consumer stops when it would have to park more within `parked_window` seconds
            (docs/decisions/0011).
        drop_stale: facts of an older resource version than one already handled of the same object are left
            unhandled.
    """

    durable: str
    stream: str
    subjects: tuple[str, ...]
    max_in_flight: int = 64
    ack_wait: float = 30.0
    max_attempts: int = 8
    deliver_new_only: bool = False
    max_parked: int = 100
    parked_window: float = 600.0
    drop_stale: bool = False


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


Refine = Callable[[Delivery], Awaitable[tuple[str, ...] | None]]


@dataclass(frozen=True)
class Reading:
    """What a reader wants to see. Streams follow from `subjects`.

    Args:
        since: stored events from then on; None = only what comes from now on.
        follow: False ends when all that is stored was read.
        durable: the server keeps the place (in each stream) under this name; `since` counts at first only.
        open_within: seconds after which an unreachable bus raises Retry; None = wait for it.
        refine: asked about every event before it is yielded: the subjects to read from that event on, None =
            the same as before. They select fewer events of the same streams. A durable reader that is opened
            (again) begins with `subjects`.
    """

    subjects: tuple[str, ...]
    since: datetime | None = None
    follow: bool = True
    durable: str = ""
    open_within: float | None = None
    refine: Refine | None = None


class Reader(Protocol):
    """Reads events without handling them: nothing is parked, what cannot be decoded is skipped and logged."""

    def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        """Yield events, those of one stream in order; stored ones of all streams by time unless durable.

        A durable reader acknowledges an event when the next is asked for; one that was not comes again, to
        whoever reads under that name. Readers of one name share the events. Reconnects by itself.

        Raises:
            Retry: the bus could not be read within `open_within` seconds.
        """
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


@dataclass(frozen=True)
class DeadLetter:
    """A message that `durable` could not handle.

    `sequence` is its number among the dead letters; `stream`, `source_sequence`, `subject`, `published_at`,
    `data` and `headers` are those of the message as it was delivered. `is_cut` = only the beginning of its
    data is kept.
    """

    sequence: int
    durable: str
    reason: str
    message: str
    attempts: int
    stream: str
    source_sequence: int
    subject: str
    published_at: datetime
    parked_at: datetime
    data: bytes
    headers: Mapping[str, str]
    is_cut: bool = False


class DeadLetterBox(Protocol):
    """Messages that no handler could handle, until somebody replays or drops them.

    Streams `PW_DLQ` and, on their way back, `PW_REPLAY`.
    """

    def list(self, durable: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        """Yield those that lie there now, oldest first, and end; None = of all durables.

        Memory holds one at a time. Waits for a server that restarts; raises Retry when it stays away.
        """
        ...

    async def get(self, sequence: int) -> DeadLetter:
        """Raises NotFound or Retry."""
        ...

    async def replay(self, sequence: int) -> None:
        """Give the message again to the durable that failed, and to no other, and take it out of the box.

        It waits its turn among the messages of its object, its attempts are counted anew, and it is parked
        again when it fails again. Called twice, or cut off midway and called again, it is replayed once.

        Raises:
            NotFound: it is not there (any more).
            Permanent: `NoSuchDurable` nobody would get it; `LetterCut` its data are not all there.
            Retry: the bus is unreachable, or has no room; the letter is still in the box.
        """
        ...

    async def drop(self, sequence: int) -> None:
        """Forget the message for good. Raises NotFound or Retry."""
        ...


class FactHistory(Protocol):
    """What the streams hold, asked without reading them."""

    @property
    def epoch(self) -> int:
        """Another number after every lost connection: a stream seen before may have been lost since."""
        ...

    async def last(self, subject: str) -> RawMessage | None:
        """The last stored message of a subject, None when its stream holds none.

        Raises:
            Retry: the bus is unreachable.
            Permanent: no stream is declared for the subject.
        """
        ...

    async def whole_since(self, stream: str) -> datetime | None:
        """When the stream was made; None once it has dropped messages, for age, size or by hand.

        A whole stream never held what it does not hold now. Raises Retry.
        """
        ...


Answering = Callable[[bytes], Awaitable[bytes]]
"""Carries out one command and gives the answer. Whatever it raises is answered as an error."""


class Commands(Protocol):
    """Commands to services: not stored, heard by every live replica, each of which answers."""

    async def answer(self, subject: str, handler: Answering) -> None:
        """Answer the commands on a subject until cancelled, a few at once; reconnects by itself.

        Those who ask are told at once and every half second that the work goes on. An error is logged here,
        once, and answered as one.
        """
        ...

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        """The answers of all replicas, [] when nobody listens.

        Args:
            within: seconds in which replicas must come forward; those at work are waited for as long as they
                show signs of life at least so often.

        Raises:
            Retry: the bus is unreachable, or a replica failed or fell silent; the others did their part.
            Permanent: the command is too large.
        """
        ...


class Bus(Publisher, Subscriber, Reader, Commands, Protocol):
    """Everything, as made by `bus.connect(settings)`; services take the narrow ports above."""

    @property
    def history(self) -> FactHistory: ...

    def key_value(self, bucket: str) -> KeyValue: ...

    @property
    def work(self) -> WorkQueue: ...

    @property
    def dead_letters(self) -> DeadLetterBox: ...

    @property
    def inspect(self) -> Inspector: ...

    async def healthy(self) -> bool:
        """The bus can be reached, and no consumer of ours has stopped for its dead letters."""
        ...

    async def close(self) -> None: ...
