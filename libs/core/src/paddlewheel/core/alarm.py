"""A wait for a deadline that may move to an earlier time while the task waits."""

from __future__ import annotations

import asyncio

from paddlewheel.core.clock import Clock
from paddlewheel.core.tasks import end


class Alarm:
    """Wakes one waiting task at a deadline, or earlier on `ring`.

    The task computes its deadline again after each `wait`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """End the current `wait` at once. Without a current `wait`, end the next one."""
        self._rung.set()

    async def wait(self, due: float | None) -> None:
        """Return on `ring`, or when the monotonic clock reaches `due`. None means no deadline."""
        if due is None:
            await self._rung.wait()
        elif due > self._clock.monotonic():
            await self._wait_either(due)
        self._rung.clear()

    async def _wait_either(self, due: float) -> None:
        sleeper = asyncio.ensure_future(self._sleep_until(due))
        rung = asyncio.ensure_future(self._rung.wait())
        try:
            await asyncio.wait((sleeper, rung), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(sleeper, rung)

    async def _sleep_until(self, due: float) -> None:
        # The clock may have advanced before this task runs.
        if (seconds := due - self._clock.monotonic()) > 0:
            await self._clock.sleep(seconds)
