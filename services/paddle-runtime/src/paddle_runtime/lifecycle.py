"""The phase of this replica, and the number of requests in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class Phase(StrEnum):
    """The phases in their order; `failed` can follow each other phase."""

    DOWNLOADING = "downloading"
    LOADING = "loading"
    WARMING_UP = "warming up"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


class Lifecycle:
    """The only state that requests share."""

    def __init__(self) -> None:
        self.phase = Phase.DOWNLOADING
        self.reason = ""
        """The cause of a long phase, or of the failure."""
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self, phase: Phase, reason: str = "") -> None:
        """Begin a phase."""
        self.phase, self.reason = phase, reason

    async def is_ready(self) -> bool | str:
        """The check of /readyz: True, or the phase with its reason."""
        if self.phase is Phase.SERVING:
            return True
        return f"{self.phase}: {self.reason}" if self.reason else str(self.phase)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Counts one request while it runs."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Return when no request runs."""
        await self._idle.wait()
