"""Publishes the facts of objects in order. No fact is lost, and none is stored twice.

The outbox of an object is `status.announcements` (`paddlewheel.contracts.announcements`). A fact is recorded
there first and published afterwards, so the bus never has a fact that the API server never had. The
confirmation of a published fact stays in memory until the next status write includes it. If no write follows
soon, the confirmation is written separately. After a crash before that write, the fact is published again
with the same id. Within its duplicate window the stream drops the repetition. For an older fact, the outbox
first looks up whether the stream has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
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

Outcome = Literal["published", "pending", "refused", "dropped"]
Count = Callable[[str, Outcome], None]
"""Counts an outcome for the name of a fact."""

CLOCK_SKEW_GRACE_SECONDS: Final = 60.0
"""Assumed maximum difference between this clock and the clock of the bus server."""
CONFIRM_GRACE_SECONDS: Final = 120.0
"""Time after which a confirmation is written separately, if no other status write has included it."""
CONFIRM_DELAYED_GRACE_SECONDS: Final = 3.0
"""The same for facts that had to wait for the bus: waiting facts fill the outbox of an object."""
PUBLISH_RETRY_INTERVAL_SECONDS: Final = 5.0
"""Interval between two attempts to publish facts that the bus did not accept."""
_EVENT_ID: Final = "ce-id"


class FactBus(Publisher, Protocol):
    """The bus, for publishing and looking up facts."""

    @property
    def history(self) -> FactHistory: ...


@dataclass(frozen=True)
class FactSource:
    """One object and how its facts are rendered.

    Args:
        render: returns the event of a fact, with the recorded message. None for a fact that another version
            of the service declared. May raise Permanent.
    """

    key: Key
    uid: str
    render: Callable[[Announcement], Event | None]


@dataclass(frozen=True)
class Published:
    """The result of publishing the facts of one object.

    Args:
        is_settled: every fact is published, or cannot be published by this version.
        retry_after: seconds until `publish` must be called again for this object. None means not at all.
    """

    is_settled: bool = True
    retry_after: float | None = None


@dataclass(frozen=True)
class Republished:
    """Number of facts that were looked up in the stream, and of missing facts that were published again.

    A fact that was deleted from a stream by hand cannot be published again until the stream forgets its id.
    """

    checked: int = 0
    published: int = 0

    def __add__(self, other: Republished) -> Republished:
        return Republished(self.checked + other.checked, self.published + other.published)


@dataclass
class _Unconfirmed:
    """Published facts of one object that its status does not show as published yet."""

    due: float
    facts: set[Announcement]


class Outbox:
    """Publishes the facts of one service.

    Args:
        stream: the stream that stores the facts.
        elsewhere: other streams, by the names of the facts that they store.
    """

    def __init__(
        self,
        bus: FactBus,
        breaker: CircuitBreaker,
        clock: Clock,
        *,
        stream: StreamSpec,
        count: Count,
        elsewhere: Mapping[str, StreamSpec] = MappingProxyType({}),
    ) -> None:
        self._bus = bus
        self._breaker = breaker
        self._clock = clock
        self._stream = stream
        self._elsewhere = elsewhere
        self._count = count
        self._unconfirmed: dict[str, _Unconfirmed] = {}
        self._delayed: set[str] = set()
        self._epoch: int | None = None
        self._since: dict[str, datetime] = {}
        self._republished: set[str] = set()
        self._refused: set[tuple[str, Announcement]] = set()

    def record(self, uid: str, facts: Announcements) -> Announcements:
        """The facts for the next status write: published facts are marked as announced."""
        unconfirmed = self._unconfirmed.get(uid)
        return confirm(facts, unconfirmed.facts) if unconfirmed else facts

    def note_dropped(self, before: Announcements, recorded: Announcements) -> None:
        """Count pending facts that were removed from the status, because too many wait."""
        kept = {(fact.fact, fact.attempt) for fact in recorded}
        for fact in pending(before):
            if (fact.fact, fact.attempt) not in kept:
                log.error("fact dropped, because too many facts of the object wait", fact=fact.fact)
                self._count(fact.fact, "dropped")

    def is_confirmation_due(self, uid: str) -> bool:
        """True when the confirmation must be written separately, because no other write has included it."""
        unconfirmed = self._unconfirmed.get(uid)
        return unconfirmed is not None and self._clock.monotonic() >= unconfirmed.due

    async def publish(self, source: FactSource, recorded: Announcements) -> Published:
        """Publish the pending facts in order. Stop at the first fact that the bus does not accept.

        Failures of the bus are returned, not raised.

        Args:
            recorded: the facts in the API server.
        """
        unconfirmed = self.record(source.uid, recorded)
        waiting = [fact for fact in pending(unconfirmed) if (source.uid, fact) not in self._refused]
        try:
            if waiting:
                await self._publish_lost(source, recorded)
            for fact in waiting:
                if await self._publish(source, fact, recorded):
                    self._note_published(source.uid, fact)
        except Retry as error:
            self._delayed.add(source.uid)
            stored = self.record(source.uid, recorded)
            left = next(f for f in pending(stored) if (source.uid, f) not in self._refused)
            log.info("fact stays pending", fact=left.fact, key=str(source.key), error=str(error))
            self._count(left.fact, "pending")
            return Published(is_settled=False, retry_after=PUBLISH_RETRY_INTERVAL_SECONDS)
        return Published(retry_after=self._confirm_after(source.uid, recorded))

    async def republish(
        self, source: FactSource, recorded: Announcements, *, everything: bool = False
    ) -> Republished:
        """Publish facts again that were published but are missing in the stream, in order and with their ids.

        Args:
            everything: look up every fact, not only facts that are older than the stream.

        Raises:
            Retry: the bus is unreachable. The next call looks up the remaining facts.
        """
        since, total = self._since, Republished()
        facts = _announced(self.record(source.uid, recorded))
        lost = self._maybe_lost(source, facts)
        for fact in facts if everything else lost:
            total += await self._publish_again(source, fact)
        if lost and since == self._since:
            self._republished.add(source.uid)
        return total

    async def refresh(self) -> Mapping[str, datetime]:
        """The creation time of each stream that has not dropped messages since. Raises Retry."""
        epoch = self._bus.history.epoch
        since: dict[str, datetime] = {}
        for stream in {self._stream.name, *(other.name for other in self._elsewhere.values())}:
            if made := await self._breaker.call(self._bus.history.whole_since(stream)):
                since[stream] = made
        if since != self._since:
            self._republished.clear()
        self._epoch, self._since = epoch, since
        return since

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._unconfirmed.pop(uid, None)
        self._delayed.discard(uid)
        self._republished.discard(uid)
        self._refused = {refused for refused in self._refused if refused[0] != uid}

    async def _publish_lost(self, source: FactSource, recorded: Announcements) -> None:
        """Publish lost facts before pending facts, so that the facts of an object stay in order."""
        if self._epoch != self._bus.history.epoch:
            await self.refresh()
        await self.republish(source, recorded)

    def _maybe_lost(self, source: FactSource, announced: Announcements) -> Announcements:
        """Published facts that are older than the stream, and so may be missing in it."""
        if source.uid in self._republished:
            return ()
        return tuple(fact for fact in announced if self._is_older_than_stream(fact))

    def _is_older_than_stream(self, fact: Announcement) -> bool:
        since = self._since.get(self._stream_of(fact).name)
        return since is not None and datetime.fromisoformat(fact.at) < since + timedelta(
            seconds=CLOCK_SKEW_GRACE_SECONDS
        )

    def _stream_of(self, fact: Announcement) -> StreamSpec:
        return self._elsewhere.get(fact.fact, self._stream)

    async def _publish(self, source: FactSource, fact: Announcement, recorded: Announcements) -> bool:
        """Publish one fact. Returns False when this version cannot publish it. Raises Retry."""
        try:
            event = source.render(fact)
            if event is None:
                return False
            if not self._may_be_forgotten(fact) or not await self._was_published(source, event, recorded):
                await self._breaker.call(self._bus.publish(event))
        except Permanent as error:
            self._note_refused(source, fact, error)
            return False
        self._count(fact.fact, "published")
        return True

    async def _publish_again(self, source: FactSource, fact: Announcement) -> Republished:
        try:
            event = source.render(fact)
            if event is None:
                return Republished()
            if await self._is_stored(event):
                return Republished(checked=1)
            await self._breaker.call(self._bus.publish(event))
            if not await self._is_stored(event):
                log.warning(
                    "fact was deleted from the stream, which still remembers its id",
                    fact=fact.fact,
                    id=event.id,
                )
                return Republished(checked=1)
        except Permanent as error:
            self._note_refused(source, fact, error)
            return Republished(checked=1)
        self._count(fact.fact, "published")
        return Republished(checked=1, published=1)

    def _note_refused(self, source: FactSource, fact: Announcement, error: Permanent) -> None:
        """Record a refused fact. It stays pending in the status, and each process tries it once."""
        self._refused.add((source.uid, fact))
        log.error("fact cannot be published", fact=fact.fact, key=str(source.key), error=str(error))
        self._count(fact.fact, "refused")

    def _may_be_forgotten(self, fact: Announcement) -> bool:
        """True when another process may have published the fact so long ago that the stream forgot its id.

        The fact was recorded at `at`, and cannot have been published earlier.
        """
        sure = timedelta(seconds=self._stream_of(fact).duplicate_window / 2)
        return self._clock.now() - datetime.fromisoformat(fact.at) >= sure

    async def _was_published(self, source: FactSource, event: Event, recorded: Announcements) -> bool:
        """True when the stream has a pending fact: the last id is its own, or of a later pending attempt.

        Confirmations are recorded together. So if a later attempt is confirmed, or was dropped from the
        record since, the process that published it did not confirm this fact, because this fact was refused.
        """
        last = await self._last_id(event)
        unconfirmed = {fact.event_id(source.uid) for fact in pending(recorded)}
        return last == event.id or (last in unconfirmed and is_stored(last, event.id))

    async def _is_stored(self, event: Event) -> bool:
        """True when the stream has a published fact: the last id is its own, or that of a later attempt."""
        return is_stored(await self._last_id(event), event.id)

    async def _last_id(self, event: Event) -> str:
        """The id of the last message on the subject of the event. "" when there is no message."""
        last = await self._breaker.call(self._bus.history.last(event.subject))
        return "" if last is None else last.headers.get(_EVENT_ID, "")

    def _note_published(self, uid: str, fact: Announcement) -> None:
        grace = CONFIRM_DELAYED_GRACE_SECONDS if uid in self._delayed else CONFIRM_GRACE_SECONDS
        due = self._clock.monotonic() + grace
        unconfirmed = self._unconfirmed.setdefault(uid, _Unconfirmed(due, set()))
        unconfirmed.due = min(unconfirmed.due, due)
        unconfirmed.facts.add(fact)

    def _confirm_after(self, uid: str, recorded: Announcements) -> float | None:
        """Seconds until the confirmation is due. Facts that the status already confirms are forgotten."""
        unconfirmed = self._unconfirmed.get(uid)
        if unconfirmed is None:
            return None
        unconfirmed.facts.intersection_update(pending(recorded))
        if not unconfirmed.facts:
            del self._unconfirmed[uid]
            self._delayed.discard(uid)
            return None
        return max(0.0, unconfirmed.due - self._clock.monotonic())


def _announced(facts: Announcements) -> Announcements:
    return tuple(fact for fact in facts if fact.announced)


def is_stored(last: str, wanted: str) -> bool:
    """True when the last id of a subject is the wanted id, or that of a later attempt.

    Attempts are published in order, so a later attempt implies the wanted one.
    """
    (last_fact, _, last_attempt), (fact, _, attempt) = last.rpartition("/"), wanted.rpartition("/")
    if last_fact != fact or not last_attempt.isdecimal() or not attempt.isdecimal():
        return last == wanted
    return int(last_attempt) >= int(attempt)
