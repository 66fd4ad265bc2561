"""What this agent knows of one run, kept fresh by the watch."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cache_runtime.domain.model import RunRecords
from cache_runtime.records import with_entry
from paddlewheel.bus.ports import Entry
from paddlewheel.core.clock import Clock


class RunTracker:
    """Records of one run, and when the state last moved by this agent's own clock.

    The clocks of other nodes are never compared: silence is measured from the last change seen here.
    """

    def __init__(self, run_id: str, clock: Clock) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._seen_at = clock.monotonic()
        self.records = RunRecords(run_id)

    @property
    def silent_for(self) -> float:
        """Seconds since the state was last seen to change."""
        return self._clock.monotonic() - self._seen_at

    def apply(self, entry: Entry) -> None:
        """Take in one watched entry; one seen before changes nothing."""
        before = self.records.state_revision
        self.records = with_entry(self.records, entry)
        if self.records.state_revision != before:
            self._seen_at = self._clock.monotonic()
        self._changed.set()

    async def wait_changed(self, at_most: float) -> None:
        """Until something changed since the last call, or `at_most` seconds of real time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        self._changed.clear()
