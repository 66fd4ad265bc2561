"""How often one job may report."""

from __future__ import annotations

from dataclasses import dataclass

from job_controller.timing import PROGRESS_SWEEP_INTERVAL_SECONDS
from paddlewheel.core.clock import Clock

BURST = 10
"""Reports that a job may send at once."""
RATE = 1.0
"""Reports a second in the long run; the library sends one every two."""


@dataclass(frozen=True)
class _Bucket:
    level: float
    at: float

    def now(self, moment: float) -> float:
        """Reports that are left."""
        return min(BURST, self.level + (moment - self.at) * RATE)


class RateLimit:
    """A token bucket for each job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._swept = clock.monotonic()

    def admits(self, uid: str) -> bool:
        """One report more, which is counted."""
        now = self._clock.monotonic()
        self._sweep(now)
        left = self._buckets.get(uid, _Bucket(BURST, now)).now(now)
        if left < 1.0:
            return False
        self._buckets[uid] = _Bucket(left - 1.0, now)
        return True

    def __len__(self) -> int:
        return len(self._buckets)

    def _sweep(self, now: float) -> None:
        """Forget the jobs whose bucket is full again."""
        if now - self._swept >= PROGRESS_SWEEP_INTERVAL_SECONDS:
            self._swept = now
            self._buckets = {uid: b for uid, b in self._buckets.items() if b.now(now) < BURST}
