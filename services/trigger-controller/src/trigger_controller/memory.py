"""What happened, in a bucket of the bus: which events a trigger dealt with, and who created what.

Keys are `event.<trigger uid>.<digest>`, `origin.<object uid>`, `deferred.<trigger uid>` (events that could
not be handled yet; those that do not fit are in `deferred.<trigger uid>.<page>`) and `known.<trigger uid>`:
the last says from when on the bucket holds the events. It goes with the others when the bus loses its data,
which is how that is noticed. Entries expire with the bucket's own age (`streams.FIRED`, 14 days), longer than
a stream keeps any event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import orjson

from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import EPOCH
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain import pages
from trigger_controller.domain.model import Deferred, Origin, Page
from trigger_controller.domain.policies.deferral import Change, changed
from trigger_controller.timing import DEFERRED_CHECK_INTERVAL_SECONDS, MARK_REFRESH_INTERVAL_SECONDS

T = TypeVar("T")


class Memory:
    """Every method raises Retry while the bucket is unreachable, soon after the first failure at once."""

    def __init__(self, bucket: KeyValue, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._breaker = CircuitBreaker(clock)
        self._without_deferred: dict[str, float] = {}

    async def knows(self, trigger_uid: str, digest: str) -> bool:
        """The trigger has dealt with the event."""
        return await self._get(f"event.{trigger_uid}.{digest}") is not None

    async def lost_until(self, trigger_uid: str, newest: datetime | None) -> datetime:
        """Events of the trigger up to this time were lost; it dealt with later ones only if they are known.

        Ask after `knows` and before anything is recorded: what is found missing is noted at once, so that
        neither a crash nor another replica takes events recorded since for lost ones.

        Args:
            newest: when the newest event happened that the status has counted; None when there was none.
        """
        key = f"known.{trigger_uid}"
        while (found := await self._entry(key)) is None:
            with suppress(AlreadyExists):
                await self._call(self._bucket.create(key, self._mark(newest or EPOCH)))
                return newest or EPOCH
        until, touched = (datetime.fromisoformat(time) for time in orjson.loads(found.value or b"[]"))
        if self._is_due(touched):
            # Not over what a replica has written since, nor into a bucket that was lost since.
            with suppress(Conflict):
                await self._call(self._bucket.update(key, self._mark(until), found.revision))
        return until

    def _is_due(self, touched: datetime) -> bool:
        return self._clock.now() - touched > timedelta(seconds=MARK_REFRESH_INTERVAL_SECONDS)

    def _mark(self, until: datetime) -> bytes:
        return orjson.dumps([until, self._clock.now()])

    async def remember(self, trigger_uid: str, digests: Collection[str]) -> None:
        """The trigger has dealt with the events. Idempotent."""
        puts = (self._bucket.put(f"event.{trigger_uid}.{digest}", b"{}") for digest in digests)
        await gather_bounded(self._call(put) for put in puts)

    async def origin(self, uid: str) -> Origin:
        """Who created an object that may be gone; empty when no trigger did."""
        stored = orjson.loads(await self._get(f"origin.{uid}") or b"{}")
        return Origin(str(stored.get("creator", "")), tuple(stored.get("chain", ())))

    async def remember_origin(self, uid: str, origin: Origin) -> None:
        """Idempotent."""
        await self._call(self._bucket.put(f"origin.{uid}", orjson.dumps(asdict(origin))))

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
        entry = await self._entry(f"deferred.{trigger_uid}")
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
            entry = await self._entry(f"deferred.{trigger_uid}")
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
            stored = await self._entry(_page_key(trigger_uid, left.pop(0).name))
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
        """As a used mark: it must not be the oldest of a full bucket."""
        for page in found.pages:
            key = _page_key(trigger_uid, page.name)
            if (stored := await self._entry(key)) is not None:
                with suppress(Conflict):
                    await self._call(self._bucket.update(key, stored.value or b"{}", stored.revision))
        await self._put_deferred(trigger_uid, found, entry)

    async def _put_deferred(self, trigger_uid: str, deferred: Deferred, entry: Entry | None) -> bool:
        """False when another replica was faster."""
        key, data = f"deferred.{trigger_uid}", pages.write(deferred, self._clock.now())
        try:
            if entry is None:
                await self._call(self._bucket.create(key, data))
            else:
                await self._call(self._bucket.update(key, data, entry.revision))
        except (AlreadyExists, Conflict):
            return False
        return True

    async def _put_page(self, trigger_uid: str, events: pages.Events) -> Page:
        page = pages.make_page(uuid4().hex, events)
        await self._call(self._bucket.put(_page_key(trigger_uid, page.name), pages.write_page(events)))
        return page

    async def _delete_pages(self, trigger_uid: str, of: Iterable[Page]) -> None:
        """Those that nothing names; what stays expires."""
        for page in of:
            with suppress(Retry):
                await self._call(self._bucket.delete(_page_key(trigger_uid, page.name)))

    def forget(self, trigger_uid: str) -> None:
        """The trigger is gone."""
        self._without_deferred.pop(trigger_uid, None)

    async def _get(self, key: str) -> bytes | None:
        found = await self._entry(key)
        return None if found is None else found.value

    async def _entry(self, key: str) -> Entry | None:
        try:
            return await self._call(self._bucket.get(key))
        except NotFound:
            return None

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await self._breaker.call(call)
        except Retry as error:
            # Always in the same words, or the condition that says it would flap.
            raise Retry(
                Reason.BUS_UNAVAILABLE, "the bucket of remembered events cannot be reached"
            ) from error


def _page_key(trigger_uid: str, name: str) -> str:
    return f"deferred.{trigger_uid}.{name}"
