"""How long a key that failed waits before its next try."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")


class Backoff(Generic[K]):
    """Doubles from `base` to `cap` seconds per key, until `reset`."""

    def __init__(self, base: float = 0.2, cap: float = 60.0) -> None:
        self.base = base
        self.cap = cap
        self._failures: dict[K, int] = {}

    def next(self, key: K) -> float:
        """Count one more failure and give the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2**64 would overflow nothing in Python but the product must stay a small float.
        return min(self.cap, self.base * 2.0 ** min(failures, 64))

    def failures(self, key: K) -> int:
        """Failures in a row."""
        return self._failures.get(key, 0)

    def reset(self, key: K) -> None:
        """The key succeeded."""
        self._failures.pop(key, None)
