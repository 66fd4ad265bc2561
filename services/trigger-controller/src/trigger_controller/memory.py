"""What happened, in buckets of the bus.

| bucket | key | entry |
|---|---|---|
| pw_triggers | marks.<namespace>.<beginning of digests> | the events that triggers have dealt with |
| pw_triggers | known.<trigger uid> | since when the bucket has all marks; a missing entry shows a loss |
| pw_trigger_deferred | deferred.<trigger uid>[.<page>] | events that could not be handled yet |
| pw_trigger_origins | origin.<object uid> | the trigger that created the object |

Entries expire after 14 days, which is longer than a stream keeps any event. When pw_triggers is full, its
oldest entries make room; the other two refuse, so that no trigger can push out what another one needs. A
namespace has a bounded number of marks (`domain.marks`), which cannot fill pw_triggers.
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

_DAY_SECONDS = 86400

T = TypeVar("T")


class Buckets(Protocol):
    """Where the buckets are."""

    def key_value(self, bucket: str) -> KeyValue: ...


class Memory:
    """Every method raises Retry while a bucket is unreachable, and at once for some time after a failure."""

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
        """The trigger has dealt with the event."""
        found = await self._entry(self._marks, marks.key_of(trigger.namespace, digest))
        if found is not None and digest in marks.read(found.value):
            return True
        # The last release has an entry for each event.
        return await self._entry(self._marks, f"event.{trigger_uid}.{digest}") is not None

    async def lost_until(self, trigger_uid: str, newest: datetime | None) -> datetime:
        """Events of the trigger up to this time were lost; it dealt with later ones only if they are known.

        Ask after `knows` and before anything is recorded: what is found missing is noted at once, so that
        neither a crash nor another replica takes events recorded since for lost ones.

        Args:
            newest: when the newest event happened that the status has counted; None when there was none.
        """
        key = f"known.{trigger_uid}"
        while (found := await self._entry(self._marks, key)) is None:
            with suppress(AlreadyExists):
                await self._call(self._marks.create(key, self._mark(newest or EPOCH)))
                return newest or EPOCH
        until, touched = (datetime.fromisoformat(time) for time in orjson.loads(found.value or b"[]"))
        if self._is_due(touched):
            # Not over what a replica has written since, nor into a bucket that was lost since.
            with suppress(Conflict):
                await self._call(self._marks.update(key, self._mark(until), found.revision))
        return until

    def _is_due(self, touched: datetime) -> bool:
        return self._clock.now() - touched > timedelta(seconds=MARK_REFRESH_INTERVAL_SECONDS)

    def _mark(self, until: datetime) -> bytes:
        return orjson.dumps([until, self._clock.now()])

    async def remember(self, trigger: Key, digests: Collection[str]) -> None:
        """The trigger has dealt with the events. Idempotent."""
        entries: dict[str, list[str]] = {}
        for digest in digests:
            entries.setdefault(marks.key_of(trigger.namespace, digest), []).append(digest)
        await gather_bounded(self._mark_all(key, own) for key, own in entries.items())

    async def _mark_all(self, key: str, digests: Collection[str]) -> None:
        """Other triggers of the namespace may add to the entry at the same time."""
        pauses = Backoff[None](WRITE_RETRY_INTERVAL_SECONDS, WRITE_RETRY_MAX_INTERVAL_SECONDS, jitter=0.5)
        while True:
            entry = await self._entry(self._marks, key)
            before = marks.read(entry.value if entry else None)
            today = self._clock.now().timestamp() // _DAY_SECONDS
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
            if early := marks.forgotten(
                before, after, int(today - EVENT_RECALL_GRACE_SECONDS / _DAY_SECONDS)
            ):
                self._forgotten(early)
            return

    async def origin(self, uid: str) -> Origin:
        """Who created an object that may be gone; empty when no trigger did."""
        found = await self._entry(self._origins, f"origin.{uid}")
        stored = orjson.loads(found.value or b"{}") if found else {}
        return Origin(str(stored.get("creator", "")), tuple(stored.get("chain", ())))

    async def remember_origin(self, uid: str, origin: Origin) -> None:
        """Idempotent."""
        await self._call(self._origins.put(f"origin.{uid}", orjson.dumps(asdict(origin))))

    async def deferred(self, trigger_uid: str, *, is_sure: bool = False) -> Deferred:
        """The trigger's deferred events.

        Args:
            is_sure: there are some. Otherwise it is read now and then that there are none: the status tells
                of those that another replica deferred, unless it could not be written.
        """
        read_at = self._without_deferred.get(trigger_uid)
        if (
            read_at is not None
            and self._clock.monotonic() - read_at < DEFERRED_CHECK_INTERVAL_SECONDS
            and not is_sure
        ):
            return Deferred()
        # Before it is read: a change made meanwhile has the last word.
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
        """Idempotent, and safe beside other replicas: a page is written before and deleted after the entry
        that names it, and is never changed.

        Returns:
            The deferred events after the change.

        Raises:
            Retry: also if there is no room for what is to be added.
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
        """With the events of the first page that is there. One that is not was lost, unless another replica
        has just taken it in: then nothing is written."""
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
        """False when another replica was faster."""
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
        """Those that nothing names; what stays expires."""
        for page in of:
            with suppress(Retry):
                await self._call(self._deferred.delete(_page_key(trigger_uid, page.name)))

    def forget(self, trigger_uid: str) -> None:
        """The trigger is gone."""
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
            # Always in the same words: otherwise the condition would flap.
            is_full = error.reason == BUS_FULL
            problem = "is full: raise its maxBytes in nats.streams" if is_full else "cannot be reached"
            raise Retry(Reason.BUS_UNAVAILABLE, f"the bucket of remembered events {problem}") from error


def _page_key(trigger_uid: str, name: str) -> str:
    return f"deferred.{trigger_uid}.{name}"
