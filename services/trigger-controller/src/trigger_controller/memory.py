"""What happened, in a bucket of the bus: which events a trigger dealt with, and who created what.

Keys are `event.<trigger uid>.<digest>`, `origin.<object uid>` and `known.<trigger uid>`: the last says from
when on the bucket holds the trigger's events. It goes with the others when the bus loses its data, which is
how that is noticed. Entries expire with the bucket's own age (`streams.FIRED`, 14 days), longer than a stream
keeps any event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final, TypeVar

import orjson

from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.crds.trigger import EPOCH
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain.model import Origin

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
        if self._clock.now() - touched > TOUCH_EVERY:
            # Not over what a replica has written since, nor into a bucket that was lost since.
            with suppress(Conflict):
                await self._call(self._bucket.update(key, self._mark(until), found.revision))
        return until

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
