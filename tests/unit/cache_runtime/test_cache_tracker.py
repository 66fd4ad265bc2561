"""Whom a change of a run's records wakes."""

from __future__ import annotations

import asyncio

import pytest

from cache_runtime.tracker import RunTracker
from paddlewheel.bus.ports import Entry
from paddlewheel.contracts.run_keys import RunKey, parse_run_record
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock

RUN = RunKey("s", "r")


@pytest.mark.parametrize(("key", "is_told"), [(RUN.part(7), False), (RUN.state, True), (RUN.cancel, True)])
async def test_records_of_partitions_wake_the_master_only(key: str, is_told: bool) -> None:
    tracker, record = RunTracker("r", ManualClock()), parse_run_record(key)
    assert record is not None
    master = asyncio.create_task(tracker.wait_changed(None))
    agent = asyncio.create_task(tracker.wait_told(None))
    await asyncio.sleep(0)
    tracker.apply(record, Entry(key, b"{}", 3))
    async with asyncio.timeout(5):
        await master
        if is_told:
            await agent
    assert agent.done() is is_told
    await end(agent)
