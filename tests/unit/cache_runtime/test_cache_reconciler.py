"""Two agents on the memory bus: a run is led once, counted once and ended once, whatever happens to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from cache_runtime.agent import AgentTools
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Cut, File, Kind, Outcome
from cache_runtime.facts import Facts, Place
from cache_runtime.master import MasterTools
from cache_runtime.metrics import NAMES, Metrics
from cache_runtime.publication import pack
from cache_runtime.reconciler import RunReconciler
from cache_runtime.records import RunStore
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.contracts.generated.cache_v1 import (
    Chunk,
    PartitionState,
    RunEnded,
    RunPhase,
    RunProgressed,
    RunSpec,
    RunStarted,
    RunState,
    WarmupOperation,
)
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.testkit.wait import eventually

FILES = [File(f"f{n}", 10) for n in range(40)]
FINAL = (RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED)


class FastClock:
    """Twenty seconds in one: silence of 15 s is 0.75 s here, longer than a busy machine stalls a test."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic() * 20

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


@dataclass
class FakeLister:
    """Gives batches; raises what it is told, the first `errors` times."""

    error: Exception | None = None
    errors: int = 99
    calls: int = 0

    async def files(self, spec: RunSpec) -> AsyncIterator[Sequence[File]]:
        self.calls += 1
        for start in range(0, len(FILES), 10):
            yield FILES[start : start + 10]
            if self.error and self.calls <= self.errors:
                raise self.error


@dataclass
class FakeWorker:
    """Does chunks when the gate is open; remembers each."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    done: list[tuple[int, int]] = field(default_factory=list)
    began: list[tuple[int, int]] = field(default_factory=list)
    bad: str = ""
    error: Exception | None = None

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        self.began.append((chunk.partition, chunk.id))
        await self.gate.wait()
        if self.error:
            raise self.error
        self.done.append((chunk.partition, chunk.id))
        failed = tuple(f"{e.path}: broken" for e in chunk.files if e.path == self.bad)
        good = len(chunk.files) - len(failed)
        return Outcome(good, good * 10, cached_bytes=good * 10, failed=failed)


class NoFinisher:
    async def finish(self, spec: RunSpec) -> None:
        return None


@dataclass
class World:
    """The bus and what the agents share in the test."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    lister: FakeLister = field(default_factory=FakeLister)
    worker: FakeWorker = field(default_factory=FakeWorker)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    clock: FastClock = field(default_factory=FastClock)
    runs_ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.metrics = Metrics(MeterProvider(metric_readers=[self.reader]).get_meter("test"))
        self.kv = self.bus.key_value("pw_cache_runs")

    def reconciler(self, partition: int) -> RunReconciler:
        place = Place("default", "digits", "set-1", f"digits-runtime-{partition}", partition, f"n{partition}")
        store, clock = RunStore(self.kv, "set-1"), self.clock
        facts = Facts(self.bus, place, clock)
        master = MasterTools(
            place.pod, store, self.bus.work, facts, clock, self.metrics, Limits(files=3),
            {Kind.WARMUP: self.lister}, NoFinisher(), tick=0.02,
        )  # fmt: skip
        agent = AgentTools(place, store, self.bus.work, clock, self.metrics, {Kind.WARMUP: self.worker}, 2.0)
        return RunReconciler(self.kv, store, master, agent, self.runs_ended.set)

    @asynccontextmanager
    async def agents(self, *partitions: int) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.reconciler(p).run()) for p in partitions]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, run_id: str = "run-1") -> None:
        spec = RunSpec(
            run_id=run_id, set_namespace="default", set_name="digits", set_uid="set-1", partitions=2,
            warmup=WarmupOperation(),
        )  # fmt: skip
        await self.kv.put(f"set-1.{run_id}.spec", to_json(spec))

    async def read(self, model: type[Any], name: str, run_id: str = "run-1") -> Any:
        try:
            return from_json(model, (await self.kv.get(f"set-1.{run_id}.{name}")).value or b"{}")
        except (NotFound, Retry):
            return model()

    async def ended(self, run_id: str = "run-1", within: float = 10) -> RunState:
        async def final() -> RunState | None:
            state: RunState = await self.read(RunState, "state", run_id)
            return state if state.phase in FINAL else None

        found = await eventually(final, within=within, what="the run's end")
        assert found is not None
        return found

    def facts(self, kind: type) -> list[Any]:
        return [event.data for event in self.bus.events("PW_CACHE") if isinstance(event.data, kind)]


@pytest.fixture
def world() -> World:
    world = World()
    world.worker.gate.set()
    return world


async def check_exact(world: World) -> None:
    state = await world.ended()
    assert (state.phase, state.reason) == (RunPhase.SUCCEEDED, "")
    assert (state.files_done, state.bytes_done, state.cached_percent) == (40, 400, 100.0)
    assert (state.files_total, state.bytes_total, state.listed) == (40, 400, True)
    assert state.chunks_done == state.chunks_total
    parts = [await world.read(PartitionState, f"part-{p}") for p in (0, 1)]
    assert [part.bytes for part in parts] == [200, 200]
    assert all(list(part.chunks) == list(range(7)) for part in parts)


async def test_a_run_is_led_and_done_by_two_agents(world: World) -> None:
    async with world.agents(0, 1):
        await world.ask()
        await check_exact(world)

        assert sorted(world.worker.done) == [(p, i) for p in (0, 1) for i in range(7)]
        assert [fact.operation for fact in world.facts(RunStarted)] == ["warmup"]
        ended = world.facts(RunEnded)
        assert [(f.phase, f.files, f.cached_percent) for f in ended] == [(RunPhase.SUCCEEDED, 40, 100.0)]
        assert all(fact.files_done <= 40 for fact in world.facts(RunProgressed))
        await eventually(lambda: world.bus.stored("PW_WORK") == [])


async def test_an_agent_tells_when_a_run_it_worked_on_is_over(world: World) -> None:
    await world.ask()
    async with world.agents(0, 1):
        await world.ended()
        async with asyncio.timeout(5):
            await world.runs_ended.wait()
    assert world.runs_ended.is_set()


async def test_an_agent_that_dies_midway_redoes_only_what_is_not_recorded(world: World) -> None:
    world.worker.gate.clear()
    async with world.agents(0):
        async with world.agents(1):
            await world.ask()
            await eventually(lambda: len(world.worker.began) == 2, what="both at work")
        world.worker.gate.set()
        await eventually(lambda: len(world.worker.done) == 7, what="the other partition is done")
        async with world.agents(1):
            await check_exact(world)
    assert sorted(world.worker.done) == [(p, i) for p in (0, 1) for i in range(7)]


async def test_another_agent_leads_on_after_silence(world: World) -> None:
    stale = RunState(run_id="run-1", master="digits-runtime-9", term=4, phase=RunPhase.RUNNING)
    await world.kv.put("set-1.run-1.state", to_json(stale))
    await world.ask()
    async with world.agents(0, 1):
        await check_exact(world)
    assert (await world.read(RunState, "state")).term == 5


async def test_a_chunk_published_twice_counts_once(world: World) -> None:
    world.worker.gate.clear()
    async with world.agents(0, 1):
        await world.ask()
        await eventually(lambda: world.worker.began, what="work began")
        again = pack("run-1", Cut(0, 0, tuple(FILES[0:6:2])))
        await world.bus.work.enqueue(work_subject("set-1", "run-1", 0), again, message_id="other-master")
        await world.bus.work.enqueue(work_subject("set-1", "run-1", 0), b"nonsense", message_id="noise")
        world.worker.gate.set()
        await check_exact(world)


async def test_a_bus_that_goes_away_loses_nothing(world: World) -> None:
    world.worker.gate.clear()
    async with world.agents(0, 1):
        await world.ask()
        await eventually(lambda: len(world.worker.began) == 2, what="both at work")
        world.bus.down = True
        world.worker.gate.set()
        await eventually(lambda: len(world.worker.done) == 2, what="chunks finish without the bus")
        world.bus.down = False
        await check_exact(world)


async def test_files_that_fail_are_named_and_fail_the_run(world: World) -> None:
    world.worker.bad = "f7"
    async with world.agents(0, 1):
        await world.ask()
        state = await world.ended()
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 39)
    assert state.message == "1 files could not be done: f7: broken"


async def test_a_worker_that_can_never_do_it_fails_the_run(world: World) -> None:
    world.worker.error = Permanent("InvalidPath", "not ours")
    async with world.agents(0, 1):
        await world.ask()
        state = await world.ended()
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 0)
    assert "f0: not ours" in state.message


async def test_a_listing_that_fails_for_a_while_is_repeated_to_the_same_chunks(world: World) -> None:
    world.lister.error, world.lister.errors = Retry("ListingFailed", "away"), 2
    async with world.agents(0, 1):
        await world.ask()
        await check_exact(world)
    assert world.lister.calls >= 3


@pytest.mark.parametrize("error", [Permanent("PathNotFound", "no x"), Retry("PathNotFound", "no x")])
async def test_a_listing_that_fails_for_good_fails_the_run(world: World, error: Exception) -> None:
    world.lister.error = error
    async with world.agents(0, 1):
        await world.ask()
        state = await world.ended()
        await eventually(lambda: world.bus.stored("PW_WORK") == [], what="its chunks are purged")
    assert (state.phase, state.reason, state.message) == (RunPhase.FAILED, "PathNotFound", "no x")


async def test_cancelling_stops_one_run_alone(world: World) -> None:
    world.worker.gate.clear()
    async with world.agents(0, 1):
        await world.ask()
        await world.ask("run-2")
        await eventually(lambda: len(world.worker.began) == 4, what="both runs at work")
        await world.kv.put("set-1.run-1.cancel", b"{}")
        cancelled = await world.ended()
        world.worker.gate.set()
        other = await world.ended("run-2")
    assert (cancelled.phase, cancelled.files_done) == (RunPhase.CANCELLED, 0)
    assert (other.phase, other.files_done) == (RunPhase.SUCCEEDED, 40)
    assert {f.run_id: f.phase for f in world.facts(RunEnded)}["run-1"] is RunPhase.CANCELLED


async def test_a_run_whose_records_vanish_is_dropped(world: World) -> None:
    world.worker.gate.clear()
    async with world.agents(0, 1):
        await world.ask()
        await eventually(lambda: len(world.worker.began) == 2, what="both at work")
        for name in ("spec", "state"):
            await world.kv.delete(f"set-1.run-1.{name}")
        world.worker.gate.set()
        await world.ask("run-2")
        assert (await world.ended("run-2")).files_done == 40
    assert await world.kv.entries("set-1.run-1.state") == []


async def test_a_run_without_a_known_operation_fails(world: World) -> None:
    spec = RunSpec(run_id="run-1", set_uid="set-1", partitions=2)
    await world.kv.put("set-1.run-1.spec", to_json(spec))
    async with world.agents(0, 1):
        state = await world.ended()
    assert (state.phase, state.reason) == (RunPhase.FAILED, "UnknownOperation")


async def test_unreadable_records_harm_nobody(world: World) -> None:
    await world.kv.put("set-1.bad.spec", b"not json")
    await world.kv.put("set-1.odd", b"{}")
    await world.kv.put("set-1.run-1.unknown", b"{}")
    async with world.agents(0, 1):
        await world.ask()
        await check_exact(world)


async def test_every_metric_is_emitted(world: World) -> None:
    world.metrics.mount_changed(mounted=True)
    async with world.agents(0, 1):
        await world.ask()
        await world.ended()
        await eventually(lambda: set(NAMES) == _emitted(world.reader), what="all names")


def _emitted(reader: InMemoryMetricReader) -> set[str]:
    data = reader.get_metrics_data()
    if data is None:
        return set()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name for scope in scopes for metric in scope.metrics}
