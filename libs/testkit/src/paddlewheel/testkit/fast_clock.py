"""A clock that runs faster than the system's, for services under test."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

SPEED = 5.0


class FastClock:
    """Sleeps and monotonic time are `SPEED` times as fast; wall-clock time, which dates objects, is not."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return SPEED * time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)
