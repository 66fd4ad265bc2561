"""A queue of keys: repeats collapse, a key is never handed out twice at once, adds may be delayed."""

from __future__ import annotations

import asyncio
import heapq
from typing import Generic, TypeVar

from paddlewheel.core.alarm import Alarm
from paddlewheel.core.clock import Clock

K = TypeVar("K")


class KeyedQueue(Generic[K]):
    """Keys waiting for work.

    A key added while it is being worked on is handed out again after `done`. Delayed adds need `run()` as a
    task of the owner; of two delays for one key the earlier wins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[K | None] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0
        self._alarm = Alarm(clock)

    def __len__(self) -> int:
        """Keys ready or to be handed out again; delayed ones do not count."""
        return len(self._dirty)

    @property
    def delayed(self) -> int:
        """Keys whose time has not come."""
        return len(self._due)

    def add(self, key: K) -> None:
        """Hand the key out as soon as a worker is free."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key once `seconds` have passed."""
        if seconds <= 0:
            return self.add(key)
        due = self._clock.monotonic() + seconds
        if self._due.get(key, due + 1) <= due:
            return None
        self._due[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))
        if self._heap[0][2] == key:
            self._alarm.ring()
        return None

    async def get(self) -> K | None:
        """The next key, now being worked on until `done(key)`; None once the queue is closed."""
        key = await self._ready.get()
        if key is None:
            self._ready.put_nowait(None)
            return None
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key has ended; it is handed out again if it was added meanwhile."""
        self._working.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Every `get` from now on gives None after the keys that are ready."""
        self._ready.put_nowait(None)

    async def run(self) -> None:
        """Move delayed keys over when they are due, forever."""
        while True:
            self._release_due()
            await self._alarm.wait(self._heap[0][0] if self._heap else None)

    def _release_due(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
