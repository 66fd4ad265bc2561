"""The ports of the bus for services.

One contract suite tests `nats.NatsBus` and the test kit's `MemoryBus`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from paddlewheel.bus.admin.inspect import Inspector
from paddlewheel.bus.dead_letters import DeadLetterBox
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.errors import Permanent


@dataclass(frozen=True)
class RawMessage:
    """One message as it is on the wire."""

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
"""Handles a message. It returns when the effect is durable; the message is then acknowledged.

It raises `Retry` to be called again, or `Permanent` to have the message parked. `Unavailable` does not count
as an attempt unless other messages of the consumer are handled meanwhile."""


@dataclass(frozen=True)
class Subscription:
    """A durable pull consumer: fixed name, subject filters, bounds. Streams are named in `bus.streams`.

    Args:
        max_in_flight: messages that are taken and have not ended.
        ack_wait: seconds without a report of progress after which the server redelivers a message.
        max_attempts: the message is parked after this many.
        max_parked: the consumer stops when it would have to park more within `parked_window` seconds
            (docs/decisions/0011).
        handle_within: seconds after which a handler that has not ended is reported (`Bus.late_handlers`).
    """

    durable: str
    stream: str
    subjects: tuple[str, ...]
    max_in_flight: int = 64
    ack_wait: float = 30.0
    max_attempts: int = 8
    max_parked: int = 100
    parked_window: float = 600.0
    handle_within: float = 300.0


class Publisher(Protocol):
    """Publishes facts."""

    async def publish(self, event: Event) -> None:
        """Return when the stream has stored the event. An id that it holds on this subject counts as stored.

        Raises:
            Unavailable: the bus does not answer.
            Retry: the bus refuses it for now, or a message on another subject was just stored with this id.
            Permanent: the event can never be stored (too large, no stream for its subject).
        """
        ...


Refine = Callable[[Delivery], Awaitable[tuple[str, ...] | None]]


class OtherSelection(Permanent):
    """A durable name is in use for another selection; `kept` is that selection, in words."""

    def __init__(self, durable: str, kept: str) -> None:
        super().__init__("OtherSelection", f"{durable} was created to read {kept}")
        self.kept = kept


@dataclass(frozen=True)
class Reading:
    """The events to read. `subjects` decide which streams are read.

    Args:
        since: read stored events from this time on; None = events published after the call, even if the bus
            answers later.
        follow: False = end when all stored events were read.
        durable: name under which the server keeps the position in each stream. `since` applies only when the
            server has no position under this name.
        selection: the selection in words, for messages.
        selection_key: the selection in a form that never changes, which the server keeps. All readers with
            one durable name must have the same key, even for different streams.
        open_within: seconds after which an unreachable bus raises Retry; None = wait without a limit.
        refine: called with every event before it is yielded. It returns the subjects to read after that
            event, which select fewer events of the same streams; None = no change. A durable reader begins
            with `subjects` whenever it is opened. After a Retry, `refine` is called with the same event
            again.
        caught_up: called once, when all stored events were yielded; not with `durable`.
    """

    subjects: tuple[str, ...]
    since: datetime | None = None
    follow: bool = True
    durable: str = ""
    selection: str = ""
    selection_key: str = ""
    open_within: float | None = None
    refine: Refine | None = None
    caught_up: Callable[[], None] | None = None

    @property
    def is_live(self) -> bool:
        """Whether it needs no stored event and no position on the server."""
        return self.since is None and self.follow and not self.durable


class Reader(Protocol):
    """Reads events without handling them. Nothing is parked; an unreadable message is skipped and logged."""

    def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        """Yield events in the order of their stream, and without `durable` stored ones by time.

        A durable reader acknowledges an event when the next is requested. An unacknowledged event is
        redelivered to any reader of that name: they share the events. Reconnects by itself.

        Raises:
            Retry: the bus could not be read within `open_within` seconds.
            OtherSelection: the durable name is in use for another selection.
        """
        ...


@dataclass(frozen=True)
class Entry:
    """One key-value entry. `value` is None when the key was deleted.

    Args:
        is_stored: it was found by a listing, which also begins a watch and follows a lost connection. So it
            may have been written at any time before.
    """

    key: str
    value: bytes | None
    revision: int
    is_stored: bool = field(default=False, compare=False)


class KeyValue(Protocol):
    """A bucket of keys (`a.b.c` tokens of [A-Za-z0-9_-]) with compare-and-set."""

    async def get(self, key: str) -> Entry:
        """Raises NotFound when the key is absent or deleted."""
        ...

    async def create(self, key: str, value: bytes) -> int:
        """Returns the revision. Raises AlreadyExists."""
        ...

    async def put(self, key: str, value: bytes) -> int:
        """Write unconditionally; returns the revision."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write only if the key is still at `revision`; returns the new one. Raises Conflict."""
        ...

    async def delete(self, key: str) -> None:
        """Delete the key; idempotent."""
        ...

    async def entries(self, pattern: str) -> list[Entry]:
        """All live entries whose key matches a NATS pattern (`a.*`, `a.>`)."""
        ...

    def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
        """Yield all live entries that match, then None once, then every change until cancelled.

        Reconnects by itself; after a lost connection entries may be yielded again, as `is_stored`.
        """
        ...


class WorkStore(Protocol):
    """Chunks of work for agents in stream `PW_WORK`. Each chunk has a subject of its own, which names it."""

    async def put(self, subject: str, data: bytes) -> None:
        """Store a chunk in place of the former one of the subject. Raises Retry or Permanent."""
        ...

    async def get(self, subject: str) -> bytes | None:
        """The chunk; None when the replica that answers has none, and it may lag behind. Raises Retry."""
        ...

    async def drop(self, subject: str) -> None:
        """Remove one chunk that is done; idempotent. Raises Retry."""
        ...

    async def purge(self, subject: str) -> None:
        """Remove all chunks of the subject (wildcards allowed); idempotent. Raises Retry."""
        ...


class FactHistory(Protocol):
    """Lookups in the streams, without reading them."""

    @property
    def epoch(self) -> int:
        """A number that changes with every lost connection, after which a stream may have been lost."""
        ...

    async def last(self, subject: str) -> RawMessage | None:
        """The last stored message of a subject, None when its stream holds none.

        Raises:
            Retry: the bus is unreachable.
            Permanent: no stream is declared for the subject.
        """
        ...

    async def whole_since(self, stream: str) -> datetime | None:
        """When the stream was created; None if messages were removed from it, by age, by size or by hand. A
        stream from which nothing was removed holds every message that it ever held. Raises Retry."""
        ...


CommandHandler = Callable[[bytes], Awaitable[bytes]]
"""Runs one command and returns the answer. An exception is answered as an error."""


class Commands(Protocol):
    """Commands to services. They are not stored; every live replica receives them and answers."""

    async def answer(self, subject: str, handler: CommandHandler) -> None:
        """Answer the commands on a subject until cancelled, a few at once; reconnects by itself. A requester
        receives a progress reply at once and every half second. An error is logged once, and answered."""
        ...

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        """The answers of all replicas; [] when there is no replica.

        Args:
            within: seconds in which replicas must reply. A replica that runs the command is waited for while
                it reports progress at least this often.

        Raises:
            Unavailable: the bus does not answer.
            Retry: a replica failed or stopped reporting; the others have run the command.
            Permanent: the command is too large.
        """
        ...


class Bus(Publisher, Reader, Commands, Protocol):
    """All ports, as made by `bus.connect(access)`; services take the narrow ones above."""

    async def consume(self, subscription: Subscription, handler: Handler) -> None:
        """Deliver until cancelled; reconnects by itself. Messages of one object stay in order."""
        ...

    @property
    def history(self) -> FactHistory: ...

    def key_value(self, bucket: str) -> KeyValue: ...

    @property
    def work(self) -> WorkStore: ...

    @property
    def dead_letters(self) -> DeadLetterBox: ...

    @property
    def inspect(self) -> Inspector: ...

    async def check(self) -> None:
        """Return when the bus is reachable and its streams exist. Raises Retry, with the reason."""
        ...

    @property
    def trouble(self) -> str:
        """Why there is no connection; "" when there is one, or when none was tried."""
        ...

    async def healthy(self) -> bool:
        """Whether `check` succeeds and no consumer has stopped because of its dead letters."""
        ...

    def late_handlers(self) -> Mapping[str, float]:
        """Durable to the seconds for which its oldest handler has run, if that is past `handle_within`."""
        ...

    async def close(self) -> None: ...
