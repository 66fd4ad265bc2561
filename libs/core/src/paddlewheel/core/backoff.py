"""Exponential backoff between the attempts of a failing operation."""

from __future__ import annotations

import random
from collections.abc import Callable, Container
from typing import Generic, TypeVar

K = TypeVar("K")


class Backoff(Generic[K]):
    """Doubles the delay of each key from `base` to `cap` seconds. `reset` starts again at `base`.

    Args:
        jitter: fraction by which each delay is randomly shortened or lengthened, even beyond the cap, so that
            operations that failed together do not retry together.
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
        """Record a failure and return the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # Without this bound the power overflows a float after a thousand failures.
        wait = min(self.cap, self.base * 2.0 ** min(failures, 64))
        return wait * self._uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else wait

    def failures(self, key: K) -> int:
        """Number of consecutive failures."""
        return self._failures.get(key, 0)

    def reset(self, key: K) -> None:
        """Forget the failures of a key. Call this after a success, or when the key is gone."""
        self._failures.pop(key, None)

    def retain(self, keys: Container[K]) -> None:
        """Forget all other keys."""
        for key in [key for key in self._failures if key not in keys]:
            del self._failures[key]
