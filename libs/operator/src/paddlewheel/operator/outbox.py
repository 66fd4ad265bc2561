"""Telling the facts of objects: in order, none lost, none stored twice, and again when the stream was lost.

What is to be told stands in the object's status (`paddlewheel.contracts.announcements`). Within its duplicate
window the stream itself drops what is told twice. Beyond it the outbox looks first, whenever somebody may
have told the fact longer ago than half that window: say, a process killed before it could write the status.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

import structlog

from paddlewheel.bus.ports import FactHistory, Publisher
from paddlewheel.bus.streams import StreamSpec
from paddlewheel.contracts.announcements import Announcement, Announcements, confirm, pending
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker

log = structlog.get_logger(__name__)

Outcome = Literal["published", "pending", "refused"]
Count = Callable[[str, Outcome], None]
"""Counts what became of a fact, by its name."""

SKEW: Final = timedelta(seconds=60)
"""How far this clock and the server's may lie apart when a fact's time is compared with a stream's."""
_EVENT_ID: Final = "ce-id"


class FactBus(Publisher, Protocol):
    """What facts are told to."""

    @property
    def history(self) -> FactHistory: ...


@dataclass(frozen=True)
class FactSource:
    """One object and how its facts read.

    Args:
        created: of the object, by the API server's clock.
        render: the event of a fact, None for what another version announced and this one does not know.
            May raise Permanent.
    """

    key: Key
    uid: str
    created: datetime
    render: Callable[[Announcement], Event | None]


@dataclass(frozen=True)
class Republished:
    """Facts looked for in the stream, and those that were missing and are there now.

    A fact removed from a stream by hand is not there again before the stream has forgotten its id.
    """

    checked: int = 0
    published: int = 0

    def __add__(self, other: Republished) -> Republished:
        return Republished(self.checked + other.checked, self.published + other.published)


class Outbox:
    """One service's way to tell its facts.

    Args:
        stream: where all of them lie.
    """

    def __init__(
        self, bus: FactBus, line: CircuitBreaker, clock: Clock, *, stream: StreamSpec, count: Count
    ) -> None:
        self._bus = bus
        self._line = line
        self._clock = clock
        self._stream = stream
        self._count = count
        self._sure = stream.duplicate_window / 2
        self._clean: OrderedDict[str, float] = OrderedDict()
        self._epoch: int | None = None
        self._since: datetime | None = None
        self._retold: set[str] = set()

    async def tell(self, source: FactSource, facts: Announcements) -> Announcements:
        """Publish in order what is pending; the first that the bus does not take stops the rest.

        Returns:
            The same facts, with those confirmed that need no more telling. Never raises for the bus.
        """
        waiting = pending(facts)
        if not waiting:
            self._note_clean(source.uid)
            return facts
        told: list[Announcement] = []
        try:
            await self._tell_lost(source, facts)
            for fact in waiting:
                await self._tell(source, fact)
                told.append(fact)
        except Retry as error:
            left = waiting[len(told)]
            log.info("fact stays pending", fact=left.fact, key=str(source.key), error=str(error))
            self._count(left.fact, "pending")
        return confirm(facts, told)

    async def republish(
        self, source: FactSource, facts: Announcements, *, everything: bool = False
    ) -> Republished:
        """Publish again, in order and under their ids, confirmed facts that the stream does not hold.

        Args:
            everything: look for every fact, not only for those that the stream is too young for.

        Raises:
            Retry: the bus is away; what is left is found missing the next time.
        """
        since, sum_ = self._since, Republished()
        lost = self._maybe_lost(source, facts)
        for fact in _confirmed(facts) if everything else lost:
            sum_ += await self._tell_again(source, fact)
        if lost and since == self._since:
            self._retold.add(source.uid)
        return sum_

    async def refresh(self) -> datetime | None:
        """When the stream was made; None when it has dropped messages since. Raises Retry."""
        epoch = self._bus.history.epoch
        since = await self._line.call(self._bus.history.whole_since(self._stream.name))
        if since != self._since:
            self._retold.clear()
        self._epoch, self._since = epoch, since
        return since

    async def _tell_lost(self, source: FactSource, facts: Announcements) -> None:
        """What the stream has lost comes first, or a subscriber would see an object's facts out of order."""
        if self._epoch != self._bus.history.epoch:
            await self.refresh()
        await self.republish(source, facts)

    def _maybe_lost(self, source: FactSource, facts: Announcements) -> Announcements:
        """Confirmed facts that are older than the stream."""
        since = self._since
        if since is None or source.uid in self._retold:
            return ()
        return tuple(f for f in _confirmed(facts) if datetime.fromisoformat(f.at) < since + SKEW)

    async def _tell(self, source: FactSource, fact: Announcement) -> None:
        """Return when the fact needs no more telling. Raises Retry."""
        try:
            event = source.render(fact)
            if event is None:
                return
            if self._is_first_told(source) or not await self._is_held(event):
                await self._line.call(self._bus.publish(event))
        except Permanent as error:
            self._refused(source, fact, error)
            return
        self._count(fact.fact, "published")

    async def _tell_again(self, source: FactSource, fact: Announcement) -> Republished:
        try:
            event = source.render(fact)
            if event is None:
                return Republished()
            if await self._is_held(event):
                return Republished(checked=1)
            await self._line.call(self._bus.publish(event))
            if not await self._is_held(event):
                log.warning("fact was removed from the stream a moment ago", fact=fact.fact, id=event.id)
                return Republished(checked=1)
        except Permanent as error:
            self._refused(source, fact, error)
            return Republished(checked=1)
        self._count(fact.fact, "published")
        return Republished(checked=1, published=1)

    def _refused(self, source: FactSource, fact: Announcement, error: Permanent) -> None:
        log.error("fact cannot be published", fact=fact.fact, key=str(source.key), error=str(error))
        self._count(fact.fact, "refused")

    def _is_first_told(self, source: FactSource) -> bool:
        """Nobody can have told it so long ago that the stream has forgotten its id.

        The time in the announcement does not say so: a process killed before it could write the status is
        followed by one that declares the fact anew. But a moment ago nothing was left to tell, or the object
        did not even exist.
        """
        age = (self._clock.now() - source.created).total_seconds()
        clean = self._clean.get(source.uid, float("-inf"))
        return age < self._sure or self._clock.monotonic() - clean < self._sure

    async def _is_held(self, event: Event) -> bool:
        last = await self._line.call(self._bus.history.last(event.subject))
        return last is not None and is_told(last.headers.get(_EVENT_ID, ""), event.id)

    def _note_clean(self, uid: str) -> None:
        """Nothing was left to tell of the object now; memory is bounded by what is looked at in that time."""
        now = self._clock.monotonic()
        self._clean[uid] = now
        self._clean.move_to_end(uid)
        while self._clean and now - next(iter(self._clean.values())) >= self._sure:
            self._clean.popitem(last=False)


def _confirmed(facts: Announcements) -> Announcements:
    return tuple(fact for fact in facts if fact.announced)


def is_told(last: str, wanted: str) -> bool:
    """The last id of a subject is the wanted one or of a later attempt: attempts are told in order."""
    (last_fact, _, last_attempt), (fact, _, attempt) = last.rpartition("/"), wanted.rpartition("/")
    if last_fact != fact or not last_attempt.isdecimal() or not attempt.isdecimal():
        return last == wanted
    return int(last_attempt) >= int(attempt)
