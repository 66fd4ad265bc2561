"""Calls to the bus that never hold a reconcile up: a bus that failed is left alone for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

TIMEOUT = 3.0
"""Seconds one call may take."""
QUIET = 2.0
"""Seconds without a try after a failure, so that many objects do not wait one after the other."""

T = TypeVar("T")


class CircuitBreaker:
    """One service's line to the bus; all that must not wait for it share one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")

    async def call(self, call: Awaitable[T]) -> T:
        """The call's answer.

        Raises:
            Retry: the bus is away, or was a moment ago.
        """
        if self._clock.monotonic() < self._quiet_until:
            _drop(call)
            raise Retry("BusUnavailable", "the bus failed a moment ago")
        try:
            async with asyncio.timeout(TIMEOUT):
                return await call
        except TimeoutError as error:
            self._be_quiet()
            raise Retry("BusTimeout", f"no answer within {TIMEOUT} s") from error
        except Retry:
            self._be_quiet()
            raise

    def _be_quiet(self) -> None:
        self._quiet_until = self._clock.monotonic() + QUIET


def _drop(call: Awaitable[object]) -> None:
    """A coroutine that is not awaited must be closed."""
    if asyncio.iscoroutine(call):
        call.close()
