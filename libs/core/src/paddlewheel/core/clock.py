"""The clock that services use, as a port."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time that a caller passes in, so that tests can replace it."""

    def now(self) -> datetime:
        """Wall-clock time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Monotonic time in seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`. Cancellation is not caught."""
        ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
