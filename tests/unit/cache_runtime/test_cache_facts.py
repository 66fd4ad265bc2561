"""Facts of the runtime: progress is published at a bounded rate and may be lost; all carry their trace."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from cache_runtime import facts as facts_module
from cache_runtime.domain.model import Identity
from cache_runtime.domain.runs import Progress
from cache_runtime.facts import MESSAGE_MAX, Facts
from cache_runtime.timing import PROGRESS_INTERVAL_SECONDS
from paddlewheel.bus.streams import CACHE, CACHE_PROGRESS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.cache_v1 import RunSpec, RunState, WarmupOperation
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus

IDENTITY = Identity("default", "digits", "set-1", "digits-runtime-0", 0, "node-0")


class Harness:
    """Publishes progress of runs on a memory bus with a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.facts = Facts(self.bus, IDENTITY, self.clock)
        self.tick = 0

    async def publish(self, run_id: str = "run-1") -> None:
        self.tick += 1
        spec = RunSpec(run_id=run_id, set_namespace="default", set_uid="set-1", warmup=WarmupOperation())
        state = RunState(run_id=run_id, term=1)
        await self.facts.run_progressed(spec, state, Progress(self.tick, 0, 0, 0, 0, ()), self.tick)

    def published(self, run_id: str = "run-1") -> list[int]:
        """Files done, fact by fact."""
        data = [event.data for event in self.bus.events(CACHE_PROGRESS.name)]
        return [d.files_done for d in data if isinstance(d, RunProgressed) and d.run_id == run_id]


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_progress_is_published_at_most_once_a_second(harness: Harness) -> None:
    for _ in range(1000):
        await harness.publish()
        await harness.clock.advance(0.01)
    assert PROGRESS_INTERVAL_SECONDS == 1.0
    assert len(harness.published()) == 10
    assert harness.published()[:2] == [1, 101]


async def test_each_run_has_a_rate_of_its_own(harness: Harness) -> None:
    for run in ("run-1", "run-2", "run-1", "run-2"):
        await harness.publish(run)
    assert (harness.published("run-1"), harness.published("run-2")) == ([1], [2])


async def test_progress_is_lost_while_the_bus_is_down_and_the_next_fact_includes_it(
    harness: Harness,
) -> None:
    harness.bus.down = True
    await harness.publish()
    harness.bus.down = False
    await harness.clock.advance(PROGRESS_INTERVAL_SECONDS)
    await harness.publish()
    assert harness.published() == [2]


async def test_runs_without_recent_progress_are_forgotten(harness: Harness) -> None:
    for number in range(50):
        await harness.publish(f"run-{number}")
    await harness.clock.advance(PROGRESS_INTERVAL_SECONDS)
    await harness.publish("last")
    assert list(harness.facts._progressed) == ["last"]


async def test_every_fact_carries_its_trace(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "tracer", TracerProvider().get_tracer("test"))
    await harness.publish()
    await harness.facts.mount_changed("")
    stored = [message for spec in (CACHE, CACHE_PROGRESS) for message in harness.bus.stored(spec.name)]
    headers = [message.headers.get("traceparent", "") for message in stored]
    assert len(set(headers)) == 2
    assert all(len(header) == 55 for header in headers)


async def test_a_rejected_fact_does_not_stop_the_runtime(harness: Harness) -> None:
    async def refuse(_: Event) -> None:
        raise Permanent("TooLarge", "too large")

    harness.bus.publish = refuse  # type: ignore[method-assign, assignment]
    await harness.publish()
    assert harness.published() == []


async def test_facts_with_long_messages_are_small_enough_for_their_stream(harness: Harness) -> None:
    """Names of files may have any characters; of a state everything is in its record."""
    spec = RunSpec(
        run_id="run-1", set_namespace="n" * 63, set_name="s" * 253, set_uid="u" * 36, warmup=WarmupOperation()
    )
    state = RunState(run_id="run-1", message="\1" * 100_000)

    await harness.facts.run_ended(spec, state)
    await harness.facts.mount_changed("\1" * 100_000)

    messages = [event.data.message for event in harness.bus.events("PW_CACHE")]  # type: ignore[attr-defined]
    assert messages == 2 * ["\1" * MESSAGE_MAX]
