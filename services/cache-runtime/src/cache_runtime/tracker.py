"""The records of one run, updated by the watch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf

from cache_runtime.domain.model import RunRecords
from cache_runtime.records import with_entry
from paddlewheel.bus.ports import Entry
from paddlewheel.contracts.run_keys import Record, RunRecord
from paddlewheel.core.clock import Clock


class RunTracker:
    """Records of one run, and for how long its state did not change, by this agent's own clock.

    Clocks of nodes are never compared: silence is measured from the last change observed here.
    """

    def __init__(self, run_id: str, clock: Clock) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._told = asyncio.Event()
        self._changed_at = clock.monotonic()
        self._brought_at: float | None = None
        self.records = RunRecords(run_id)

    def heard(self) -> None:
        """Count the silence anew: what was not heard until now says nothing about the master."""
        self._changed_at = self._clock.monotonic()

    @property
    def silent_for(self) -> float:
        """Seconds since a change of the state was last observed."""
        return self._clock.monotonic() - self._changed_at

    @property
    def state_age(self) -> float:
        """Seconds since the watch brought the state that is in the records; infinite before."""
        return inf if self._brought_at is None else self._clock.monotonic() - self._brought_at

    def apply(self, record: RunRecord, entry: Entry) -> None:
        """Apply one watched entry; applying it again changes nothing."""
        before = self.records.state_revision
        self.records = with_entry(self.records, record, entry)
        if self.records.state_revision != before:
            self._brought_at = self._clock.monotonic()
            self.heard()
        self._changed.set()
        self._changed = asyncio.Event()
        if record.record is not Record.PART:
            self._told.set()
            self._told = asyncio.Event()

    async def wait_changed(self, at_most: float | None) -> None:
        """Wait until something changes, or `at_most` seconds of real time."""
        await _wait(self._changed, at_most)

    async def wait_told(self, at_most: float | None) -> None:
        """The same without records of partitions: of a thousand partitions there are hundreds a second."""
        await _wait(self._told, at_most)


async def _wait(event: asyncio.Event, at_most: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most):
            await event.wait()
