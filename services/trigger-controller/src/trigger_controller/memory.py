"""What happened, in a bucket of the bus: which events a trigger dealt with, and who created what.

Entries go after the bucket's own age (`streams.FIRED`, 14 days), longer than a stream keeps any event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import orjson

from paddlewheel.bus.ports import KeyValue
from paddlewheel.core.errors import NotFound
from trigger_controller.domain.model import Origin


class BucketMemory:
    """Memory over a key-value bucket: `event.<trigger uid>.<digest>` and `origin.<object uid>`."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def unknown(self, trigger_uid: str, digests: Collection[str]) -> frozenset[str]:
        known = await asyncio.gather(*(self._has(_event(trigger_uid, digest)) for digest in digests))
        return frozenset(d for d, is_known in zip(digests, known, strict=True) if not is_known)

    async def remember(self, trigger_uid: str, digests: Collection[str]) -> None:
        await asyncio.gather(*(self._bucket.put(_event(trigger_uid, digest), b"{}") for digest in digests))

    async def origin(self, uid: str) -> Origin:
        try:
            entry = await self._bucket.get(_origin(uid))
        except NotFound:
            return Origin()
        told = orjson.loads(entry.value or b"{}")
        return Origin(str(told.get("creator", "")), tuple(told.get("chain", ())))

    async def remember_origin(self, uid: str, origin: Origin) -> None:
        told = {"creator": origin.creator, "chain": list(origin.chain)}
        await self._bucket.put(_origin(uid), orjson.dumps(told))

    async def _has(self, key: str) -> bool:
        try:
            await self._bucket.get(key)
        except NotFound:
            return False
        return True


def _event(trigger_uid: str, digest: str) -> str:
    return f"event.{trigger_uid}.{digest}"


def _origin(uid: str) -> str:
    return f"origin.{uid}"
