"""One timer per key, with fast access to the earliest."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

SPARE = 64
"""Number of replaced entries that the heap may always hold. It may also hold as many as there are timers."""


class Timers(Generic[K]):
    """At most one timer per key. All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._due)

    def get(self, key: K) -> float | None:
        """The time when the key is due. None when it has no timer."""
        return self._due.get(key)

    def set(self, key: K, due: float) -> None:
        """Set the timer of the key, or replace it."""
        self._due[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))
        self._remove_superseded()

    def discard(self, key: K) -> None:
        """Stop the timer of the key, if it has one."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """The time of the earliest timer. After a replacement it can be too early, but never too late."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[K]:
        """The keys that are due, earliest first. Their timers are stopped."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                keys.append(key)
        return keys

    def _remove_superseded(self) -> None:
        if len(self._heap) <= 2 * len(self._due) + SPARE:
            return
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
