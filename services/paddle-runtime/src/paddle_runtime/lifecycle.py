"""What this replica is doing, and how many requests are in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from paddle_runtime.batcher import Batcher
from paddle_runtime.domain.model import Signature


class Phase(StrEnum):
    """In this order; `failed` can follow each of the others."""

    DOWNLOADING = "downloading"
    LOADING = "loading"
    WARMING_UP = "warming up"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True)
class Serving:
    """A model that answers."""

    signature: Signature
    batcher: Batcher


class Lifecycle:
    """The only state that requests share."""

    def __init__(self) -> None:
        self.phase = Phase.DOWNLOADING
        self.reason = ""
        """Of a phase that takes longer than it should, or of the failure."""
        self.serving: Serving | None = None
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self, phase: Phase, reason: str = "") -> None:
        """Begin a phase."""
        self.phase, self.reason = phase, reason

    async def is_ready(self) -> bool | str:
        """For /readyz: True, or what the replica does instead of serving."""
        if self.phase is Phase.SERVING:
            return True
        return f"{self.phase}: {self.reason}" if self.reason else str(self.phase)

    @property
    def queued(self) -> int:
        """Requests that wait for the model."""
        return self.serving.batcher.queued if self.serving else 0

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
