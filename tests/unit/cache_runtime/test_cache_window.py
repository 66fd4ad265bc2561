"""A run publishes only so much ahead of what is done: the stream of the work is shared by all data sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import pytest

from cache_runtime import timing, window
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Batch, File
from cache_runtime.operations.base import RunOperation
from cache_runtime.publication import Publication
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RemoveOperation, RunSpec
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus

CHUNKS = 40


class Listing(RunOperation):
    """One file for each chunk, which is never full before."""

    def __init__(self) -> None:
        self.count = self.ended = 0

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        self.count += 1
        try:
            for number in range(CHUNKS):
                yield Batch([File(f"f{number:02}", 1)])
        finally:
            self.ended += 1


@dataclass
class Bench:
    """The publication of one run; what is done is as the test says."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    clock: ManualClock = field(default_factory=ManualClock)
    operation: Listing = field(default_factory=Listing)
    done: int = 0
    publishing: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        spec = RunSpec(run_id="r", set_uid="s", partitions=1, remove=RemoveOperation(paths=["x"]))
        work, limits = self.bus.work, Limits(files=1)
        self.publication = Publication(spec, self.operation, work, limits, self.clock, self._part)

    def _part(self, partition: int) -> PartitionState:
        return PartitionState(partition=partition, watermark=self.done)

    @property
    def ahead(self) -> int:
        """Chunks that are published and not done."""
        return len(self.bus.stored("PW_WORK")) - self.done

    async def settle(self, seconds: float = timing.WINDOW_CHECK_INTERVAL_SECONDS) -> None:
        for _ in range(200):
            await asyncio.sleep(0)
        await self.clock.advance(seconds)
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """With room for about ten chunks, and a listing that goes on."""
    monkeypatch.setattr(window, "SIZE", 900)
    bench = Bench()
    bench.publishing = asyncio.create_task(bench.publication.publish())
    await bench.settle()
    yield bench
    await end(bench.publishing)


async def test_no_more_is_published_than_the_window_holds_until_half_of_it_is_done(bench: Bench) -> None:
    full = bench.ahead
    assert 5 < full < 15
    bench.done = 1
    await bench.settle()
    assert (bench.ahead, bench.publication.listed) == (full - 1, False)
    for done in range(2, CHUNKS):
        bench.done = done
        await bench.settle()
        assert 0 <= bench.ahead <= full
    assert (bench.publication.listed, bench.operation.count) == (True, 1)
    assert len(bench.bus.stored("PW_WORK")) == CHUNKS


async def test_what_may_be_lost_is_published_again_before_all_is_listed(bench: Bench) -> None:
    full = bench.ahead
    bench.done = 2
    await bench.settle()
    bench.bus.lose_facts("PW_WORK")
    for seconds in (
        timing.WINDOW_STALL_TIMEOUT_SECONDS,
        timing.WINDOW_CHECK_INTERVAL_SECONDS,
        timing.LISTING_RETRY_INTERVAL_SECONDS,
    ):
        await bench.settle(seconds)
    assert bench.operation.count == 2
    assert len(bench.bus.stored("PW_WORK")) in range(full - 1, full + 2)


async def test_what_a_record_lacks_that_went_back_is_published_again(bench: Bench) -> None:
    """The bus was restored from older data, and chunks that were done are not there any more."""
    for done in (2, 4):
        bench.done = done
        await bench.settle()
    for number in range(4):
        await bench.bus.work.drop(work_subject("s", "r", 0, number))
    bench.done = 2
    for seconds in (
        timing.WINDOW_STALL_TIMEOUT_SECONDS + 1,
        timing.WINDOW_CHECK_INTERVAL_SECONDS,
        timing.LISTING_RETRY_INTERVAL_SECONDS,
    ):
        await bench.settle(seconds)
    assert bench.operation.count == 2
    assert await bench.bus.work.get(work_subject("s", "r", 0, 2))


async def test_what_cannot_be_read_is_published_again(bench: Bench) -> None:
    subject = work_subject("s", "r", 0, 0)
    await bench.bus.work.put(subject, b"nonsense")
    for seconds in (
        timing.WINDOW_STALL_TIMEOUT_SECONDS + 1,
        timing.WINDOW_CHECK_INTERVAL_SECONDS,
        timing.LISTING_RETRY_INTERVAL_SECONDS,
    ):
        await bench.settle(seconds)
    assert bench.operation.count == 2
    assert await bench.bus.work.get(subject) != b"nonsense"


async def test_what_takes_long_is_waited_for(bench: Bench) -> None:
    """A copy of large files does; listing all of them again would not speed it up."""
    full = bench.ahead
    for _ in range(5):
        await bench.settle(timing.WINDOW_STALL_TIMEOUT_SECONDS + 1)
    assert (bench.operation.count, bench.ahead, bench.publication.problem) == (1, full, None)


async def test_a_run_that_is_cancelled_while_it_waits_for_room_has_ended_its_listing(bench: Bench) -> None:
    """Which may have a process, and a file system that hangs."""
    assert (bench.operation.count, bench.operation.ended) == (1, 0)
    bench.publishing.cancel()
    await asyncio.wait({bench.publishing})
    assert bench.operation.ended == 1
