"""Whether this replica's cache has every Trigger of the API server.

Another replica may have seen a Trigger first. An event that concerns that Trigger must not be acknowledged
here because the cache lags behind.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import TRIGGERS, Cluster, Object
from trigger_controller.timing import CACHE_CHECK_INTERVAL_SECONDS

_PAUSES_PER_LIST = 4
"""A check takes at most a fifth of the time."""

log = structlog.get_logger(__name__)


class CatchUp:
    """Compares the cache with the API server. Events that arrive during a check share the next one."""

    def __init__(self, cluster: Cluster, store: Informer, namespace: str, clock: Clock) -> None:
        self._clock = clock
        self._cluster = cluster
        self._store = store
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._rest_until = 0.0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """The cache has another state."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when the cache has every Trigger that existed when this was called."""
        begun = self._begun
        async with self._lock:
            if self._done > begun:
                return
            if (rest := self._rest_until - self._clock.monotonic()) > 0:
                await self._clock.sleep(rest)
            self._begun += 1
            began = self._clock.monotonic()
            await self._until_current()
            self._done = self._begun
            ended = self._clock.monotonic()
            self._rest_until = ended + _PAUSES_PER_LIST * (ended - began)

    async def _until_current(self) -> None:
        while True:
            self._changed.clear()
            try:
                if await self._is_current():
                    return
            except (Retry, Permanent) as error:
                log.warning("triggers cannot be listed, events wait", why=str(error))
                await self._clock.sleep(CACHE_CHECK_INTERVAL_SECONDS)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(CACHE_CHECK_INTERVAL_SECONDS):
                    await self._changed.wait()

    async def _is_current(self) -> bool:
        return all(map(self._knows, await self._cluster.list(TRIGGERS, self._namespace)))

    def _knows(self, trigger: Object) -> bool:
        """The status of a Trigger, which other replicas write, does not matter."""
        cached = self._store.get(key_of(trigger))
        return (
            cached is not None
            and uid_of(cached) == uid_of(trigger)
            and _generation(cached) >= _generation(trigger)
        )


def _generation(trigger: Object) -> int:
    return int(trigger["metadata"].get("generation", 0))
