"""What happened, in a bucket of the bus: which events a trigger dealt with, and who created what.

Keys are `event.<trigger uid>.<digest>`, `origin.<object uid>`, `deferred.<trigger uid>` (events that could
not be handled yet) and `known.<trigger uid>`: the last says from when on the bucket holds the events. It
goes with the others when the bus loses its data, which is how that is noticed. Entries expire with the
bucket's own age (`streams.FIRED`, 14 days), longer than a stream keeps any event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import orjson

from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.crds.trigger import EPOCH, StatusEvent, StatusGathered
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain.model import Deferred, Occurrence, Origin
from trigger_controller.domain.policies.deferral import Change, changed

TOUCH_EVERY: Final = timedelta(hours=1)
"""A used mark is written again this often: it must neither expire nor be dropped from a full bucket before
the events it is about."""

T = TypeVar("T")


class Memory:
    """Every method raises Retry while the bucket is unreachable, soon after the first failure at once."""

    def __init__(self, bucket: KeyValue, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._breaker = CircuitBreaker(clock)
        self._without_deferred: set[str] = set()

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
        return self._clock.now() - touched > TOUCH_EVERY

    def _write_deferred(self, deferred: Deferred) -> bytes:
        events = [{"event": _json(o.event), "kind": o.kind} for o in deferred.events]
        rest = deferred.rest and _json(deferred.rest)
        at = self._clock.now()
        return orjson.dumps({"events": events, "rest": rest, "folded": deferred.folded, "touched": at})

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
            is_sure: there are some. Otherwise it is read once that there are none, for the status tells of
                those that another replica deferred.
        """
        if trigger_uid in self._without_deferred and not is_sure:
            return Deferred()
        key = f"deferred.{trigger_uid}"
        entry = await self._entry(key)
        found = _read_deferred(entry.value if entry else None)
        if entry is None or not found.count:
            self._without_deferred.add(trigger_uid)
        elif entry.value and self._is_due(_touched(entry.value)):
            # As a used mark: it must not be the oldest of a full bucket.
            with suppress(Conflict):
                await self._call(self._bucket.update(key, self._write_deferred(found), entry.revision))
        return found

    async def change_deferred(self, trigger_uid: str, change: Change) -> None:
        """Idempotent, and safe beside other replicas."""
        key = f"deferred.{trigger_uid}"
        self._without_deferred.discard(trigger_uid)
        while True:
            entry = await self._entry(key)
            data = self._write_deferred(changed(_read_deferred(entry.value if entry else None), change))
            with suppress(AlreadyExists, Conflict):
                if entry is None:
                    await self._call(self._bucket.create(key, data))
                else:
                    await self._call(self._bucket.update(key, data, entry.revision))
                return

    def forget(self, trigger_uid: str) -> None:
        """The trigger is gone."""
        self._without_deferred.discard(trigger_uid)

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


def _read_deferred(data: bytes | None) -> Deferred:
    stored = orjson.loads(data or b"{}")
    events = (Occurrence(StatusEvent.model_validate(e["event"]), e["kind"]) for e in stored.get("events", ()))
    rest = stored.get("rest")
    return Deferred(
        tuple(events), StatusGathered.model_validate(rest) if rest else None, tuple(stored.get("folded", ()))
    )


def _touched(data: bytes) -> datetime:
    return datetime.fromisoformat(orjson.loads(data)["touched"])


def _json(model: StatusEvent | StatusGathered) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
