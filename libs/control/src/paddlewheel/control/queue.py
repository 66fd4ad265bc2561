"""A queue of keys: repeats collapse, a key is never handed out twice at once, changes go before routine."""

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
"""Why a key will be added: somebody outside asked for it, the last success did, or the last try failed."""

LATER_SHARE = 4
"""Of so many keys one is of a later lane while several wait: it is late, but never starved."""
FIRST, CHANGED, ROUTINE = range(3)


class _Ready(Generic[K]):
    """Keys in order of arrival in each of three lanes: what comes first, other changes, what is routine."""

    def __init__(self) -> None:
        self._lanes: tuple[OrderedDict[K, None], ...] = (OrderedDict(), OrderedDict(), OrderedDict())
        self._handed_out = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def add(self, key: K, lane: int) -> bool:
        """Whether the key is new; one that waits in a later lane moves to this one."""
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
        while len(lanes) > 1 and turn % LATER_SHARE == 0:
            lanes, turn = lanes[1:], turn // LATER_SHARE
        key, _ = lanes[0].popitem(last=False)
        return key


class KeyedQueue(Generic[K]):
    """Keys waiting for work.

    A key added while it is being worked on is handed out again after `done`. Delayed adds need `run()` as a
    task of the owner. A key has one timer of each sort, and the earliest counts.

    Routine keys are those that nothing is known to have happened to: they are looked at again because time
    has passed. They wait for the others, or a change would wait for a resync of all objects.

    Args:
        is_first: of keys that have changed, which go before the others.
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
        """Keys ready or to be handed out again; delayed ones do not count."""
        return len(self._ready) + len(self._again)

    @property
    def delayed(self) -> int:
        """Timers that are running."""
        return len(self._timers)

    def add(self, key: K, *, routine: bool = False) -> None:
        """Hand the key out as soon as a worker is free."""
        if key in self._working:
            self._again[key] = routine and self._again.get(key, True)
        elif self._ready.add(key, self._lane_of(key, routine=routine)):
            self._places.release()

    def _lane_of(self, key: K, *, routine: bool) -> int:
        if routine:
            return ROUTINE
        return FIRST if self._is_first(key) else CHANGED

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
        await self._places.acquire()
        if not self._ready:
            self._places.release()
            return None
        key = self._ready.pop()
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key has ended; it is handed out again if it was added meanwhile."""
        self._working.discard(key)
        if key in self._again:
            self.add(key, routine=self._again.pop(key))

    def close(self) -> None:
        """Every `get` from now on returns None after the keys that are ready."""
        # One place more than there are keys: it is found and left by every worker.
        self._places.release()

    async def run(self) -> None:
        """Add delayed keys when they are due, forever; a requeue is routine."""
        while True:
            for key, timer in self._timers.pop_due(self._clock.monotonic()):
                self.add(key, routine=timer == "requeue")
            await self._alarm.wait(self._timers.next_due())
