"""Cursors: a position in one stream, ephemeral or durable, that survives losses."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from paddlewheel.bus.consume.merge import Idle
from paddlewheel.bus.consume.settle import Message, release_in_order
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS, NatsMessage, end_feed, read_event, stored_at
from paddlewheel.bus.nats.direct import DirectFeed
from paddlewheel.bus.nats.ephemeral import (
    BATCH,
    STORED_MESSAGE_TIMEOUT_SECONDS,
    discard_ephemeral,
    open_ephemeral,
)
from paddlewheel.bus.nats.errors import FeedLostError
from paddlewheel.bus.nats.feed import Feed, open_feed
from paddlewheel.bus.nats.provision import SELECTION, SELECTION_KEY, Provision
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import streams_under
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

READER_ACK_TIMEOUT_SECONDS = 5.0
"""Seconds after which an event that a killed durable reader held is redelivered to another reader."""

_UNUSED_DURABLE_TIMEOUT_SECONDS = 30 * 86400.0
"""Seconds without a reader after which a durable consumer is deleted."""
_RESUME_GRACE_SECONDS = 1.0
"""A lost cursor resumes this long before the last event, because servers' clocks differ."""
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_RECOUNT_INTERVAL_SECONDS = 1.0
"""Seconds without an event after which a durable reader that does not follow counts the events that are left,
because other readers of its name may have read them."""
_PROMPT_TIMEOUT_SECONDS = 0.25
"""If the bus answers within this time, "from now on" begins at the server's present, whatever our clock
shows. Otherwise it begins at the time of the call, so that no event published meanwhile is missed."""

Place = tuple[datetime, int]
"""When an event was stored, and its sequence, which alone repeats in a re-created stream."""

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class CursorContext:
    """The dependencies of every cursor."""

    connection: Connection
    provision: Provision
    clock: Clock


@dataclass(frozen=True)
class Read:
    """One event and the cursor that read it."""

    delivery: Delivery
    cursor: Cursor

    @property
    def at(self) -> datetime:
        return self.delivery.published_at

    @property
    def place(self) -> Place:
        return self.delivery.published_at, self.delivery.sequence


class Cursor:
    """A position in one stream that survives lost connections, lost consumers and re-created streams."""

    def __init__(
        self, context: CursorContext, stream: str, filters: tuple[str, ...], reading: Reading
    ) -> None:
        self._context = context
        self._stream = stream
        self._all = filters
        self._filters = filters
        self._reading = reading
        self._asked = context.clock.monotonic()
        self._began = reading.since or context.clock.now()
        self._last: Place | None = None
        self._done: Place | None = None
        self._arrived: deque[Read] = deque()
        self._feed: Feed | DirectFeed | None = None
        self._left: int | None = None
        self._opened = False

    @property
    def behind(self) -> bool:
        """Whether stored events were requested, and not all of them were taken."""
        return self._reading.since is not None and (self._left != 0 or bool(self._arrived))

    def take(self) -> Read | None:
        return self._arrived.popleft() if self._arrived else None

    async def wait(self) -> Read | Idle:
        was_behind = self.behind
        while not self._arrived:
            try:
                feed = self._feed or await self._reopen()
                # A cursor that was opened again holds up the others until it has caught up.
                was_behind = was_behind or self.behind
                if not self._reading.follow and await self._is_over():
                    return Idle.ENDED
                if was_behind and not self.behind:
                    return Idle.CAUGHT_UP
                await self._fill(feed)
            except (FeedLostError, Retry) as error:
                await self._lost(error)
        return self._arrived.popleft()

    async def done(self, read: Read) -> None:
        """Record that the reader has handled an event."""
        self._done = read.place

    async def mark(self) -> None:
        """Keep taken events from being redelivered to other readers. Never raises."""

    async def close(self) -> None:
        """Stop; idempotent."""
        self._forget_unread()
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()

    def _forget_unread(self) -> None:
        """Drop unread events. They are delivered again, and must then count as new."""
        self._arrived.clear()
        self._last = self._done

    async def _reopen(self) -> Feed | DirectFeed:
        try:
            async with asyncio.timeout(self._time_left()):
                # The start of the reading depends on when the bus answers.
                await self._context.provision.ready()
                self._feed = feed = await self._open()
        except TimeoutError:
            limit, trouble = self._reading.open_within, self._context.connection.trouble
            why = f"no answer within open_within={limit} s{trouble}"
            raise Unavailable("BusUnreachable", why) from None
        self._opened = True
        return feed

    def _time_left(self) -> float | None:
        """Seconds left for the first opening; None = no limit."""
        limit = self._reading.open_within
        return None if self._opened or limit is None else limit - self._waited

    @property
    def _waited(self) -> float:
        """Seconds since the reader was made."""
        return self._context.clock.monotonic() - self._asked

    async def _open(self) -> Feed | DirectFeed:
        opened = await open_ephemeral(
            self._context.connection,
            self._context.provision,
            self._stream,
            self._filters,
            **self._start(self._began - timedelta(seconds=_RESUME_GRACE_SECONDS)),
        )
        self._left = opened.pending
        return opened.feed

    def _start(self, began: datetime) -> dict[str, object]:
        if self._reading.since is None and not self._opened and self._waited < _PROMPT_TIMEOUT_SECONDS:
            return {"deliver_policy": DeliverPolicy.NEW}
        start = self._last[0] - timedelta(seconds=_RESUME_GRACE_SECONDS) if self._last else began
        return {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": max(start, _EARLIEST)}

    async def _is_over(self) -> bool:
        """Whether no stored event is left to read."""
        return self._left == 0

    async def _fill(self, feed: Feed | DirectFeed) -> None:
        is_due = self.behind or not self._reading.follow
        try:
            async with asyncio.timeout(STORED_MESSAGE_TIMEOUT_SECONDS if is_due else None):
                arrived = await feed.fetch(BATCH)
        except TimeoutError:
            # The stream's limits may have removed the events that were left: open and count again.
            self._feed = None
            await discard_ephemeral(self._context.connection, feed)
            raise FeedLostError("stored events vanished before they were delivered") from None
        for msg in arrived:
            self._left = msg.metadata.num_pending
            if not self._is_new(msg) or not (delivery := _delivery(msg)):
                continue
            self._arrived.append(Read(delivery, self))
            if await self._refine(delivery):
                # Later events are read again, through the new filters.
                self._left, self._feed = None, None
                await feed.close()
                return

    async def _refine(self, delivery: Delivery) -> bool:
        """Use other filters for events after this one; False when they stay."""
        subjects = await self._reading.refine(delivery) if self._reading.refine else None
        if subjects is None:
            return False
        self._filters = streams_under(subjects).get(self._stream, self._filters)
        return True

    def _is_new(self, msg: Msg) -> bool:
        """False for an event before the beginning, or one that was read before the last loss."""
        here = _place_of(msg)
        if not (self._is_behind_last(*here) if self._last else self._may_begin(here[0])):
            return False
        self._last = here
        return True

    def _is_behind_last(self, at: datetime, sequence: int) -> bool:
        """Later by time or sequence: a re-created stream counts from one, and clocks differ."""
        assert self._last
        return at > self._last[0] or sequence > self._last[1]

    def _may_begin(self, at: datetime) -> bool:
        return at >= self._began

    async def _lost(self, error: FeedLostError | Retry) -> None:
        left = self._time_left()
        # A further attempt would not end in time.
        if left is not None and left <= REOPEN_INTERVAL_SECONDS and isinstance(error, Retry):
            raise error
        log.warning("reading interrupted", stream=self._stream, why=str(error))
        await self.close()
        await self._context.clock.sleep(REOPEN_INTERVAL_SECONDS)


class DurableCursor(Cursor):
    """A position that the server keeps. It delivers the next event when the last one was acknowledged. One
    event at a time keeps the order when a reader dies: no later event is delivered before the one it held."""

    def __init__(
        self, context: CursorContext, stream: str, filters: tuple[str, ...], reading: Reading
    ) -> None:
        super().__init__(context, stream, filters, reading)
        self._held: dict[Place, NatsMessage] = {}
        """Unacknowledged events: several after a redelivery to another reader of the name."""

    @property
    def behind(self) -> bool:
        """Other cursors do not wait for this one: another process may hold this stream's next event while it
        waits for one that this process holds."""
        return False

    async def done(self, read: Read) -> None:
        await super().done(read)
        if held := self._held.pop(read.place, None):
            await self._ack(held)

    async def mark(self) -> None:
        for held in tuple(self._held.values()):
            await held.in_progress()

    async def close(self) -> None:
        self._forget_unread()
        held, self._held = self._held, {}
        feed, self._feed = self._feed, None
        # The feed ends first; otherwise released events could be delivered to it again.
        unfetched: list[Message] = []
        if isinstance(feed, Feed):
            await end_feed(self._context.connection, feed, unfetched)
        await release_in_order((*held.values(), *unfetched))

    async def _open(self) -> Feed:
        # Another reader of the name may have changed the filters since.
        self._filters = self._all
        await self._ensure()
        return await open_feed(self._context.connection, self._stream, self._reading.durable)

    async def _ensure(self) -> None:
        if self._reading.selection_key and not self._opened:
            await self._context.provision.check_selection(self._reading)
        info = await self._context.provision.consumer(self._stream, self._config())
        self._left = info.num_pending or 0

    async def _is_over(self) -> bool:
        """Whether no event is left, and no reader holds an event that might be redelivered."""
        if self._left:
            return False
        info = await self._context.provision.find(self._stream, self._reading.durable)
        if info is None:
            raise FeedLostError("the durable consumer is gone")
        self._left = info.num_pending or 0
        return not self._left and not info.num_ack_pending

    async def _fill(self, feed: Feed | DirectFeed) -> None:
        assert isinstance(feed, Feed)
        try:
            async with asyncio.timeout(None if self._reading.follow else _RECOUNT_INTERVAL_SECONDS):
                arrived = await feed.fetch(BATCH)
        except TimeoutError:
            self._left = None
            return
        for msg in arrived:
            self._left = msg.metadata.num_pending
            await self._receive(msg, NatsMessage(self._context.connection, msg, feed.generation))

    async def _receive(self, msg: Msg, message: NatsMessage) -> None:
        place = _place_of(msg)
        if place in self._held:
            # Redelivered before it was read. If it were acknowledged now, a crash would lose it.
            self._held[place] = message
        elif self._is_new(msg) and (delivery := _delivery(msg)):
            self._held[place] = message
            self._arrived.append(Read(delivery, self))
            if await self._refine(delivery):
                # No later event is delivered while this one is held, so none is missed.
                await self._ensure()
        else:
            await self._ack(message)

    async def _ack(self, message: NatsMessage) -> None:
        """Acknowledge. An event without a confirmation is redelivered, recognized, and acknowledged again."""
        try:
            await message.ack()
        except (Retry, Permanent) as error:
            log.info("event not acknowledged yet", stream=self._stream, why=str(error))

    def _may_begin(self, at: datetime) -> bool:
        """The position that the server keeps decides."""
        return True

    def _config(self) -> ConsumerConfig:
        config = ConsumerConfig(
            name=self._reading.durable,
            durable_name=self._reading.durable,
            filter_subjects=list(self._filters),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=READER_ACK_TIMEOUT_SECONDS,
            max_deliver=-1,
            max_ack_pending=1,
            inactive_threshold=_UNUSED_DURABLE_TIMEOUT_SECONDS,
            metadata={SELECTION: self._reading.selection, SELECTION_KEY: self._reading.selection_key},
        )
        return config.evolve(**self._start(self._began))


def _place_of(msg: Msg) -> Place:
    return stored_at(msg), msg.metadata.sequence.stream


def _delivery(msg: Msg) -> Delivery | None:
    meta, event = msg.metadata, read_event(msg)
    if event is None:
        return None
    return Delivery(event, msg.subject, meta.num_delivered, meta.sequence.stream, stored_at(msg))
