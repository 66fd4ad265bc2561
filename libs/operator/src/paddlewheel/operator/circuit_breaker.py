"""A circuit breaker for calls to the bus, so that a bus that is away never holds a reconcile up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError, Unavailable

BUS_CALL_TIMEOUT_SECONDS = 3.0
"""Seconds one call may take."""
BUS_RETRY_INTERVAL_SECONDS = 2.0
"""Seconds without a call after one that was not answered, so that many objects do not wait in turn."""

T = TypeVar("T")


class CircuitBreaker:
    """Guards one use of the bus; uses that must not silence each other have one each.

    It opens only when the bus does not answer (`Unavailable`, a time-out); a refusal is an answer. Once it
    has opened, one call at a time tries whether the bus is back, and others fail at once until that ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open_until: float | None = None

    async def call(self, call: Awaitable[T]) -> T:
        """The call's answer.

        Raises:
            Unavailable: the bus does not answer, or did not a moment ago; then the call is not made.
            PaddlewheelError: whatever the bus answered.
        """
        self._admit(call)
        try:
            async with asyncio.timeout(BUS_CALL_TIMEOUT_SECONDS):
                answer = await call
        except TimeoutError as error:
            self._open(BUS_RETRY_INTERVAL_SECONDS)
            raise Unavailable("BusTimeout", f"no answer within {BUS_CALL_TIMEOUT_SECONDS} s") from error
        except Unavailable:
            self._open(BUS_RETRY_INTERVAL_SECONDS)
            raise
        except PaddlewheelError:
            self._open_until = None
            raise
        self._open_until = None
        return answer

    def _admit(self, call: Awaitable[object]) -> None:
        if self._open_until is None:
            return
        if self._clock.monotonic() < self._open_until:
            _drop(call)
            raise Unavailable("BusUnavailable", "the bus did not answer a moment ago")
        # This call tries; a cancelled one keeps the others waiting no longer than it might have taken.
        self._open(BUS_CALL_TIMEOUT_SECONDS)

    def _open(self, seconds: float) -> None:
        self._open_until = self._clock.monotonic() + seconds


def _drop(call: Awaitable[object]) -> None:
    """A coroutine that is not awaited must be closed."""
    if asyncio.iscoroutine(call):
        call.close()
