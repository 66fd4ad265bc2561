"""Two agents on the memory bus: a run is led once, counted once and ended once, whatever fails."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from cache_runtime import agent, master, publication
from cache_runtime.context import RunContext
from cache_runtime.domain import shares
from cache_runtime.domain.chunking import Limits, Splitter, split
from cache_runtime.domain.model import Batch, File, Identity, ListedChunk, TreeSize
from cache_runtime.engines.ports import Ailment
from cache_runtime.facts import Facts
from cache_runtime.metrics import NAMES, Metrics
from cache_runtime.operations.base import RunOperation
from cache_runtime.publication import pack
from cache_runtime.reconciler import RunReconciler
from cache_runtime.records import RunStore
from cache_runtime.timing import (
    HEARTBEAT_INTERVAL_SECONDS,
    MASTER_TIMEOUT_SECONDS,
    RUN_RESYNC_INTERVAL_SECONDS,
)
from paddlewheel.bus.ports import Entry
from paddlewheel.bus.streams import CACHE, CACHE_PROGRESS
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.cache_v1 import (
    FileEntry,
    NodeStatus,
    PartitionState,
    RemoveOperation,
    RunEnded,
    RunPhase,
    RunSpec,
    RunStarted,
    RunState,
    WarmupOperation,
)
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.contracts.run_keys import NodeKey, RunKey
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.tasks import finish
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

M = TypeVar("M", bound=WireModel)

FILES = [File(f"f{n}", 10) for n in range(40)]
LIMITS = Limits(files=3)
CHUNK_OF = {
    entry.path: (chunk.partition, chunk.id)
    for chunk in split(FILES, Splitter("run-1", 2, LIMITS))
    for entry in chunk.files
}
"""Partition and chunk of each file."""
RUN = RunKey("set-1", "run-1")
FINAL = (RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED)


@dataclass
class FastClock:
    """Twenty seconds in one. While a busy machine stalls the whole test, hardly any time passes: nobody is
    silent who could not say anything."""

    speed: float = 20.0
    step: float = 0.02
    """Of real time: what passes at most between two looks at the clock."""
    _time: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        looked = time.monotonic()
        self._time += min(looked - self._looked, self.step) * self.speed
        self._looked = looked
        return self._time

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            await asyncio.sleep(min(left / self.speed, self.step / 2))
        if seconds <= 0:
            await asyncio.sleep(0)


@dataclass
class FakeOperation(RunOperation):
    """Lists `FILES`, raising `list_error` the first `list_errors` times; executes while `gate` is open."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    done: list[tuple[int, int]] = field(default_factory=list)
    began: list[tuple[int, int]] = field(default_factory=list)
    bad: str = ""
    error: Exception | None = None
    list_error: Exception | None = None
    list_errors: int = 99
    listings: int = 0
    listing_now: int = 0
    """Listings that wait for the gate."""
    list_gate: asyncio.Event | None = None
    """What the first listing waits for."""
    list_seconds: float = 0.0
    """Of real time, for each listing."""
    lists_mount = True
    bound_to_node: bool = False
    finish_gate: asyncio.Event | None = None
    finish_error: Exception | None = None
    finishes: int = 0
    given_up: int = 0
    """Ends of runs that were broken off."""
    end_gate: asyncio.Event | None = None
    """What chunks that are broken off wait for."""
    ending: int = 0
    """Chunks that wait for it."""
    began_beside: int = 0
    """Chunks that began while others waited for it."""
    fills_cache = True

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        self.listings += 1
        if self.list_gate and self.listings == 1:
            self.listing_now += 1
            try:
                await self.list_gate.wait()
            finally:
                self.listing_now -= 1
        await asyncio.sleep(self.list_seconds)
        for start in range(0, len(FILES), 10):
            yield Batch(FILES[start : start + 10])
            if self.list_error and self.listings <= self.list_errors:
                raise self.list_error

    async def recount(self, spec: RunSpec, partition: int, warmed: int) -> int:
        return warmed

    async def finish(self, spec: RunSpec, done: TreeSize) -> None:
        self.finishes += 1
        if self.finish_error:
            raise self.finish_error
        if self.finish_gate:
            try:
                await self.finish_gate.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> FakeTask:
        return FakeTask(self, {entry.path: "broken" for entry in files if entry.path == self.bad})


@dataclass
class FakeTask:
    """Records the executions of one chunk."""

    operation: FakeOperation
    rejected: Mapping[str, str]
    notes: ClassVar[Mapping[str, str]] = {}
    kept = uncompared = 0
    away: ClassVar[Collection[str]] = ()

    def kept_since(self, at: datetime) -> int:
        return 0

    async def execute(self, files: Sequence[FileEntry]) -> None:
        chunk = CHUNK_OF[files[0].path]
        self.operation.began.append(chunk)
        self.operation.began_beside += self.operation.ending > 0
        try:
            await self.operation.gate.wait()
        except asyncio.CancelledError:
            if self.operation.end_gate:
                self.operation.ending += 1
                try:
                    await finish(self.operation.end_gate.wait())
                finally:
                    # A chunk may be cancelled a second time while it ends.
                    self.operation.ending -= 1
            raise
        if self.operation.error:
            raise self.operation.error
        self.operation.done.append(chunk)

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        return {}


@dataclass
class FakeMount:
    """Where work goes on, whatever is said about the mount."""

    is_mounted: bool = True
    path = Path("/mnt")
    message = "no database"
    ailment: Ailment | None = None
    changed_at: datetime | None = None
    changes = 0
    is_ending = False
    is_silent = False

    def leave(self) -> None:
        return None

    async def wait_mounted(self) -> None:
        return None

    async def wait_changed(self, changes: int) -> None:
        await asyncio.Event().wait()

    async def wait_silent(self, *, is_silent: bool) -> None:
        await asyncio.Event().wait()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()


@dataclass
class Harness:
    """Agents on a memory bus, with an operation that the test controls."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    operation: FakeOperation = field(default_factory=FakeOperation)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    clock: FastClock = field(default_factory=FastClock)
    runs_ended: asyncio.Event = field(default_factory=asyncio.Event)
    mounts: dict[int, FakeMount] = field(default_factory=dict)
    """By partition."""
    operations: dict[int, FakeOperation] = field(default_factory=dict)
    """Of partitions that have one of their own."""
    tick: float = 0.02
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        self.metrics = Metrics(MeterProvider(metric_readers=[self.reader]).get_meter("test"))
        self.kv = self.bus.key_value("pw_cache_runs")

    def reconciler(self, partition: int) -> RunReconciler:
        pod = f"digits-runtime-{partition}"
        identity = Identity("default", "digits", "set-1", pod, partition, f"n{partition}")
        context = RunContext(
            identity=identity,
            store=RunStore(self.kv, "set-1"),
            work=self.bus.work,
            nodes=self.bus.key_value("pw_cache_nodes"),
            facts=Facts(self.bus, identity, self.clock),
            clock=self.clock,
            metrics=self.metrics,
            mount=self.mounts.setdefault(partition, FakeMount()),
            operations=dict.fromkeys(("warmup", "remove"), self.operations.get(partition, self.operation)),
            limits=self.limits,
            tick=self.tick,
        )
        return RunReconciler(self.kv, context, self.runs_ended.set)

    @asynccontextmanager
    async def agents(self, *partitions: int) -> AsyncIterator[None]:
        work = [self.reconciler(p).run() for p in partitions] + [self.report(p) for p in partitions]
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def report(self, partition: int, *, mounted: bool = True) -> None:
        """As the agent of the partition does, every ten seconds."""
        while True:
            status = NodeStatus(
                partition=partition, node=f"n{partition}", mounted=mounted, updated_at=self.clock.now()
            )
            with suppress(Retry):
                key = str(NodeKey("set-1", partition))
                await self.bus.key_value("pw_cache_nodes").put(key, to_json(status))
            await self.clock.sleep(10)

    async def ask(self, run_id: str = "run-1", operation: str = "warmup") -> None:
        spec = RunSpec(
            run_id=run_id, set_namespace="default", set_name="digits", set_uid="set-1", partitions=2,
            warmup=WarmupOperation() if operation == "warmup" else None,
            remove=RemoveOperation() if operation == "remove" else None,
        )  # fmt: skip
        await self.kv.put(RunKey("set-1", run_id).spec, to_json(spec))

    async def read(self, model: type[M], key: str) -> M:
        """The record, or an empty one."""
        try:
            return from_json(model, (await self.kv.get(key)).value or b"{}")
        except (NotFound, Retry):
            return model()

    async def ended(self, run_id: str = "run-1", within: float = 90.0) -> RunState:
        async def final() -> RunState | None:
            state = await self.read(RunState, RunKey("set-1", run_id).state)
            return state if state.phase in FINAL else None

        found = await eventually(final, within=within, what="the run's end")
        assert found is not None
        return found

    def facts(self, kind: type) -> list[Any]:
        events = [event for spec in (CACHE, CACHE_PROGRESS) for event in self.bus.events(spec.name)]
        return [event.data for event in events if isinstance(event.data, kind)]


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.operation.gate.set()
    return harness


async def check_exact(harness: Harness) -> None:
    state = await harness.ended()
    assert (state.phase, state.reason) == (RunPhase.SUCCEEDED, "")
    assert (state.files_done, state.bytes_done, state.cached_percent) == (40, 400, 100.0)
    assert (state.files_total, state.bytes_total, state.listed) == (40, 400, True)
    assert state.chunks_done == state.chunks_total
    parts = [await harness.read(PartitionState, RUN.part(p)) for p in (0, 1)]
    assert [part.bytes for part in parts] == [200, 200]
    assert [(part.watermark, part.chunks) for part in parts] == [(8, []), (8, [])]


async def test_a_run_is_led_and_executed_by_two_agents(harness: Harness) -> None:
    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)

        assert sorted(harness.operation.done) == [(p, i) for p in (0, 1) for i in range(7)]
        assert [fact.operation for fact in harness.facts(RunStarted)] == ["warmup"]
        ended = await eventually(lambda: harness.facts(RunEnded), what="the end is told")
        assert [(f.phase, f.files, f.cached_percent) for f in ended] == [(RunPhase.SUCCEEDED, 40, 100.0)]
        assert max(fact.files_done for fact in harness.facts(RunProgressed)) <= 40
        await eventually(lambda: harness.bus.stored("PW_WORK") == [])


async def test_agents_hear_at_once_of_what_they_wait_for(harness: Harness) -> None:
    harness.tick, harness.clock = 3600.0, FastClock(speed=1.0)
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: is_listed(harness), what="agents know how many chunks there are")
        harness.operation.gate.set()
        await check_exact(harness)
    assert (await harness.read(RunState, RUN.state)).term == 1


async def is_listed(harness: Harness) -> bool:
    return (await harness.read(RunState, RUN.state)).listed


async def test_a_file_system_that_fails_is_no_bug_of_whoever_asks_it(harness: Harness) -> None:
    """While it is listed, while chunks are done, and at the end: as often as it fails."""
    failure = OSError(errno.EIO, os.strerror(errno.EIO), "d/a")
    harness.operation.list_error, harness.operation.list_errors = failure, 7
    harness.operation.error = harness.operation.finish_error = failure
    async with harness.agents(0, 1):
        await harness.ask()
        told = await eventually(lambda: reason_of(harness, "FileSystemFailed"), what="why chunks wait")
        assert "'d/a': Input/output error (EIO); tried again" in told.message
        harness.operation.error = None
        await eventually(lambda: harness.operation.finishes > 7, what="the end is tried again and again")
        harness.operation.finish_error = None
        await check_exact(harness)
    assert (await harness.read(RunState, RUN.state)).crashes == 0


async def reason_of(harness: Harness, reason: str) -> RunState | None:
    state = await harness.read(RunState, RUN.state)
    return state if state.reason == reason else None


async def test_an_agent_signals_the_end_of_a_run_it_worked_on(harness: Harness) -> None:
    await harness.ask()
    async with harness.agents(0, 1):
        await harness.ended()
        async with asyncio.timeout(5):
            await harness.runs_ended.wait()
    assert harness.runs_ended.is_set()


async def test_an_agent_that_dies_repeats_only_what_is_not_recorded(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0):
        async with harness.agents(1):
            await harness.ask()
            await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        harness.operation.gate.set()
        await eventually(lambda: len(harness.operation.done) == 7, what="the other partition is done")
        async with harness.agents(1):
            await check_exact(harness)
    assert sorted(harness.operation.done) == [(p, i) for p in (0, 1) for i in range(7)]


async def test_a_run_keeps_the_chunks_that_it_was_cut_into(harness: Harness) -> None:
    """The next master is of a release, or has settings, that make larger ones."""
    harness.operation.gate.clear()
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: is_listed(harness), what="it is listed")
    harness.limits = Limits(files=5, share=32)
    harness.operation.gate.set()
    async with harness.agents(0, 1):
        await check_exact(harness)


async def test_another_agent_takes_over_after_silence(harness: Harness) -> None:
    stale = RunState(run_id="run-1", master="digits-runtime-9", term=4, phase=RunPhase.RUNNING)
    await harness.kv.put(RUN.state, to_json(stale))
    await harness.ask()
    async with harness.agents(0, 1):
        await check_exact(harness)
    assert (await harness.read(RunState, RUN.state)).term == 5


async def test_a_master_that_dies_while_it_deletes_is_followed_by_one_that_judges_nothing(
    harness: Harness,
) -> None:
    """The first has deleted what it had copied, so a second listing would find an empty source."""
    harness.operation.finish_gate = asyncio.Event()
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: harness.operation.finishes == 1, what="the first master deletes")
        assert harness.facts(RunEnded) == []
        harness.operation.list_error, harness.operation.listings = Permanent("SourceEmpty", "no object"), 0
    harness.operation.finish_gate.set()
    async with harness.agents(1):
        await check_exact(harness)
        [ended] = await eventually(lambda: harness.facts(RunEnded), what="the end is told")
    assert (harness.operation.listings, harness.operation.finishes) == (0, 2)
    assert (ended.phase, ended.files, ended.cached_percent) == (RunPhase.SUCCEEDED, 40, 100.0)


async def test_a_master_without_a_bus_deletes_nothing_more(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may lead meanwhile, and say that the run has ended."""
    harness.operation.finish_gate = asyncio.Event()

    async def away(*_: object) -> int:
        raise Retry("BusUnavailable")

    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: harness.operation.finishes == 1, what="the master deletes")
        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "update_state", away)
            await eventually(lambda: harness.operation.given_up == 1, what="it stops")
        harness.operation.finish_gate.set()
        await check_exact(harness)
    assert harness.operation.finishes == 2


async def test_a_master_without_a_bus_deletes_nothing_more_however_late_it_hears_of_that(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a write waits for its answer, too."""
    harness.operation.finish_gate, answered = asyncio.Event(), asyncio.Event()

    async def wait(*_: object) -> int:
        await answered.wait()
        raise Retry("BusUnavailable")

    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: harness.operation.finishes == 1, what="the master deletes")
        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "update_state", wait)
            await eventually(lambda: harness.operation.given_up == 1, what="it stops")
        harness.operation.finish_gate.set()
        answered.set()
        await check_exact(harness)
    assert harness.operation.finishes == 2


async def test_a_claim_that_is_refused_is_repeated_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every agent, while the bucket is full, for example."""
    clock, claims = ManualClock(), list[float]()

    async def refuse(*_: object) -> int:
        claims.append(clock.monotonic())
        raise Retry("BusUnavailable", "the bucket is full")

    harness = Harness(clock=cast(FastClock, clock))
    monkeypatch.setattr(RunStore, "create_state", refuse)
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: bool(claims), what="it claims the role")
        for _ in range(1000):
            await asyncio.sleep(0)
        assert claims == [0]
        await clock.advance(RUN_RESYNC_INTERVAL_SECONDS)
        await eventually(lambda: len(claims) == 2, what="it claims it again")


async def test_a_run_that_is_cancelled_while_nobody_leads_it_keeps_its_figures(harness: Harness) -> None:
    state = RunState(
        run_id="run-1", phase=RunPhase.RUNNING, master="gone", files_done=5, files_total=9, term=1
    )
    await harness.kv.put(RUN.state, to_json(state))
    await harness.kv.put(RUN.cancel, b"{}")
    async with harness.agents(0):
        await harness.ask()
        ended = await harness.ended()
    assert (ended.phase, ended.files_done, ended.files_total) == (RunPhase.CANCELLED, 5, 9)


async def test_what_the_end_of_a_run_waits_for_is_said(harness: Harness) -> None:
    harness.operation.finish_error = Retry("CopyTimeout", "it took more than 9 s")
    async with harness.agents(0, 1):
        await harness.ask()

        told = await eventually(lambda: said(harness, "CopyTimeout"), what="the state says so")
        harness.operation.finish_error = None
        await check_exact(harness)
    assert told == "it took more than 9 s; tried again"


async def test_the_end_is_told_after_it_is_stored_and_by_another_if_need_be(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, is_deaf = harness.bus.publish, True
    stored = list[tuple[RunPhase, bool]]()

    async def publish_ends_later(event: Event) -> None:
        if isinstance(event.data, RunEnded):
            state = await harness.read(RunState, RUN.state)
            stored.append((state.phase, state.closing))
            if is_deaf:
                raise Retry("Deaf")
        await publish(event)

    monkeypatch.setattr(harness.bus, "publish", publish_ends_later)
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: stored, what="the end is being told")
    is_deaf = False
    async with harness.agents(1):
        await check_exact(harness)
        await eventually(lambda: closed(harness), what="another has told it")
    assert set(stored) == {(RunPhase.SUCCEEDED, True)}
    assert [fact.phase for fact in harness.facts(RunEnded)] == [RunPhase.SUCCEEDED]
    assert (harness.bus.stored("PW_WORK"), len(harness.facts(RunStarted))) == ([], 1)


async def test_an_end_that_nobody_can_be_told_is_finished_all_the_same(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a bus without the stream of facts. Meanwhile one agent tries, not each in turn."""
    monkeypatch.setattr(master, "RUN_CLOSE_TIMEOUT_SECONDS", 3 * MASTER_TIMEOUT_SECONDS)
    async with deaf_to(harness, monkeypatch, RunEnded), harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended()
        assert state.closing
        await eventually(lambda: closed(harness), what="nobody is busy with it any more")
    assert (await harness.read(RunState, RUN.state)).term == state.term == 1


@asynccontextmanager
async def deaf_to(harness: Harness, monkeypatch: pytest.MonkeyPatch, kind: type) -> AsyncIterator[None]:
    """A bus that refuses one kind of fact."""
    publish = harness.bus.publish

    async def refuse(event: Event) -> None:
        if isinstance(event.data, kind):
            raise Retry("NoStream", "no stream PW_CACHE")
        await publish(event)

    with monkeypatch.context() as patched:
        patched.setattr(harness.bus, "publish", refuse)
        yield


async def test_a_run_whose_start_cannot_be_announced_goes_on_and_says_so(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the start is announced before the end."""
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        async with deaf_to(harness, monkeypatch, RunStarted):
            await harness.ask()
            told = await eventually(lambda: said(harness, "NoStream"), what="the state says so")
            harness.operation.gate.set()
            await check_exact(harness)
        await eventually(lambda: harness.facts(RunEnded), what="the end is told")
    assert told == "the start is not announced: no stream PW_CACHE; tried again"
    kinds = [type(fact) for fact in harness.facts(object) if isinstance(fact, (RunStarted, RunEnded))]
    assert kinds == [RunStarted, RunEnded]


async def test_a_run_whose_start_cannot_be_announced_can_be_cancelled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.operation.gate.clear()
    async with deaf_to(harness, monkeypatch, RunStarted), harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: said(harness, "NoStream"), what="the state says so")
        await harness.kv.put(RUN.cancel, b"{}")
        assert (await harness.ended()).phase is RunPhase.CANCELLED


async def test_chunks_are_removed_though_nobody_can_be_told_of_the_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that may be tried as long as the other was, by its own clock."""
    monkeypatch.setattr(master, "RUN_CLOSE_TIMEOUT_SECONDS", 2 * MASTER_TIMEOUT_SECONDS)
    asked, is_removed = list[float](), asyncio.Event()

    async def refuse_at_first(subject: str) -> None:
        asked.append(harness.clock.monotonic())
        if asked[-1] - asked[0] < MASTER_TIMEOUT_SECONDS:
            raise Retry("BusBusy")
        is_removed.set()

    monkeypatch.setattr(harness.bus.work, "purge", refuse_at_first)
    async with deaf_to(harness, monkeypatch, RunEnded), harness.agents(0):
        await harness.ask()
        await harness.ended()
        await eventually(lambda: closed(harness), what="the run is finished")
    assert (is_removed.is_set(), harness.facts(RunEnded)) == (True, [])


async def test_chunks_that_the_bus_refuses_to_remove_do_not_hold_a_run(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: str) -> None:
        raise Permanent("Forbidden", "no right to purge")

    monkeypatch.setattr(harness.bus.work, "purge", refuse)
    async with harness.agents(0):
        await harness.ask()
        await check_exact(harness)
        await eventually(lambda: closed(harness), what="the run is finished")
    assert len(harness.facts(RunEnded)) == 1


async def test_whoever_cannot_do_what_the_end_requires_leaves_it_to_another(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node may not reach the store, or its disk may be full."""
    monkeypatch.setattr(master, "RUN_END_TIMEOUT_SECONDS", 5.0)
    unable = replace(harness.operation, finish_error=Retry("CellFailed", "no room"))
    harness.operations[0] = unable
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: said(harness, "CellFailed"), what="the first has done all but the end")
        assert harness.operation.finishes == 0
        async with harness.agents(1):
            await check_exact(harness)
    state = await harness.read(RunState, RUN.state)
    assert (state.master, harness.operation.finishes) == ("digits-runtime-1", 1)


async def test_a_master_keeps_the_role_while_a_try_of_the_end_goes_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed for long, and now it goes well: another would break it off in the middle."""
    monkeypatch.setattr(master, "RUN_END_TIMEOUT_SECONDS", 5.0)
    operation = harness.operation
    operation.finish_error = Retry("CellFailed", "no room")
    async with harness.agents(0):
        await harness.ask()
        began = await eventually(lambda: said_at(harness, "CellFailed"), what="the end is refused")
        await eventually(lambda: harness.clock.monotonic() - began > 6.0, what="for long")
        operation.finish_gate, operation.finish_error, tries = asyncio.Event(), None, operation.finishes
        await eventually(lambda: operation.finishes > tries, what="a try goes well")
        async with harness.agents(1):
            await eventually(lambda: is_heard(harness, 1), what="there is another")
            first = await harness.read(RunState, RUN.state)

            async def has_led_on() -> bool:
                state = await harness.read(RunState, RUN.state)
                return state.term > first.term or later(state, first, HEARTBEAT_INTERVAL_SECONDS * 3)

            await eventually(has_led_on, what="some heartbeats")
            assert (operation.given_up, operation.finishes) == (0, tries + 1)
            operation.finish_gate.set()
            await check_exact(harness)
    assert (await harness.read(RunState, RUN.state)).term == first.term == 1


async def said_at(harness: Harness, reason: str) -> float:
    return harness.clock.monotonic() if await said(harness, reason) else 0.0


async def is_heard(harness: Harness, partition: int) -> bool:
    key = str(NodeKey("set-1", partition))
    return bool(await harness.bus.key_value("pw_cache_nodes").entries(key))


def later(state: RunState, first: RunState, seconds: float) -> bool:
    """By the wall clock, which is not faster than it is."""
    assert state.heartbeat
    assert first.heartbeat
    return (state.heartbeat - first.heartbeat).total_seconds() > seconds / FastClock.speed


async def test_nothing_is_left_running_when_the_role_is_given_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next master begins at once."""
    harness.operation.list_gate = asyncio.Event()
    update, listing_then = RunStore.update_state, list[int]()

    async def note_whether_it_lists(store: RunStore, state: RunState, revision: int) -> int:
        if not state.master:
            listing_then.append(harness.operation.listing_now)
        return await update(store, state, revision)

    monkeypatch.setattr(RunStore, "update_state", note_whether_it_lists)
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: harness.operation.listings == 1, what="the first master lists")
        harness.mounts[0].is_mounted = False
        async with harness.agents(1):
            await check_exact(harness)
    assert listing_then == [0]


async def closed(harness: Harness) -> bool:
    return not (await harness.read(RunState, RUN.state)).closing


async def test_a_chunk_published_twice_counts_once(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == 2, what="work began")
        again = pack(ListedChunk("run-1", 0, 0, FILES[0:6:2]))
        harness.operation.gate.set()
        await eventually(lambda: (0, 0) in harness.operation.done)
        await harness.bus.work.put(work_subject("set-1", "run-1", 0, 0), again)
        await check_exact(harness)
    assert harness.operation.done.count((0, 0)) == 1


@pytest.mark.parametrize("data", [b"nonsense", pack(ListedChunk("run-1", 1, 3)), None])
async def test_work_that_is_lost_or_unreadable_is_published_again(
    harness: Harness, data: bytes | None
) -> None:
    """With the records kept: after the bus was restored from older data, for example."""
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: listed(harness), what="all is published")
        harness.bus.lose_facts("PW_WORK")
        if data:
            await harness.bus.work.put(work_subject("set-1", "run-1", 0, 1), data)
        harness.operation.gate.set()
        await check_exact(harness)
    assert sorted(harness.operation.done) == [(p, i) for p in (0, 1) for i in range(7)]
    # Each partition may tell what it misses after the work of the other was published again.
    assert harness.operation.listings in (2, 3)


async def listed(harness: Harness) -> bool:
    state = await harness.read(RunState, RUN.state)
    return state.listed and len(harness.operation.began) == 2


async def test_work_that_nobody_can_read_ends_the_run(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(subject: str) -> bytes | None:
        return b"nonsense"

    monkeypatch.setattr(harness.bus.work, "get", unreadable)
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended(within=30)
    assert (state.phase, state.reason) == (RunPhase.FAILED, "WorkLost")
    assert 4 <= harness.operation.listings <= 7  # the partitions may tell their losses one after the other
    assert "was published 4 times" in state.message


async def test_records_of_partitions_that_are_lost_are_made_anew(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: listed(harness), what="all is published")
        for partition in (0, 1):
            await harness.kv.delete(RUN.part(partition))
        harness.operation.gate.set()
        await check_exact(harness)


async def test_a_chunk_that_ends_every_agent_fails_alone(harness: Harness) -> None:
    part = PartitionState(partition=0, watermark=2, attempts=agent.MAX_ATTEMPTS, files=6, bytes=60)
    await harness.kv.put(RUN.part(0), to_json(part))
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended()
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 37)
    assert "failed after 10 attempts" in state.message
    assert (0, 2) not in harness.operation.done


async def test_a_partition_that_is_lost_is_done_by_another(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0):
        async with harness.agents(1):
            await harness.ask()
            await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        harness.operation.gate.set()
        told = set[str]()

        async def listen() -> None:
            async for entry in harness.kv.watch(RUN.state):
                state = from_json(RunState, entry.value or b"{}") if entry else RunState()
                if state.phase is RunPhase.RUNNING and state.reason:
                    told.add(f"{state.reason}: {state.message}")

        listening = asyncio.create_task(listen())
        await check_exact(harness)
        listening.cancel()
    assert sorted(harness.operation.done) == [(p, i) for p in (0, 1) for i in range(7)]
    [said] = told
    assert said.startswith("PartitionAway: partition 1: its agent has not reported since ")
    assert said.endswith(" UTC; its work is done by partition 0")


async def test_a_partition_that_was_never_there_is_done_by_another_at_once(harness: Harness) -> None:
    """Pods 0 and 2 of three are ready: the work is that of two partitions."""
    async with harness.agents(0, 2):
        await harness.ask()
        await check_exact(harness)
    assert sorted(harness.operation.done) == [(p, i) for p in (0, 1) for i in range(7)]
    assert (await harness.read(PartitionState, RUN.part(1))).agent == "digits-runtime-2"


async def test_a_partition_that_is_not_mounted_is_done_by_another(harness: Harness) -> None:
    broken = asyncio.create_task(harness.report(1, mounted=False))
    async with harness.agents(0):
        await harness.ask()
        await check_exact(harness)
    broken.cancel()


@pytest.mark.parametrize(
    ("before", "named"), [((0, 1), "partition 1 (node n1): no agent"), ((0,), "partition 1: no agent")]
)
async def test_what_only_a_partition_that_is_gone_could_do_ends_the_run(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, before: tuple[int, ...], named: str
) -> None:
    monkeypatch.setattr(shares, "AGENT_GONE_TIMEOUT_SECONDS", 40.0)
    harness.operation.bound_to_node = True
    harness.operation.gate.clear()
    async with harness.agents(*before):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == len(before), what="all are at work")
    harness.operation.gate.set()
    async with harness.agents(0):
        state = await harness.ended(within=30)
    assert (state.phase, state.reason) == (RunPhase.FAILED, "PartitionGone")
    assert state.message.startswith(named)
    assert sorted(set(harness.operation.done)) == [(0, chunk) for chunk in range(7)]


async def test_an_agent_without_a_mount_leaves_the_role_to_one_that_has_it(harness: Harness) -> None:
    harness.mounts[0] = FakeMount(is_mounted=False)
    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)
    state = await harness.read(RunState, RUN.state)
    assert (state.master, state.term) == ("digits-runtime-1", 1)


async def test_an_agent_without_a_mount_leads_when_there_is_no_other(harness: Harness) -> None:
    harness.mounts[0] = FakeMount(is_mounted=False)
    async with harness.agents(0):
        await harness.ask()
        await check_exact(harness)


async def test_a_master_that_cannot_list_without_its_mount_gives_the_role_up(harness: Harness) -> None:
    harness.operation.list_gate = asyncio.Event()
    async with harness.agents(0):
        await harness.ask()
        await eventually(lambda: harness.operation.listings == 1, what="the first master lists")
        harness.mounts[0].is_mounted = False
        told = await eventually(lambda: said(harness, "MountLost"), what="the state says why")
        async with harness.agents(1):
            await check_exact(harness)
    assert told.startswith("partition 0, which lists the files, is not mounted: no database")
    state = await harness.read(RunState, RUN.state)
    assert (state.master, state.term, harness.operation.listings) == ("digits-runtime-1", 2, 2)


async def test_a_partition_that_comes_back_doubles_nothing(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 2):
        await harness.ask()
        await eventually(lambda: (1, 0) in harness.operation.began, what="another stands in")
        async with harness.agents(1):
            await eventually(lambda: harness.operation.began.count((1, 0)) == 2, what="both at one chunk")
            harness.operation.gate.set()
            await check_exact(harness)
    assert set(harness.operation.done) == {(p, i) for p in (0, 1) for i in range(7)}


async def test_an_outage_of_the_bus_loses_nothing(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        harness.bus.down = True
        harness.operation.gate.set()
        await eventually(lambda: len(harness.operation.done) == 2, what="chunks finish without the bus")
        harness.bus.down = False
        await check_exact(harness)


async def test_files_that_fail_are_named_and_fail_the_run(harness: Harness) -> None:
    harness.operation.bad = "f7"
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended()
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 39)
    assert state.message == "1 files could not be done: f7: broken"


async def test_a_permanent_error_of_a_chunk_fails_the_run(harness: Harness) -> None:
    harness.operation.error = Permanent("InvalidPath", "not ours")
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended()
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 0)
    assert "f0: not ours" in state.message


async def said(harness: Harness, reason: str) -> str:
    """What the run waits for by its own word."""
    state = await harness.read(RunState, RUN.state)
    return state.message if state.reason == reason else ""


async def test_what_a_chunk_waits_for_is_said_until_it_is_done(harness: Harness) -> None:
    harness.operation.error = Retry("JuiceFsMissing", "juicefs: No such file")
    async with harness.agents(0, 1):
        await harness.ask()
        told = await eventually(lambda: said(harness, "JuiceFsMissing"), what="the state says why")
        harness.operation.error = None
        await check_exact(harness)
    assert told.startswith("partition ")
    assert told.endswith(": juicefs: No such file; tried again")


async def test_a_bus_that_is_full_is_said_until_there_is_room(harness: Harness) -> None:
    harness.bus.limit("PW_WORK", 10)
    async with harness.agents(0, 1):
        await harness.ask()
        told = await eventually(lambda: said(harness, "PublishingRetried"), what="the state says why")
        harness.bus.limit("PW_WORK", 1 << 20)
        await check_exact(harness)
    assert told.startswith("BusFull: pw.work.cache.set-1.run-1.")


async def test_a_listing_that_fails_temporarily_is_repeated_with_the_same_chunks(harness: Harness) -> None:
    harness.operation.list_error, harness.operation.list_errors = Retry("ListingFailed", "away"), 6
    async with harness.agents(0, 1):
        await harness.ask()

        async def reason() -> tuple[str, str] | None:
            state = await harness.read(RunState, RUN.state)
            return (state.reason, state.message) if state.reason else None

        assert await eventually(reason) == ("ListingRetried", "away; the listing is tried again")
        await check_exact(harness)
    assert harness.operation.listings == 7


@pytest.mark.parametrize("error", [Permanent("PathNotFound", "no x"), Retry("PathNotFound", "no x")])
async def test_a_listing_that_keeps_failing_fails_the_run(
    harness: Harness, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "LISTING_RETRY_TIMEOUT_SECONDS", 5.0)
    harness.operation.list_error = error
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended()
        await eventually(lambda: harness.bus.stored("PW_WORK") == [], what="its chunks are purged")
    assert (state.phase, state.reason, state.message) == (RunPhase.FAILED, "PathNotFound", "no x")


async def test_a_listing_that_takes_long_may_fail_as_often_as_one_that_does_not(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "LISTING_RETRY_TIMEOUT_SECONDS", 5.0)
    harness.operation.list_seconds = 0.5
    harness.operation.list_error, harness.operation.list_errors = Retry("ListingFailed", "503"), 2
    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)


async def test_an_unexpected_error_in_the_listing_fails_the_run_after_some_masters(harness: Harness) -> None:
    harness.operation.list_error = TypeError("key=secret")
    async with harness.agents(0, 1):
        await harness.ask()
        state = await harness.ended(within=30)
    assert (state.phase, state.reason, state.crashes) == (RunPhase.FAILED, "InternalError", 5)
    assert state.message.startswith("TypeError in the master of the run, digits-runtime-")
    assert "secret" not in state.message
    assert harness.operation.listings == 5


async def test_a_run_goes_on_after_an_unexpected_error(harness: Harness) -> None:
    harness.operation.list_error, harness.operation.list_errors = TypeError(), 3
    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)


async def test_an_outage_of_the_bus_is_no_silence_of_the_master(harness: Harness) -> None:
    """Longer than `MASTER_TIMEOUT_SECONDS`: who leads goes on to lead, and nothing is listed again."""
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        first = await harness.read(RunState, RUN.state)
        harness.bus.down = True
        await harness.clock.sleep(2 * MASTER_TIMEOUT_SECONDS)
        harness.bus.down = False
        harness.operation.gate.set()
        await check_exact(harness)
    last = await harness.read(RunState, RUN.state)
    assert (last.master, last.term, harness.operation.listings) == (first.master, 1, 1)


async def test_the_end_of_a_run_holds_up_no_other_run(harness: Harness) -> None:
    """A chunk that is broken off ends slowly where a file system hangs."""
    harness.operation.gate.clear()
    harness.operation.end_gate = asyncio.Event()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        await harness.kv.put(RUN.cancel, b"{}")
        await eventually(lambda: harness.operation.ending == 2, what="both are told")
        harness.operation.gate.set()
        try:
            await harness.ask("run-2")
            assert (await harness.ended("run-2")).phase is RunPhase.SUCCEEDED
            assert harness.operation.ending == 2
            assert (await harness.ended()).phase is RunPhase.CANCELLED
            for key in (RUN.spec, RUN.state):
                await harness.kv.delete(key)
        finally:
            harness.operation.end_gate.set()
        await eventually(lambda: harness.operation.ending == 0)
        await harness.ask()
        assert (await harness.ended()).phase is RunPhase.SUCCEEDED, "it is a run like any other afterwards"


async def test_no_run_begins_beside_the_last_chunk_of_one_that_changes_files(harness: Harness) -> None:
    """What it removes late could be what the next run has just copied."""
    harness.operation.gate.clear()
    harness.operation.end_gate = asyncio.Event()
    async with harness.agents(0):
        await harness.ask(operation="remove")
        await eventually(lambda: harness.operation.began, what="it is at work")
        await harness.kv.put(RUN.cancel, b"{}")
        await eventually(lambda: harness.operation.ending, what="it is told")
        harness.operation.gate.set()
        await harness.ask("run-2")

        async def is_listed() -> bool:
            return (await harness.read(RunState, RunKey("set-1", "run-2").state)).listed

        await eventually(is_listed, what="the next run has its chunks")
        assert (await harness.ended()).phase is RunPhase.CANCELLED
        harness.operation.end_gate.set()
        assert (await harness.ended("run-2")).phase is RunPhase.SUCCEEDED
        assert harness.operation.began_beside == 0


async def test_no_run_begins_beside_one_that_changes_files_whose_end_is_heard_late(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    """Specs and states are watched one by one."""
    harness.operation.gate.clear()
    harness.operation.end_gate = asyncio.Event()
    heard, watch = asyncio.Event(), harness.kv.watch

    async def late(pattern: str) -> AsyncGenerator[Entry | None, None]:
        async with aclosing(watch(pattern)) as entries:
            async for entry in entries:
                if entry and entry.key == RUN.state and b"FAILED" in (entry.value or b""):
                    await heard.wait()
                yield entry

    monkeypatch.setattr(harness.kv, "watch", late)
    async with harness.agents(0):
        await harness.ask(operation="remove")
        await eventually(lambda: harness.operation.began, what="it is at work")
        state = await harness.read(RunState, RUN.state)
        over = state.model_copy(update={"phase": RunPhase.FAILED, "master": "digits-runtime-1", "term": 9})
        await harness.kv.put(RUN.state, to_json(over))
        await harness.ask("run-2")

        async def is_listed() -> bool:
            return (await harness.read(RunState, RunKey("set-1", "run-2").state)).listed

        try:
            await eventually(is_listed, what="the next run has its chunks")
            heard.set()
            await eventually(lambda: harness.operation.ending, what="the former one is broken off")
            assert len(harness.operation.began) == 1
        finally:
            harness.operation.gate.set()
            harness.operation.end_gate.set()
        assert (await harness.ended("run-2")).phase is RunPhase.SUCCEEDED


async def test_cancelling_stops_only_that_run(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await harness.ask("run-2")
        await eventually(lambda: len(harness.operation.began) == 4, what="both runs at work")
        await harness.kv.put(RUN.cancel, b"{}")
        cancelled = await harness.ended()
        harness.operation.gate.set()
        other = await harness.ended("run-2")
        await eventually(lambda: len(harness.facts(RunEnded)) == 2, what="both ends are told")
    assert (cancelled.phase, cancelled.files_done) == (RunPhase.CANCELLED, 0)
    assert (other.phase, other.files_done) == (RunPhase.SUCCEEDED, 40)
    assert {f.run_id: f.phase for f in harness.facts(RunEnded)}["run-1"] is RunPhase.CANCELLED


async def test_a_run_whose_records_are_deleted_is_dropped(harness: Harness) -> None:
    harness.operation.gate.clear()
    async with harness.agents(0, 1):
        await harness.ask()
        await eventually(lambda: len(harness.operation.began) == 2, what="both at work")
        for key in (RUN.spec, RUN.state):
            await harness.kv.delete(key)
        harness.operation.gate.set()
        await harness.ask("run-2")
        assert (await harness.ended("run-2")).files_done == 40
    assert await harness.kv.entries(RUN.state) == []


async def test_an_ended_run_that_is_removed_is_not_begun_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of record is watched by itself: here specs are heard of late."""
    watch, has_heard = harness.kv.watch, asyncio.Event()

    async def watch_specs_late(pattern: str) -> AsyncIterator[Entry | None]:
        async with aclosing(watch(pattern)) as entries:
            async for entry in entries:
                if entry and entry.value is None and entry.key == RUN.spec:
                    await has_heard.wait()
                yield entry

    monkeypatch.setattr(harness.kv, "watch", watch_specs_late)
    asked = list[str]()
    get, create = harness.kv.get, harness.kv.create

    async def note_get(key: str) -> Entry:
        asked.append(key)
        return await get(key)

    async def note_create(key: str, value: bytes) -> int:
        asked.append("created")
        return await create(key, value)

    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)
        await eventually(lambda: closed(harness), what="the run is finished")
        began = len(harness.operation.began)
        monkeypatch.setattr(harness.kv, "get", note_get)
        monkeypatch.setattr(harness.kv, "create", note_create)
        for key in (RUN.spec, RUN.state):
            await harness.kv.delete(key)
        await eventually(lambda: asked, what="an agent has considered to claim it")
        has_heard.set()
        await harness.ask("run-2")
        await harness.ended("run-2")
    assert await harness.kv.entries(RUN.state) == []
    assert (len(harness.operation.began), asked[0]) == (began + 14, RUN.spec)


async def test_a_run_without_a_known_operation_fails(harness: Harness) -> None:
    spec = RunSpec(run_id="run-1", set_uid="set-1", partitions=2)
    await harness.kv.put(RUN.spec, to_json(spec))
    async with harness.agents(0, 1):
        state = await harness.ended()
    assert (state.phase, state.reason) == (RunPhase.FAILED, "UnknownOperation")


async def test_malformed_records_are_ignored(harness: Harness) -> None:
    await harness.kv.put("set-1.bad.spec", b"not json")
    await harness.kv.put("set-1.odd", b"{}")
    await harness.kv.put("set-1.run-1.unknown", b"{}")
    async with harness.agents(0, 1):
        await harness.ask()
        await check_exact(harness)


async def test_every_metric_is_emitted(harness: Harness) -> None:
    harness.metrics.mount_changed(mounted=True)
    async with harness.agents(0, 1):
        await harness.ask()
        await harness.ended()
        await eventually(lambda: set(NAMES) == _emitted(harness.reader), what="all names")


def _emitted(reader: InMemoryMetricReader) -> set[str]:
    data = reader.get_metrics_data()
    if data is None:
        return set()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name for scope in scopes for metric in scope.metrics}
