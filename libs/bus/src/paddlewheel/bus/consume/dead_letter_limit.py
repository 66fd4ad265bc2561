"""The number of messages that a consumer may park before it stops."""

from __future__ import annotations

from collections import deque

from paddlewheel.core.clock import Clock


class DeadLetterLimitError(Exception):
    """No further message may be parked now, so the consumer must stop. The text is the reason."""


class DeadLetterLimit:
    """At most `most` parked messages within any `window` seconds."""

    def __init__(self, most: int, window: float, clock: Clock) -> None:
        self._most = most
        self._window = window
        self._clock = clock
        self._times: deque[float] = deque()

    def admit(self) -> None:
        """Count one more message. Raises DeadLetterLimitError, without counting, at the limit."""
        now = self._clock.monotonic()
        while self._times and now - self._times[0] >= self._window:
            self._times.popleft()
        if len(self._times) >= self._most:
            raise DeadLetterLimitError(f"{self._most} messages had to be parked within {self._window:g} s")
        self._times.append(now)

    def reset(self) -> None:
        """Start counting again."""
        self._times.clear()
