"""How long something that failed waits before its next try."""

from __future__ import annotations

import random
from collections.abc import Callable, Container
from typing import Generic, TypeVar

K = TypeVar("K")


class Backoff(Generic[K]):
    """Doubles from `base` to `cap` seconds per key, until `reset`.

    Args:
        jitter: fraction by which each wait is shortened or lengthened at random, beyond the cap as well, so
            that many who failed together do not try again together.
    """

    def __init__(
        self,
        base: float = 0.2,
        cap: float = 60.0,
        *,
        jitter: float = 0.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.base = base
        self.cap = cap
        self._jitter = jitter
        self._uniform = uniform
        self._failures: dict[K, int] = {}

    def next(self, key: K) -> float:
        """Count one more failure and return the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # Unbounded, the power would overflow a float after a thousand failures.
        wait = min(self.cap, self.base * 2.0 ** min(failures, 64))
        return wait * self._uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else wait

    def failures(self, key: K) -> int:
        """Failures in a row."""
        return self._failures.get(key, 0)

    def reset(self, key: K) -> None:
        """The key succeeded, or is gone."""
        self._failures.pop(key, None)

    def retain(self, keys: Container[K]) -> None:
        """Forget every key that is not among these."""
        for key in [key for key in self._failures if key not in keys]:
            del self._failures[key]
