"""Due times per key, of which the earliest is found at once."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

SPARE = 64
"""Superseded entries that are kept in any case; more than the live ones are removed."""


class Timers(Generic[K]):
    """One due time per key. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._due)

    def get(self, key: K) -> float | None:
        """When the key is due, None when it has no timer."""
        return self._due.get(key)

    def set(self, key: K, due: float) -> None:
        """Replaces the key's timer."""
        self._due[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))
        self._remove_superseded()

    def discard(self, key: K) -> None:
        """Stop the key's timer, if it has one."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """When the earliest is due; may be too early after a replacement, never too late."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[K]:
        """The keys whose time has come, earliest first; their timers are stopped."""
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
