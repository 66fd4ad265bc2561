"""Finds a message whose handling kills the process, and parks it without parking other messages.

The number of deliveries alone does not identify the message: all messages that a process holds when it dies
are redelivered. So a message that was delivered too often is handled alone, and parked only after as many
further deliveries (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

from paddlewheel.bus.ports import Subscription
from paddlewheel.core.clock import Clock

_TURN_INTERVAL_SECONDS = 0.25
"""The longest delay before a suspected message is handled. Delays differ by message and delivery."""


class PoisonGuard:
    """Handles messages that were delivered too often one at a time, in a different order each time.

    Messages before the one that kills the process end. At the next delivery about half of the rest comes
    before it, and so on, until it is parked.
    """

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self._limit = subscription.max_attempts
        self._clock = clock
        self._lock = asyncio.Lock()

    def is_poison(self, deliveries: int) -> bool:
        """Whether the message was delivered too often to be handled again."""
        return deliveries > 2 * self._limit

    @asynccontextmanager
    async def turn(self, subject: str, deliveries: int) -> AsyncIterator[None]:
        """Handle the message within the block: at once, or alone when it is suspected."""
        if deliveries <= self._limit:
            yield
            return
        await self._clock.sleep(_TURN_INTERVAL_SECONDS * crc32(f"{subject} {deliveries}".encode()) / 2**32)
        async with self._lock:
            yield
