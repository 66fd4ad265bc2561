"""One agent with records that the test controls: what it looks at again, and what it leaves alone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from cache_runtime import agent, execution
from cache_runtime.agent import Agent
from cache_runtime.context import RunContext
from cache_runtime.domain.model import File, Identity, ListedChunk, RunRecords
from cache_runtime.engines.ports import NotBegun
from cache_runtime.publication import pack
from cache_runtime.records import Recorded, RunStore
from cache_runtime.timing import (
    BUS_CHECK_GRACE_SECONDS,
    CACHE_COUNT_TIMEOUT_SECONDS,
    CLOCK_STEP_GRACE_SECONDS,
    HEARTBEAT_INTERVAL_SECONDS,
    LOST_CHUNK_GRACE_SECONDS,
    PARTITION_CHECK_INTERVAL_SECONDS,
    REFUSED_CHUNK_GRACE_SECONDS,
    RUN_CONTACT_TIMEOUT_SECONDS,
)
from cache_runtime.tracker import RunTracker
from paddlewheel.bus.ports import Entry
from paddlewheel.contracts.generated.cache_v1 import (
    FileEntry,
    PartitionState,
    PartitionTotals,
    RemoveOperation,
    RunPhase,
    RunSpec,
    RunState,
    StandIn,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey, parse_run_record
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core import tasks
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus

RUN = RunKey("s", "r")
SPEC = RunSpec(run_id="r", set_uid="s", partitions=1, remove=RemoveOperation(paths=["data"]))


@dataclass
class FakeTask:
    bench: Bench
    rejected: ClassVar[Mapping[str, str]] = {}
    kept: ClassVar[int] = 1
    uncompared: ClassVar[int] = 1
    notes: ClassVar[Mapping[str, str]] = {"f0": "did not exist", "f1": "did not exist"}

    def kept_since(self, at: datetime) -> int:
        self.bench.asked_since.append(at)
        return 1 if self.bench.is_old else 0

    @property
    def away(self) -> Collection[str]:
        return self.bench.away

    async def execute(self, files: Sequence[FileEntry]) -> None:
        for entry in files:
            self.bench.executed.append(entry.path)
            if entry.path == self.bench.blocked_after:
                await self._wait()
        if self.bench.failure:
            failure, self.bench.failure = self.bench.failure, None
            raise failure

    async def _wait(self) -> None:
        try:
            await self.bench.unblocked.wait()
        except asyncio.CancelledError:
            self.bench.broken_off += 1
            raise

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        return {entry.path: "unexpected EOF" for entry in files if entry.path in self.away}


@dataclass
class Bench:
    """The agent of partition 0."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    clock: ManualClock = field(default_factory=ManualClock)
    mounted: asyncio.Event = field(default_factory=asyncio.Event)
    executed: list[str] = field(default_factory=list)
    tidied: list[str] = field(default_factory=list)
    tidying: int = 0
    """How often it was begun."""
    may_tidy: asyncio.Event = field(default_factory=asyncio.Event)
    untidy: Exception | None = None
    """Why nothing can be removed."""
    asked_since: list[datetime] = field(default_factory=list)
    is_old: bool = False
    """What is there was changed before any agent began."""
    away: frozenset[str] = frozenset()
    """Files that look as if their store were away."""
    blocked_after: str = ""
    """The file after which a chunk waits until it is unblocked."""
    unblocked: asyncio.Event = field(default_factory=asyncio.Event)
    broken_off: int = 0
    failure: Retry | Permanent | None = None
    """Of the next execution."""
    refusal: Retry | None = None
    recount: Callable[..., Awaitable[int]] | None = None

    def __post_init__(self) -> None:
        self.kv = self.bus.key_value("pw_cache_runs")
        self.tracker = RunTracker("r", self.clock)
        self.mounted.set()
        self.may_tidy.set()
        context = SimpleNamespace(
            store=RunStore(self.kv, "s"),
            work=self.bus.work,
            clock=self.clock,
            mount=SimpleNamespace(wait_mounted=self.mounted.wait),
            metrics=SimpleNamespace(chunk_done=lambda *figures: None),
            operation=lambda spec: SimpleNamespace(
                prepare=self.prepare,
                fills_cache=False,
                recount=self.count,
                tidy=self.tidy,
                again=lambda spec: spec,
                notes_hold=False,
            ),
            identity=Identity("default", "digits", "s", "digits-runtime-0", 0, "n0"),
        )
        self.agent = Agent(SPEC, self.tracker, cast(RunContext, context))

    async def count(self, *given: Any) -> int:
        return await self.recount(*given) if self.recount else 0

    async def tidy(self, spec: RunSpec, files: Sequence[FileEntry]) -> None:
        self.tidying += 1
        if self.untidy:
            raise self.untidy
        await self.may_tidy.wait()
        self.tidied += [entry.path for entry in files]

    async def prepare(self, *_: Any) -> FakeTask:
        if self.refusal:
            raise self.refusal
        return FakeTask(self)

    async def lead(
        self,
        *,
        listed: bool,
        chunks: int,
        term: int = 1,
        phase: RunPhase = RunPhase.RUNNING,
        stand_ins: Sequence[int] = (),
    ) -> None:
        """A state of the master, which the agent hears of."""
        totals, named = [PartitionTotals(chunks=chunks)], [StandIn(partition=index) for index in stand_ins]
        state = RunState(run_id="r", listed=listed, totals=totals, term=term, phase=phase, stand_ins=named)
        revision = await self.kv.put(RUN.state, to_json(state))
        self.tracker.records = RunRecords("r", SPEC, state, revision)

    async def hear(self) -> None:
        """What the watch brings after a write of the master."""
        value = to_json(RunState(run_id="r", totals=[PartitionTotals(chunks=1)], listed=True))
        revision = await self.kv.put(RUN.state, value)
        record = parse_run_record(RUN.state)
        assert record is not None
        self.tracker.apply(record, Entry(RUN.state, value, revision))

    async def record(self, watermark: int, attempts: int = 0, begun_at: datetime | None = None) -> None:
        """As another agent has left it, of an older release unless it has said when it has begun."""
        part = PartitionState(
            partition=0, watermark=watermark, attempts=attempts, agent="another", begun_at=begun_at
        )
        await self.kv.put(RUN.part(0), to_json(part))

    async def recorded(self) -> PartitionState:
        return from_json(PartitionState, (await self.kv.get(RUN.part(0))).value or b"{}")

    async def publish(self, number: int, *paths: str, partition: int = 0) -> None:
        """A chunk of these files, or of one that has its number."""
        files = [File(path, 0) for path in paths or [f"f{number}"]]
        chunk = ListedChunk("r", partition, number, files)
        await self.bus.work.put(work_subject("s", "r", partition, number), pack(chunk))

    async def step(self) -> bool:
        return await self.agent._did_one()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_finished_agent_notices_that_its_record_was_restored_from_older_data(bench: Bench) -> None:
    await bench.lead(listed=True, chunks=2)
    await bench.record(2)
    await bench.publish(1)
    assert not await bench.step()
    await bench.record(1)
    assert not await bench.step()
    await bench.clock.advance(PARTITION_CHECK_INTERVAL_SECONDS)
    assert await bench.step()
    assert (bench.executed, (await bench.recorded()).watermark) == (["f1"], 2)


async def test_a_finished_agent_looks_again_when_another_master_leads(bench: Bench) -> None:
    await bench.lead(listed=True, chunks=2)
    await bench.record(2)
    await bench.publish(1)
    assert not await bench.step()
    await bench.record(1)
    await bench.lead(listed=True, chunks=2, term=2)
    assert await bench.step()
    assert bench.executed == ["f1"]


async def test_an_agent_goes_on_where_its_stand_in_is_while_the_listing_goes_on(bench: Bench) -> None:
    await bench.lead(listed=False, chunks=0)
    await bench.record(1)
    assert not await bench.step()
    await bench.record(6)
    await bench.publish(6)
    await bench.clock.advance(LOST_CHUNK_GRACE_SECONDS)
    assert not await bench.step()
    assert await bench.step()
    assert bench.executed == ["f6"]


async def test_a_chunk_counts_as_lost_only_after_the_listing_is_complete(bench: Bench) -> None:
    await bench.lead(listed=False, chunks=0)
    await bench.step()
    await bench.clock.advance(LOST_CHUNK_GRACE_SECONDS)
    await bench.step()
    await bench.lead(listed=True, chunks=1)
    await bench.step()
    assert await bench.kv.entries(RUN.part(0)) == []
    await bench.clock.advance(LOST_CHUNK_GRACE_SECONDS)
    await bench.step()
    assert (await bench.recorded()).lacking == 1


@asynccontextmanager
async def waiting_for_the_mount(bench: Bench) -> AsyncIterator[asyncio.Task[bool]]:
    """The agent has chunk 1 in its hands, and no mount, until the end of the block."""
    await bench.lead(listed=True, chunks=2)
    await bench.record(1)
    await bench.publish(1)
    bench.mounted.clear()
    step = asyncio.create_task(bench.step())
    async with asyncio.timeout(5):
        while not (await bench.recorded()).attempts:
            await asyncio.sleep(0)
    yield step
    bench.mounted.set()
    async with asyncio.timeout(5):
        await step


async def test_a_chunk_that_a_stand_in_has_done_meanwhile_is_not_executed(bench: Bench) -> None:
    async with waiting_for_the_mount(bench):
        await bench.record(2)
    assert bench.executed == []


async def test_nothing_is_executed_for_a_run_that_has_ended(bench: Bench) -> None:
    async with waiting_for_the_mount(bench):
        await bench.lead(listed=True, chunks=2, phase=RunPhase.FAILED)
    assert bench.executed == []


async def test_nothing_is_executed_for_a_run_that_has_ended_unheard(bench: Bench) -> None:
    async with waiting_for_the_mount(bench):
        await bench.kv.put(RUN.state, to_json(RunState(run_id="r", phase=RunPhase.FAILED)))
        await bench.clock.advance(BUS_CHECK_GRACE_SECONDS)
    assert bench.executed == []


async def test_a_state_that_is_only_not_known_to_be_silent_is_read(bench: Bench) -> None:
    """As after an hour without a bus: the silence is counted anew, before the watch has brought anything."""
    async with waiting_for_the_mount(bench):
        await bench.kv.put(RUN.state, to_json(RunState(run_id="r", phase=RunPhase.CANCELLED)))
        await bench.clock.advance(BUS_CHECK_GRACE_SECONDS)
        bench.tracker.heard()
    assert bench.executed == []


async def test_nothing_is_executed_for_a_run_whose_state_is_gone(bench: Bench) -> None:
    async with waiting_for_the_mount(bench):
        await bench.kv.delete(RUN.state)
        await bench.clock.advance(BUS_CHECK_GRACE_SECONDS)
    assert bench.executed == []


async def test_what_is_still_wanted_is_executed_once_mounted(bench: Bench) -> None:
    async with waiting_for_the_mount(bench):
        pass
    assert (bench.executed, (await bench.recorded()).watermark) == (["f1"], 2)


async def test_what_is_noted_of_files_is_told(bench: Bench) -> None:
    await bench.lead(listed=True, chunks=2)
    for number in (0, 1):
        await bench.publish(number)
        assert await bench.step()
    recorded = await bench.recorded()
    assert (recorded.notes, recorded.files_kept) == (["f0: did not exist", "f1: did not exist"], 2)
    assert bench.tidied == []


async def _executing(bench: Bench, *, is_led: bool = False) -> asyncio.Task[bool]:
    """The first of two files of the first chunk is done, the other waits."""
    if not is_led:
        await bench.lead(listed=True, chunks=1)
    await bench.publish(0, "f0", "f1")
    bench.blocked_after = "f0"
    step = asyncio.create_task(bench.step())
    await _until(lambda: bench.executed == ["f0"])
    return step


async def test_whoever_is_ended_in_the_middle_of_a_chunk_removes_what_it_leaves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when that takes so long that it is cancelled again: nobody may do the chunk after it."""
    monkeypatch.setattr(tasks, "_CANCEL_INTERVAL_SECONDS", 0.01)
    step = await _executing(bench)
    bench.may_tidy.clear()
    ending = asyncio.create_task(tasks.end(step))
    await _until(lambda: step.cancelling() >= 3)
    assert (bench.tidying, step.done()) == (1, False)
    bench.may_tidy.set()
    await ending
    assert bench.tidied == ["f0", "f1"]


async def test_a_file_system_that_hangs_does_not_hold_the_end_of_an_agent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "TIDY_TIMEOUT_SECONDS", 0.01)
    step = await _executing(bench)
    bench.may_tidy.clear()
    async with asyncio.timeout(5):
        await tasks.end(step)
    assert (bench.tidying, bench.tidied) == (1, [])


async def test_what_a_chunk_that_is_not_wanted_any_more_has_left_is_removed(bench: Bench) -> None:
    """Its run has failed, for example, before anybody could stand in."""
    async with waiting_for_the_mount(bench):
        await bench.lead(listed=True, chunks=2, phase=RunPhase.FAILED)
    assert (bench.executed, bench.tidied) == ([], ["f1"])


async def test_what_a_chunk_that_ends_its_agents_has_left_is_removed(bench: Bench) -> None:
    await bench.lead(listed=True, chunks=1)
    await bench.record(0, agent.MAX_ATTEMPTS)
    await bench.publish(0)
    assert await bench.step()
    assert (bench.executed, bench.tidied) == ([], ["f0"])
    assert (await bench.recorded()).files_failed == 1


@pytest.mark.parametrize("problem", [ValueError("a bug"), OSError(errno.EIO, "broken")])
async def test_a_chunk_that_ends_its_agents_is_given_up_also_when_nothing_can_be_removed(
    bench: Bench, problem: Exception
) -> None:
    bench.untidy = problem
    await bench.lead(listed=True, chunks=1)
    await bench.record(0, agent.MAX_ATTEMPTS)
    await bench.publish(0)
    assert await bench.step()
    assert (await bench.recorded()).files_failed == 1


async def test_what_this_agent_has_written_itself_is_no_attempt_of_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow bus stores a record, and answers too late: that was counted as an attempt, each time."""
    write = RunStore.write_part
    lost = list[int]()

    async def answer_late(store: RunStore, run_id: str, known: Recorded) -> int:
        revision = await write(store, run_id, known)
        lost.append(revision)
        raise Retry("BusUnavailable", after=0.001)

    monkeypatch.setattr(RunStore, "write_part", answer_late)
    await bench.lead(listed=True, chunks=1)
    await bench.publish(0)
    step = asyncio.create_task(bench.step())
    await _pass(bench, seconds=20)
    assert await step
    part = await bench.recorded()
    assert (part.watermark, part.notes, bench.executed) == (1, ["f0: did not exist"], ["f0"])
    assert len(lost) == 2


async def test_what_a_chunk_that_can_never_be_done_has_left_is_removed(bench: Bench) -> None:
    await bench.lead(listed=True, chunks=1)
    await bench.publish(0)
    bench.failure = Permanent("Refused", "no")
    assert await bench.step()
    assert ((await bench.recorded()).files_failed, bench.tidied) == (1, ["f0"])


@pytest.mark.parametrize(("watermark", "attempts"), [(0, 1), (1, 1), (1, 0)])
async def test_what_an_earlier_agent_may_have_done_is_not_noted_and_what_it_left_is_removed(
    bench: Bench, watermark: int, attempts: int
) -> None:
    """It has ended in the middle of the chunk, its first one, which it counted, or a later one."""
    await bench.lead(listed=True, chunks=2)
    await bench.record(watermark, attempts)
    await bench.publish(watermark)
    assert await bench.step()
    recorded = await bench.recorded()
    assert (recorded.notes, recorded.files_kept, bench.executed) == ([], 0, [f"f{watermark}"])
    assert recorded.files_uncompared == 1
    assert bench.tidied == [f"f{watermark}"]


async def test_of_a_chunk_that_is_done_again_counts_what_is_older_than_the_work_of_all_agents(
    bench: Bench,
) -> None:
    """The one before had another clock."""
    begun_at = bench.clock.now() - timedelta(minutes=3)
    bench.is_old = True
    await bench.lead(listed=True, chunks=1)
    await bench.record(0, 1, begun_at)
    await bench.publish(0)
    assert await bench.step()
    recorded = await bench.recorded()
    assert (recorded.files_kept, recorded.notes) == (1, [])
    assert (recorded.begun_at, bench.asked_since) == (
        begun_at,
        [begun_at - timedelta(seconds=CLOCK_STEP_GRACE_SECONDS)],
    )


async def test_an_agent_that_does_a_chunk_again_goes_by_when_it_has_begun(bench: Bench) -> None:
    began_at = bench.clock.now()
    bench.is_old = True
    recorded = await recorded_after(bench, Retry("MountLost", after=1.0))
    assert (recorded.files_kept, recorded.begun_at) == (1, began_at)
    assert bench.asked_since == [began_at - timedelta(seconds=CLOCK_STEP_GRACE_SECONDS)]


async def test_an_agent_that_stands_in_again_begins_anew(bench: Bench) -> None:
    """The one that came back meanwhile has ended in the middle of the next chunk."""
    await bench.lead(listed=True, chunks=3)
    await bench.publish(0)
    assert await bench.step()
    await bench.record(2)
    await bench.publish(2)
    assert not await bench.step()
    await bench.clock.advance(LOST_CHUNK_GRACE_SECONDS)
    assert not await bench.step()
    bench.failure = Retry("MountLost", after=5.0)
    step = asyncio.create_task(bench.step())
    await _until(lambda: bench.executed == ["f0", "f2"])
    assert (await bench.recorded()).attempts == 1
    await _pass(bench, seconds=10)
    assert await step
    assert (bench.tidied, (await bench.recorded()).notes) == (["f2"], [])


async def test_the_record_of_a_partition_that_is_stood_in_for_again_is_read_again(bench: Bench) -> None:
    part = PartitionState(partition=1, agent="digits-runtime-1")
    await bench.kv.put(RUN.part(1), to_json(part))
    for watermark, stand_ins in ((0, [1]), (0, []), (2, [1])):
        await bench.kv.put(RUN.part(1), to_json(part.model_copy(update={"watermark": watermark})))
        await bench.publish(watermark, partition=1)
        await bench.lead(listed=False, chunks=0, stand_ins=stand_ins)
        assert await bench.step() is bool(stand_ins)
    assert bench.executed == ["f0", "f2"]
    assert bench.tidied == ["f2"]


async def recorded_after(bench: Bench, failure: Retry) -> PartitionState:
    """Of a chunk whose first execution fails, and whose second is done."""
    await bench.lead(listed=True, chunks=1)
    await bench.publish(0)
    bench.failure = failure
    step = asyncio.create_task(bench.step())
    await _until(lambda: bench.executed == ["f0"])
    await _pass(bench, seconds=2)
    assert await step
    return await bench.recorded()


async def test_what_an_earlier_try_may_have_done_is_not_noted(bench: Bench) -> None:
    recorded = await recorded_after(bench, Retry("MountLost", after=1.0))
    assert (recorded.notes, recorded.files_kept, bench.executed) == ([], 0, ["f0", "f0"])
    assert recorded.files_uncompared == 1
    assert bench.tidied == ["f0"]


async def test_a_try_that_has_not_begun_is_none(bench: Bench) -> None:
    """A source that was away for a while when the chunk came up has copied nothing."""
    recorded = await recorded_after(bench, NotBegun("CopyFailed", after=1.0))
    assert (recorded.notes, recorded.files_kept, bench.executed) == (["f0: did not exist"], 1, ["f0", "f0"])
    assert bench.tidied == []


async def test_what_always_looks_as_if_its_store_were_away_fails_after_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "STORE_AWAY_TIMEOUT_SECONDS", 60.0)
    await bench.lead(listed=True, chunks=1)
    await bench.publish(0, "good", "cut short")
    bench.away = frozenset(["cut short"])
    step = asyncio.create_task(bench.step())
    await _pass(bench, seconds=50)
    assert not step.done()
    await _pass(bench, seconds=60)
    assert await step
    recorded = await bench.recorded()
    assert (recorded.watermark, recorded.files, recorded.files_failed) == (1, 1, 1)
    assert recorded.failed_examples == ["cut short: unexpected EOF"]


async def test_an_agent_that_is_cut_off_breaks_its_chunk_off(bench: Bench) -> None:
    """A stand-in may do it, and the run end: what others write after that must not be deleted."""
    step = await _executing(bench)
    bench.bus.down = True
    await _pass(bench, seconds=RUN_CONTACT_TIMEOUT_SECONDS + 5)
    bench.unblocked.set()
    await _pass(bench, seconds=5)
    assert bench.executed == ["f0"]
    bench.bus.down = False
    await bench.kv.put(RUN.state, to_json(RunState(run_id="r", phase=RunPhase.SUCCEEDED)))
    await _pass(bench, seconds=10)
    assert not await step
    assert bench.executed == ["f0"]


async def test_a_bus_that_is_slow_to_fail_holds_up_no_breaking_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def time_out(*_: object) -> None:
        await bench.clock.sleep(5)
        raise Retry(Reason.BUS_UNAVAILABLE)

    step = await _executing(bench)
    monkeypatch.setattr(RunStore, "state", time_out)
    await _pass(bench, seconds=RUN_CONTACT_TIMEOUT_SECONDS - 1)
    assert bench.broken_off == 0
    await _pass(bench, seconds=1)
    assert bench.broken_off == 1
    await tasks.end(step)


async def test_an_answer_that_is_late_tells_of_the_time_when_it_was_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_late(store: RunStore, run_id: str) -> tuple[RunState, int]:
        await bench.clock.sleep(2 * RUN_CONTACT_TIMEOUT_SECONDS)
        return RunState(run_id=run_id), 1

    step = await _executing(bench)
    monkeypatch.setattr(RunStore, "state", answer_late)
    await _pass(bench, seconds=RUN_CONTACT_TIMEOUT_SECONDS)
    assert bench.broken_off == 1
    await tasks.end(step)


async def test_a_chunk_goes_on_while_the_state_is_read(bench: Bench) -> None:
    step = await _executing(bench)
    await _pass(bench, seconds=3 * RUN_CONTACT_TIMEOUT_SECONDS)
    bench.unblocked.set()
    assert await step
    assert bench.executed == ["f0", "f1"]


async def test_a_chunk_goes_on_while_the_state_is_heard_which_is_not_read_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is long where there are many partitions."""
    await bench.hear()
    step = await _executing(bench, is_led=True)
    monkeypatch.setattr(bench.kv, "get", _refuse)
    for _ in range(int(3 * RUN_CONTACT_TIMEOUT_SECONDS / HEARTBEAT_INTERVAL_SECONDS) + 1):
        await _pass(bench, seconds=HEARTBEAT_INTERVAL_SECONDS)
        await bench.hear()
    assert bench.broken_off == 0
    bench.unblocked.set()
    assert await step
    assert bench.executed == ["f0", "f1"]


async def _refuse(key: str) -> Entry:
    raise AssertionError(f"{key} was read")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def _pass(bench: Bench, seconds: float) -> None:
    """Second by second, so that whoever sleeps looks at the clock in between."""
    for _ in range(int(seconds)):
        await bench.clock.advance(1)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_record_says_what_its_chunk_waits_for_and_not_after_that(bench: Bench) -> None:
    """Not at once: most of what is tried again is done the second time."""
    await bench.lead(listed=True, chunks=1)
    await bench.publish(0)
    bench.refusal = Retry("JuiceFsMissing", "x" * 1000, after=REFUSED_CHUNK_GRACE_SECONDS / 2)
    step = asyncio.create_task(bench.step())
    told = await _reasons_of(bench, tries=5)
    assert told == ["", "", "JuiceFsMissing", "JuiceFsMissing", "JuiceFsMissing"]
    assert len((await bench.recorded()).message) == 300
    bench.refusal = None
    await _pass(bench, seconds=REFUSED_CHUNK_GRACE_SECONDS)
    async with asyncio.timeout(5):
        assert await step
    assert ((await bench.recorded()).reason, bench.executed) == ("", ["f0"])


async def test_what_cannot_be_counted_at_the_end_does_not_keep_the_run(bench: Bench) -> None:
    async def refuse(*_: object) -> int:
        raise Retry(
            "CheckFailed", "the cache could not be examined completely", after=CACHE_COUNT_TIMEOUT_SECONDS
        )

    bench.recount = refuse
    await bench.lead(listed=True, chunks=1)
    await bench.bus.work.put(work_subject("s", "r", 0, 0), pack(ListedChunk("r", 0, 0)))
    step = asyncio.create_task(bench.step())
    await _reasons_of(bench, tries=3)
    await bench.clock.advance(CACHE_COUNT_TIMEOUT_SECONDS)
    async with asyncio.timeout(5):
        assert await step
    part = await bench.recorded()
    assert (part.watermark, part.uncounted, part.cached_bytes) == (1, True, 0)


async def _reasons_of(bench: Bench, tries: int) -> list[str]:
    """What the record says while the clock is moved on from one try to the next."""
    reasons = []
    for _ in range(tries):
        for _ in range(100):
            await asyncio.sleep(0)
        reasons.append((await bench.recorded()).reason)
        await bench.clock.advance(REFUSED_CHUNK_GRACE_SECONDS / 2)
    return reasons
