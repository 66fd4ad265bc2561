"""Following streams from a moment on, in the order they were stored, for viewers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta

import structlog
from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy

from paddlewheel.bus.nats.consume import PAUSE
from paddlewheel.bus.nats.errors import FeedLostError
from paddlewheel.bus.nats.feed import Feed
from paddlewheel.bus.nats.link import Link
from paddlewheel.bus.nats.look import BATCH, View, open_look
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import Delivery
from paddlewheel.bus.streams import streams_under
from paddlewheel.contracts import wire
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

_OVERLAP = timedelta(milliseconds=1)

log = structlog.get_logger()


class NatsTail:
    """Tail over short-lived consumers, one per stream touched."""

    def __init__(self, link: Link, provision: Provision, clock: Clock) -> None:
        self._link = link
        self._provision = provision
        self._clock = clock

    async def tail(
        self, subjects: tuple[str, ...], *, since: datetime | None = None
    ) -> AsyncGenerator[Delivery, None]:
        place = Place(subjects, since, self._clock.now())
        feed: Feed | None = None
        try:
            while True:
                try:
                    feed = feed or (await open_look(self._link, self._provision, place.views())).feed
                    place.opened = True
                    arrived = await feed.fetch(BATCH)
                except (FeedLostError, Retry) as error:
                    log.warning("tail interrupted", subjects=subjects, why=str(error))
                    await _close(feed)
                    feed = None
                    await self._clock.sleep(PAUSE)
                    continue
                for msg in arrived:
                    if place.is_new(msg) and (delivery := _read(msg)):
                        yield delivery
        finally:
            await _close(feed)


class Place:
    """How far a viewer has come in each stream; outlives lost connections and streams made anew."""

    def __init__(self, subjects: tuple[str, ...], since: datetime | None, now: datetime) -> None:
        self._streams = streams_under(subjects)
        self._since = since
        self._began = since or now
        self._last: dict[str, tuple[datetime, int]] = {}
        self.opened = False

    def views(self) -> list[View]:
        """What to open now."""
        return [View(stream, filters, self._start(stream)) for stream, filters in self._streams.items()]

    def is_new(self, msg: Msg) -> bool:
        """False for what lies before the beginning or was seen before the last loss."""
        meta = msg.metadata
        here = (meta.timestamp, meta.sequence.stream)
        if here <= self._last.get(meta.stream, (self._began, 0)):
            return False
        self._last[meta.stream] = here
        return True

    def _start(self, stream: str) -> dict[str, object]:
        if self._since is None and not self.opened:
            return {"deliver_policy": DeliverPolicy.NEW}
        moment = self._last[stream][0] if stream in self._last else self._began
        # The server counts nanoseconds, Python rounds to microseconds: begin a little early, `is_new` cuts.
        return {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": moment - _OVERLAP}


def _read(msg: Msg) -> Delivery | None:
    """For viewers: what cannot be read is skipped."""
    meta = msg.metadata
    try:
        event = wire.decode(msg.subject, msg.data, msg.headers or {})
    except Permanent as error:
        log.warning("unreadable message skipped", subject=msg.subject, why=str(error))
        return None
    return Delivery(event, msg.subject, 1, meta.sequence.stream, meta.timestamp)


async def _close(feed: Feed | None) -> None:
    if feed is not None:
        await feed.close()
