"""Stores handled events, deferred events and origins in key-value buckets of the bus.

| bucket | key | entry |
|---|---|---|
| pw_triggers | marks.<namespace>.<beginning of digests> | the events that triggers have handled |
| pw_triggers | known.<trigger uid> | since when the bucket has all marks; a missing entry shows a loss |
| pw_trigger_deferred | deferred.<trigger uid>[.<page>] | events that could not be handled yet |
| pw_trigger_origins | origin.<object uid> | the trigger that created the object |

Entries expire after 14 days, which is longer than any stream keeps events. When pw_triggers is full, its
oldest entries are removed. The other buckets refuse new entries when they are full, so that no trigger can
displace entries that another one needs. A namespace has a limited number of marks (`domain.marks`), so it
cannot fill pw_triggers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar
from uuid import uuid4

import orjson

from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.bus.streams import BUS_FULL, DEFERRED_BUCKET, ORIGINS_BUCKET, TRIGGERS_BUCKET
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import EPOCH
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain import marks, pages
from trigger_controller.domain.model import Deferred, Origin, Page
from trigger_controller.domain.policies.deferral import Change, changed
from trigger_controller.timing import (
    DEFERRED_CHECK_INTERVAL_SECONDS,
    EVENT_RECALL_GRACE_SECONDS,
    MARK_REFRESH_INTERVAL_SECONDS,
    WRITE_RETRY_INTERVAL_SECONDS,
    WRITE_RETRY_MAX_INTERVAL_SECONDS,
)

_DAY = timedelta(days=1).total_seconds()

T = TypeVar("T")


class Buckets(Protocol):
    """The bus, which has the buckets."""

    def key_value(self, bucket: str) -> KeyValue: ...


class Memory:
    """The service's data in the buckets.

    Every method raises Retry while a bucket is unreachable. After a failure they raise it at once for some
    time, without trying.
    """

    def __init__(
        self, buckets: Buckets, clock: Clock, forgotten: Callable[[int], None] = lambda _: None
    ) -> None:
        """Args:
        forgotten: called with the number of marks that made room for others too early.
        """
        self._marks = buckets.key_value(TRIGGERS_BUCKET)
        self._deferred = buckets.key_value(DEFERRED_BUCKET)
        self._origins = buckets.key_value(ORIGINS_BUCKET)
        self._clock = clock
        self._forgotten = forgotten
        self._breaker = CircuitBreaker(clock)
        self._without_deferred: dict[str, float] = {}

    async def knows(self, trigger: Key, trigger_uid: str, digest: str) -> bool:
        """Whether the trigger has handled the event."""
        found = await self._entry(self._marks, marks.key_of(trigger.namespace, digest))
        if found is not None and digest in marks.read(found.value):
            return True
        # The last release stored an entry for each event.
        return await self._entry(self._marks, f"event.{trigger_uid}.{digest}") is not None

    async def lost_until(self, trigger_uid: str, newest: datetime | None) -> datetime:
        """The time up to which marks of the trigger may be lost. All later events that it has handled have
        marks.

        Call it after `knows` and before anything is recorded. A loss is stored at once, so that events that
        are recorded later do not count as lost, even after a crash or on another replica.

        Args:
            trigger_uid: uid of the trigger.
            newest: time of the newest event that the status has counted; None if there is none.
        """
        key = f"known.{trigger_uid}"
        while (found := await self._entry(self._marks, key)) is None:
            with suppress(AlreadyExists):
                await self._call(self._marks.create(key, self._mark(newest or EPOCH)))
                return newest or EPOCH
        until, touched = (datetime.fromisoformat(time) for time in orjson.loads(found.value or b"[]"))
        if self._is_due(touched):
            # The update fails if another replica has written the entry since, or the bucket was lost.
            with suppress(Conflict):
                await self._call(self._marks.update(key, self._mark(until), found.revision))
        return until

    def _is_due(self, touched: datetime) -> bool:
        return self._clock.now() - touched > timedelta(seconds=MARK_REFRESH_INTERVAL_SECONDS)

    def _mark(self, until: datetime) -> bytes:
        return orjson.dumps([until, self._clock.now()])

    async def remember(self, trigger: Key, digests: Collection[str]) -> None:
        """Store that the trigger has handled the events. Idempotent."""
        entries: dict[str, list[str]] = {}
        for digest in digests:
            entries.setdefault(marks.key_of(trigger.namespace, digest), []).append(digest)
        await gather_bounded(self._mark_all(key, own) for key, own in entries.items())

    async def _mark_all(self, key: str, digests: Collection[str]) -> None:
        """Add digests to an entry, to which other triggers of the namespace may add at the same time."""
        pauses = Backoff[None](WRITE_RETRY_INTERVAL_SECONDS, WRITE_RETRY_MAX_INTERVAL_SECONDS, jitter=0.5)
        while True:
            entry = await self._entry(self._marks, key)
            before = marks.read(entry.value if entry else None)
            today = self._clock.now().timestamp() // _DAY
            after = marks.added(before, digests, int(today))
            if after == before:
                return
            try:
                if entry is None:
                    await self._call(self._marks.create(key, marks.write(after)))
                else:
                    await self._call(self._marks.update(key, marks.write(after), entry.revision))
            except (AlreadyExists, Conflict):
                await self._clock.sleep(pauses.next(None))
                continue
            if early := marks.forgotten(before, after, int(today - EVENT_RECALL_GRACE_SECONDS / _DAY)):
                self._forgotten(early)
            return

    async def origin(self, uid: str) -> Origin:
        """The origin of an object, which may be deleted; empty if no trigger created it."""
        found = await self._entry(self._origins, f"origin.{uid}")
        stored = orjson.loads(found.value or b"{}") if found else {}
        return Origin(str(stored.get("creator", "")), tuple(stored.get("chain", ())))

    async def remember_origin(self, uid: str, origin: Origin) -> None:
        """Store the origin of an object. Idempotent."""
        await self._call(self._origins.put(f"origin.{uid}", orjson.dumps(asdict(origin))))

    async def deferred(self, trigger_uid: str, *, is_sure: bool = False) -> Deferred:
        """The trigger's deferred events.

        Args:
            trigger_uid: uid of the trigger.
            is_sure: whether the status shows deferred events. If not, the bucket is read only from time to
                time: another replica may have deferred events and failed to write the status.
        """
        read_at = self._without_deferred.get(trigger_uid)
        if (
            read_at is not None
            and self._clock.monotonic() - read_at < DEFERRED_CHECK_INTERVAL_SECONDS
            and not is_sure
        ):
            return Deferred()
        # Set the time before the read, so that a change during the read can clear it.
        self._without_deferred[trigger_uid] = self._clock.monotonic()
        entry = await self._entry(self._deferred, f"deferred.{trigger_uid}")
        found = pages.read(entry.value if entry else None)
        if entry is None or not found.count:
            return found
        self._without_deferred.pop(trigger_uid, None)
        if found.pages and pages.has_room(found):
            return await self._with_page(trigger_uid, found, entry)
        if entry.value and self._is_due(pages.touched_at(entry.value)):
            await self._touch_deferred(trigger_uid, found, entry)
        return found

    async def change_deferred(self, trigger_uid: str, change: Change) -> Deferred:
        """Add and remove deferred events. Idempotent, and safe if other replicas do the same.

        Pages never change. A page is written before the entry that refers to it, and deleted after it.

        Returns:
            The deferred events after the change.

        Raises:
            Retry: the bus is unreachable, or there is no room for the added events.
        """
        while True:
            entry = await self._entry(self._deferred, f"deferred.{trigger_uid}")
            before = pages.read(entry.value) if entry else Deferred(store=uuid4().hex)
            after, beyond = pages.split(changed(before, change))
            is_full = len(before.pages) + len(beyond) > pages.MOST_PAGES
            if is_full:
                after, beyond = changed(before, Change(ended=change.ended)), ()
            added = tuple([await self._put_page(trigger_uid, events) for events in beyond])
            after = replace(after, pages=(*after.pages, *added))
            is_written = await self._put_deferred(trigger_uid, after, entry)
            self._without_deferred.pop(trigger_uid, None)
            if is_written:
                break
            await self._delete_pages(trigger_uid, added)
        if is_full:
            raise Retry("DeferredEventsFull", "no more events of this trigger can be deferred")
        return after

    async def _with_page(self, trigger_uid: str, found: Deferred, entry: Entry) -> Deferred:
        """Move the events of the first existing page into the entry.

        A page that does not exist was lost, unless another replica has just moved it. Then the entry has
        changed, and nothing is written.
        """
        events: pages.Events = ()
        left = list(found.pages)
        while left and not events:
            stored = await self._entry(self._deferred, _page_key(trigger_uid, left.pop(0).name))
            events = pages.read(stored.value).events if stored else ()
        gone = found.pages[: len(found.pages) - len(left)]
        is_lossless = bool(events) and len(gone) == 1
        more = (*found.events, *(o for o in events if not found.has(o.id)))
        after = Deferred(more, tuple(left), found.store if is_lossless else uuid4().hex)
        if not await self._put_deferred(trigger_uid, after, entry):
            return found
        await self._delete_pages(trigger_uid, gone)
        return after

    async def _touch_deferred(self, trigger_uid: str, found: Deferred, entry: Entry) -> None:
        """Write the entry and its pages again, so that they do not expire."""
        for page in found.pages:
            key = _page_key(trigger_uid, page.name)
            if (stored := await self._entry(self._deferred, key)) is not None:
                with suppress(Conflict):
                    await self._call(self._deferred.update(key, stored.value or b"{}", stored.revision))
        await self._put_deferred(trigger_uid, found, entry)

    async def _put_deferred(self, trigger_uid: str, deferred: Deferred, entry: Entry | None) -> bool:
        """Write the entry; False if another replica has written it first."""
        key, data = f"deferred.{trigger_uid}", pages.write(deferred, self._clock.now())
        try:
            if entry is None:
                await self._call(self._deferred.create(key, data))
            else:
                await self._call(self._deferred.update(key, data, entry.revision))
        except (AlreadyExists, Conflict):
            return False
        return True

    async def _put_page(self, trigger_uid: str, events: pages.Events) -> Page:
        page = pages.make_page(uuid4().hex, events)
        await self._call(self._deferred.put(_page_key(trigger_uid, page.name), pages.write_page(events)))
        return page

    async def _delete_pages(self, trigger_uid: str, of: Iterable[Page]) -> None:
        """Delete pages to which no entry refers. Pages that cannot be deleted expire."""
        for page in of:
            with suppress(Retry):
                await self._call(self._deferred.delete(_page_key(trigger_uid, page.name)))

    def forget(self, trigger_uid: str) -> None:
        """Drop the state of a deleted trigger."""
        self._without_deferred.pop(trigger_uid, None)

    async def _entry(self, bucket: KeyValue, key: str) -> Entry | None:
        try:
            return await self._call(bucket.get(key))
        except NotFound:
            return None

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await self._breaker.call(call)
        except Retry as error:
            # The message is always the same, so that the condition does not flap.
            is_full = error.reason == BUS_FULL
            problem = "is full: raise its maxBytes in nats.streams" if is_full else "cannot be reached"
            raise Retry(Reason.BUS_UNAVAILABLE, f"the bucket of remembered events {problem}") from error


def _page_key(trigger_uid: str, name: str) -> str:
    return f"deferred.{trigger_uid}.{name}"
