"""A message whose handling kills the process: it is given up without dragging its neighbours along.

A delivery count does not tell the culprit from its neighbours: whatever a process holds when it dies is
redelivered. So a message delivered too often is handled alone, and given up only after as many deliveries
again (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

from paddlewheel.bus.ports import Subscription
from paddlewheel.core.clock import Clock

_TURN_INTERVAL_SECONDS = 0.25
"""Seconds over which the turns of one delivery are spread."""


class PoisonGuard:
    """Handles messages that were delivered too often one at a time, in an order that changes each time.

    Those before the culprit end; half of the rest does so the next time, until the culprit is given up.
    """

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self._limit = subscription.max_attempts
        self._clock = clock
        self._lock = asyncio.Lock()

    def is_poison(self, deliveries: int) -> bool:
        """It was delivered too often to be handled once more."""
        return deliveries > 2 * self._limit

    @asynccontextmanager
    async def turn(self, subject: str, deliveries: int) -> AsyncIterator[None]:
        """Handle within: at once, or alone when the message is suspected."""
        if deliveries <= self._limit:
            yield
            return
        await self._clock.sleep(_TURN_INTERVAL_SECONDS * crc32(f"{subject} {deliveries}".encode()) / 2**32)
        async with self._lock:
            yield
