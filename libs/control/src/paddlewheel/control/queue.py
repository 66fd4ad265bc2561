"""A queue of keys: repeats collapse, a key is never handed out twice at once, adds may be delayed."""

from __future__ import annotations

import asyncio
from typing import Generic, Literal, TypeVar

from paddlewheel.control.timers import Timers
from paddlewheel.core.alarm import Alarm
from paddlewheel.core.clock import Clock

K = TypeVar("K")

Timer = Literal["wake", "requeue", "retry"]
"""Why a key will be added: somebody outside asked for it, the last success did, or the last try failed."""


class KeyedQueue(Generic[K]):
    """Keys waiting for work.

    A key added while it is being worked on is handed out again after `done`. Delayed adds need `run()` as a
    task of the owner. A key has one timer of each sort, and the earliest counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[K | None] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._timers: Timers[tuple[K, Timer]] = Timers()
        self._alarm = Alarm(clock)

    def __len__(self) -> int:
        """Keys ready or to be handed out again; delayed ones do not count."""
        return len(self._dirty)

    @property
    def delayed(self) -> int:
        """Timers that are running."""
        return len(self._timers)

    def add(self, key: K) -> None:
        """Hand the key out as soon as a worker is free."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key once `seconds` have passed; of several such delays the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._timers.get((key, "wake"))
        if due is None or self._clock.monotonic() + seconds < due:
            self.set_timer(key, "wake", seconds)

    def set_timer(self, key: K, timer: Timer, seconds: float | None) -> None:
        """Add the key once `seconds` have passed, in place of what this timer was set to; None stops it."""
        self._timers.discard((key, timer))
        if seconds is None:
            return
        if seconds <= 0:
            self.add(key)
            return
        earliest = self._timers.next_due()
        due = self._clock.monotonic() + seconds
        self._timers.set((key, timer), due)
        if earliest is None or due < earliest:
            self._alarm.ring()

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
        """Every `get` from now on returns None after the keys that are ready."""
        self._ready.put_nowait(None)

    async def run(self) -> None:
        """Add delayed keys when they are due, forever."""
        while True:
            for key, _ in self._timers.pop_due(self._clock.monotonic()):
                self.add(key)
            await self._alarm.wait(self._timers.next_due())
