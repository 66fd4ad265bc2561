"""What happened, in a bucket of the bus: which events a trigger dealt with, and who created what.

Keys are `event.<trigger uid>.<digest>` and `origin.<object uid>`. Entries expire with the bucket's own age
(`streams.FIRED`, 14 days), longer than a stream keeps any event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from dataclasses import asdict
from typing import TypeVar

import orjson

from paddlewheel.bus.ports import KeyValue
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Retry
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain.model import Origin

T = TypeVar("T")


class Memory:
    """Every method raises Retry while the bucket is unreachable, soon after the first failure at once."""

    def __init__(self, bucket: KeyValue, clock: Clock) -> None:
        self._bucket = bucket
        self._breaker = CircuitBreaker(clock)

    async def knows(self, trigger_uid: str, digest: str) -> bool:
        """The trigger has dealt with the event."""
        return await self._get(f"event.{trigger_uid}.{digest}") is not None

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
        try:
            return (await self._call(self._bucket.get(key))).value
        except NotFound:
            return None

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await self._breaker.call(call)
        except Retry as error:
            # Always in the same words, or the condition that says it would flap.
            raise Retry("BusUnavailable", "the bucket of remembered events cannot be reached") from error
