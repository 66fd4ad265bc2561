"""What services need of the bus. One contract suite tests `nats.NatsBus` and the test kit's `MemoryBus`."""

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
"""Return = the effect is durable, ack. `Retry` = attempt again, `Unavailable` as often as it takes
unless other messages of the consumer are handled meanwhile.
`Permanent` = park."""


@dataclass(frozen=True)
class Subscription:
    """A durable pull consumer: fixed name, subject filters, bounds. Streams are named in `bus.streams`.

    Args:
        max_in_flight: messages taken and not yet ended.
        ack_wait: seconds without a sign of progress after which the server redelivers a message.
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
        """Return once the stream has stored it (an id that it holds on this subject counts as stored).

        Raises:
            Unavailable: the bus does not answer.
            Retry: it refused for now, or another subject's message was stored under this id a moment ago.
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
    """What to read. Streams follow from `subjects`.

    Args:
        since: stored events from then on; None = those published from now on, even if the bus answers later.
        follow: False = end when all stored events were read.
        durable: name under which the server keeps the position in each stream; `since` applies at first only.
        selection: what is read under that name, in words, for messages.
        selection_key: the same in a form that never changes, which the server keeps: under one durable name
            all readers must have the same one, whatever streams they read.
        open_within: seconds after which an unreachable bus raises Retry; None = wait for it.
        refine: asked about every event before it is yielded: the subjects to read from that event on, None =
            the same as before. They select fewer events of the same streams. A durable reader that is opened
            (again) begins with `subjects`. After a Retry the event is read and asked about again.
        caught_up: called once, when no stored event is left to be yielded; not with `durable`.
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
        """It needs no stored event and no position on the server."""
        return self.since is None and self.follow and not self.durable


class Reader(Protocol):
    """Reads events without handling them: nothing is parked, what cannot be decoded is skipped and logged."""

    def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        """Yield events, those of one stream in order; stored ones of all streams by time unless durable.

        A durable reader acknowledges an event when the next is requested; otherwise it is redelivered to any
        reader of that name. Readers of one name share the events. Reconnects by itself.

        Raises:
            Retry: the bus could not be read within `open_within` seconds.
            OtherSelection: the durable name is in use for another selection.
        """
        ...


@dataclass(frozen=True)
class Entry:
    """One key-value entry. `value` is None when the key was deleted.

    Args:
        is_stored: given by a listing of what there is, also by that of a watch at its beginning and after a
            lost connection: when it was written is not known.
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
        """Idempotent."""
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
    """Chunks of data-plane work, each on a subject of its own, which names it. Stream `PW_WORK`."""

    async def put(self, subject: str, data: bytes) -> None:
        """Return once stored, in place of what the subject had. Raises Retry or Permanent."""
        ...

    async def get(self, subject: str) -> bytes | None:
        """The chunk; None when there is none, or none yet on the replica that answers. Raises Retry."""
        ...

    async def drop(self, subject: str) -> None:
        """Remove one chunk that is done; idempotent. Raises Retry."""
        ...

    async def purge(self, subject: str) -> None:
        """Remove all chunks of the subject (wildcards allowed); idempotent. Raises Retry."""
        ...


class FactHistory(Protocol):
    """What the streams hold, without reading them."""

    @property
    def epoch(self) -> int:
        """Changes with every lost connection: a stream seen before may have been lost since."""
        ...

    async def last(self, subject: str) -> RawMessage | None:
        """The last stored message of a subject, None when its stream holds none.

        Raises:
            Retry: the bus is unreachable.
            Permanent: no stream is declared for the subject.
        """
        ...

    async def whole_since(self, stream: str) -> datetime | None:
        """When the stream was created; None once messages were removed, for age, size or by hand.

        A whole stream has never held what it does not hold now. Raises Retry.
        """
        ...


CommandHandler = Callable[[bytes], Awaitable[bytes]]
"""Runs one command and returns the answer. Whatever it raises is answered as an error."""


class Commands(Protocol):
    """Commands to services: not stored, received by every live replica, each of which answers."""

    async def answer(self, subject: str, handler: CommandHandler) -> None:
        """Answer the commands on a subject until cancelled, a few at once; reconnects by itself.

        A requester gets a progress reply at once and every half second. An error is logged here, once, and
        answered as one.
        """
        ...

    async def ask_all(self, subject: str, data: bytes, *, within: float = 2.0) -> list[bytes]:
        """The answers of all replicas, [] when there is none.

        Args:
            within: seconds in which replicas must reply; those at work are waited for as long as they report
                progress at least this often.

        Raises:
            Unavailable: the bus does not answer.
            Retry: a replica failed or stopped reporting; the others have done their work.
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
        """Return when the bus is reachable and its streams exist. Raises Retry, with what went wrong."""
        ...

    @property
    def trouble(self) -> str:
        """Why there is no connection; "" when there is one, or none was tried."""
        ...

    async def healthy(self) -> bool:
        """`check` succeeds, and no consumer of this process has stopped because of its dead letters."""
        ...

    def late_handlers(self) -> Mapping[str, float]:
        """Seconds for which the oldest handler has run, by durable, where it is past `handle_within`."""
        ...

    async def close(self) -> None: ...
