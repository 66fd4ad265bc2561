"""A circuit breaker for calls to the bus, so that an unreachable bus does not block reconciles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError, Unavailable

BUS_CALL_TIMEOUT_SECONDS = 3.0
"""Maximum duration of one call."""
BUS_RETRY_INTERVAL_SECONDS = 2.0
"""Time without calls after a call without an answer, so that many objects do not wait one after another."""

T = TypeVar("T")


class CircuitBreaker:
    """Guards one use of the bus. Uses that must not block each other have one circuit breaker each.

    It opens when the bus does not answer (`Unavailable` or a time-out). A refusal is an answer. While it is
    open, one call at a time tries whether the bus is back. Other calls fail at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open_until: float | None = None

    async def call(self, call: Awaitable[T]) -> T:
        """Make the call, and return its answer.

        Raises:
            Unavailable: the bus does not answer, or did not answer a moment ago and the call was not made.
            PaddlewheelError: the error that the bus answered.
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
        # This call tries. If it is cancelled, other calls fail no longer than its time-out.
        self._open(BUS_CALL_TIMEOUT_SECONDS)

    def _open(self, seconds: float) -> None:
        self._open_until = self._clock.monotonic() + seconds


def _drop(call: Awaitable[object]) -> None:
    """Close a coroutine that is not awaited. Python warns otherwise."""
    if asyncio.iscoroutine(call):
        call.close()
