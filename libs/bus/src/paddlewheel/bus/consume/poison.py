"""Messages that were handed out again and again and never ended: one of them may kill the process.

Being handed out is not being tried: what a process holds when it stops is handed out again. The culprit must
not drag along its neighbours, who are only unlucky: they get their try before anybody gives up on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

from paddlewheel.bus.ports import Subscription
from paddlewheel.core.clock import Clock

_GIVEN_UP_AFTER = 2
_TURN = 0.25
"""Seconds within which suspects are put into an order."""


class Suspects:
    """Lets suspects be handled one at a time, in an order that changes with every time they are handed out.

    Those before the culprit end; half of the rest does so the next time, until the culprit is given up.
    """

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self._trusted = subscription.max_attempts
        self._clock = clock
        self._alone = asyncio.Lock()

    def is_given_up(self, handed_out: int) -> bool:
        """It was handed out too often to be tried once more."""
        return handed_out > self._trusted * _GIVEN_UP_AFTER

    @asynccontextmanager
    async def alone(self, subject: str, handed_out: int) -> AsyncIterator[None]:
        """Handle within: at once, or when it is the suspect's turn."""
        if handed_out <= self._trusted:
            yield
            return
        await self._clock.sleep(_TURN * crc32(f"{subject} {handed_out}".encode()) / 2**32)
        async with self._alone:
            yield
