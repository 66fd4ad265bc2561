"""A queue of keys with priorities.

A key that is added twice is returned once, and two workers never hold the same key.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from paddlewheel.control.timers import Timers
from paddlewheel.core.alarm import Alarm
from paddlewheel.core.clock import Clock

K = TypeVar("K")

Timer = Literal["wake", "requeue", "retry"]
"""Why a key is scheduled: a call of `add_after`, a requeue after a success, or a retry after a failure."""

LOW_PRIORITY_SHARE = 4
"""While several lanes have keys, one of every 4 keys is taken from a lower lane, so that no lane starves."""
FIRST, CHANGED, ROUTINE = range(3)


class _Ready(Generic[K]):
    """Keys in three lanes: first, changed and routine. Each lane keeps the order of arrival."""

    def __init__(self) -> None:
        self._lanes: tuple[OrderedDict[K, None], ...] = (OrderedDict(), OrderedDict(), OrderedDict())
        self._handed_out = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def add(self, key: K, lane: int) -> bool:
        """Add a key, or move it up from a lower lane. Returns True when the key is new."""
        found = next((number for number, keys in enumerate(self._lanes) if key in keys), None)
        if found is not None and found <= lane:
            return False
        if found is not None:
            del self._lanes[found][key]
        self._lanes[lane][key] = None
        return found is None

    def pop(self) -> K:
        self._handed_out += 1
        lanes, turn = [lane for lane in self._lanes if lane], self._handed_out
        while len(lanes) > 1 and turn % LOW_PRIORITY_SHARE == 0:
            lanes, turn = lanes[1:], turn // LOW_PRIORITY_SHARE
        key, _ = lanes[0].popitem(last=False)
        return key


class KeyedQueue(Generic[K]):
    """A queue of keys that wait for a worker.

    A key that is added while a worker holds it is returned again after `done`. The owner runs `run()` as a
    task, which adds delayed keys. A key has at most one timer of each kind, and the earliest timer adds it.

    A routine key is reconciled because time has passed, not because it changed. Routine keys wait for all
    other keys. Otherwise a change would wait until a resync of all objects is done.

    Args:
        is_first: whether a changed key has priority over other changed keys.
    """

    def __init__(self, clock: Clock, is_first: Callable[[K], bool] = lambda _: False) -> None:
        self._clock = clock
        self._is_first = is_first
        self._ready: _Ready[K] = _Ready()
        self._places = asyncio.Semaphore(0)
        self._working: set[K] = set()
        self._again: dict[K, bool] = {}
        self._timers: Timers[tuple[K, Timer]] = Timers()
        self._alarm = Alarm(clock)

    def __len__(self) -> int:
        """Number of keys that are ready or will be ready after `done`. Delayed keys do not count."""
        return len(self._ready) + len(self._again)

    @property
    def delayed(self) -> int:
        """Number of running timers."""
        return len(self._timers)

    def add(self, key: K, *, routine: bool = False) -> None:
        """Return the key from `get` as soon as a worker is free."""
        if key in self._working:
            self._again[key] = routine and self._again.get(key, True)
        elif self._ready.add(key, self._lane_of(key, routine=routine)):
            self._places.release()

    def _lane_of(self, key: K, *, routine: bool) -> int:
        if routine:
            return ROUTINE
        return FIRST if self._is_first(key) else CHANGED

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key after `seconds`. If it has such a delay already, the earlier time counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._timers.get((key, "wake"))
        if due is None or self._clock.monotonic() + seconds < due:
            self.set_timer(key, "wake", seconds)

    def set_timer(self, key: K, timer: Timer, seconds: float | None) -> None:
        """Set a timer that adds the key after `seconds`, or replace its time. None stops the timer."""
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
        """The next key. The caller holds it until `done(key)`. None when the queue is closed."""
        await self._places.acquire()
        if not self._ready:
            self._places.release()
            return None
        key = self._ready.pop()
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Release the key. If it was added meanwhile, it is ready again."""
        self._working.discard(key)
        if key in self._again:
            self.add(key, routine=self._again.pop(key))

    def close(self) -> None:
        """Close the queue. `get` still returns the keys that are ready, and then None."""
        # One place without a key. Every worker that takes it puts it back.
        self._places.release()

    async def run(self) -> None:
        """Add delayed keys when they are due, forever. A requeue is routine."""
        while True:
            for key, timer in self._timers.pop_due(self._clock.monotonic()):
                self.add(key, routine=timer == "requeue")
            await self._alarm.wait(self._timers.next_due())
