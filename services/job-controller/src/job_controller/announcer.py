"""Publishing that never holds a reconcile up: a bus that failed is left alone for a moment."""

from __future__ import annotations

import asyncio

from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

TIMEOUT = 3.0
"""Seconds one publish may take."""
QUIET = 2.0
"""Seconds without a try after a failure; everything published in them is refused at once."""


class PatientAnnouncer:
    """An Announcer over the bus."""

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock
        self._quiet_until = float("-inf")

    async def publish(self, event: Event) -> None:
        if self._clock.monotonic() < self._quiet_until:
            raise Retry("BusUnavailable", "the bus failed a moment ago")
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._publisher.publish(event)
        except TimeoutError as error:
            self._be_quiet()
            raise Retry("BusTimeout", f"no answer within {TIMEOUT} s") from error
        except Retry:
            self._be_quiet()
            raise

    def _be_quiet(self) -> None:
        self._quiet_until = self._clock.monotonic() + QUIET
