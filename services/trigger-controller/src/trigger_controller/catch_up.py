"""Waits until the cache of this replica has all Triggers that the API server has.

Another replica may receive a new Trigger first. If an event for that Trigger arrives here, it must not be
acknowledged only because the cache lags behind.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import TRIGGERS, Cluster, Object
from trigger_controller.timing import CACHE_CHECK_INTERVAL_SECONDS, CACHE_CHECK_MAX_INTERVAL_SECONDS

_PAUSES_PER_LIST = 4
"""The pause after a list, as a multiple of its duration. So lists take at most a fifth of the time."""

log = structlog.get_logger(__name__)


class CatchUp:
    """Compares the cache with the API server. Events that arrive during a list share the next one."""

    def __init__(self, cluster: Cluster, store: Informer, namespace: str, clock: Clock) -> None:
        self._clock = clock
        self._cluster = cluster
        self._store = store
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._begun = 0
        """Number of the last list that was started."""
        self._current_at = 0
        """Number of the last list whose Triggers were all in the cache."""
        self._rest_until = 0.0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Report that the cache has changed."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when the cache has every Trigger that existed when this was called."""
        begun = self._begun
        async with self._lock:
            while self._current_at <= begun:
                if (rest := self._rest_until - self._clock.monotonic()) > 0:
                    await self._clock.sleep(rest)
                await self._compare()

    async def _compare(self) -> None:
        """Compare the cache with a list. Return when it is current, or when it is time for another list."""
        self._changed.clear()
        self._begun += 1
        try:
            is_current = await self._is_current()
        except PaddlewheelError as error:
            log.warning("triggers cannot be listed, events wait", why=str(error))
            await self._clock.sleep(CACHE_CHECK_INTERVAL_SECONDS)
            return
        if is_current:
            self._current_at = self._begun
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CACHE_CHECK_INTERVAL_SECONDS):
                await self._changed.wait()

    async def _is_current(self) -> bool:
        began = self._clock.monotonic()
        triggers = await self._cluster.list(TRIGGERS, self._namespace)
        ended = self._clock.monotonic()
        # Only lists that succeed count, so that events need not wait after an outage of the API server.
        pause = min(_PAUSES_PER_LIST * (ended - began), CACHE_CHECK_MAX_INTERVAL_SECONDS)
        self._rest_until = ended + pause
        return all(map(self._knows, triggers))

    def _knows(self, trigger: Object) -> bool:
        """Whether the cache has the Trigger with its spec.

        Other replicas write the status, so it may differ.
        """
        cached = self._store.get(key_of(trigger))
        return (
            cached is not None
            and uid_of(cached) == uid_of(trigger)
            and _generation(cached) >= _generation(trigger)
        )


def _generation(trigger: Object) -> int:
    return int(trigger["metadata"].get("generation", 0))
