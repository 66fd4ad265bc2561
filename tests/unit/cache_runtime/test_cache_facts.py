"""Facts of the runtime: progress is told at a bounded rate and may be lost; all carry their trace."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from cache_runtime import facts as facts_module
from cache_runtime.domain.runs import Progress
from cache_runtime.facts import PROGRESS_EVERY, Facts, Place
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.cache_v1 import RunProgressed, RunSpec, RunState, WarmupOperation
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Permanent

PLACE = Place("default", "digits", "set-1", "digits-runtime-0", 0, "node-0")


class Teller:
    """Tells progress of runs as fast as it is asked to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.facts = Facts(self.bus, PLACE, self.clock)
        self.tick = 0

    async def tell(self, run_id: str = "run-1") -> None:
        self.tick += 1
        spec = RunSpec(run_id=run_id, set_namespace="default", set_uid="set-1", warmup=WarmupOperation())
        state = RunState(run_id=run_id, term=1)
        await self.facts.run_progressed(spec, state, Progress(self.tick, 0, 0, 0, 0, ()), self.tick)

    def told(self, run_id: str = "run-1") -> list[int]:
        """Files done, fact by fact."""
        data = [event.data for event in self.bus.events("PW_CACHE")]
        return [d.files_done for d in data if isinstance(d, RunProgressed) and d.run_id == run_id]


@pytest.fixture
def teller() -> Teller:
    return Teller()


async def test_progress_is_told_at_most_once_a_second(teller: Teller) -> None:
    for _ in range(1000):
        await teller.tell()
        await teller.clock.advance(0.01)
    assert PROGRESS_EVERY == 1.0
    assert len(teller.told()) == 10
    assert teller.told()[:2] == [1, 101]


async def test_each_run_has_a_rate_of_its_own(teller: Teller) -> None:
    for run in ("run-1", "run-2", "run-1", "run-2"):
        await teller.tell(run)
    assert (teller.told("run-1"), teller.told("run-2")) == ([1], [2])


async def test_progress_that_a_dead_bus_does_not_take_is_lost_and_the_next_counts_for_it(
    teller: Teller,
) -> None:
    teller.bus.down = True
    await teller.tell()
    teller.bus.down = False
    await teller.clock.advance(PROGRESS_EVERY)
    await teller.tell()
    assert teller.told() == [2]


async def test_runs_that_fell_silent_are_forgotten(teller: Teller) -> None:
    for number in range(50):
        await teller.tell(f"run-{number}")
    await teller.clock.advance(PROGRESS_EVERY)
    await teller.tell("last")
    assert list(teller.facts._progressed) == ["last"]


async def test_every_fact_carries_its_trace(teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "tracer", TracerProvider().get_tracer("test"))
    await teller.tell()
    await teller.facts.mount_changed("")
    headers = [message.headers.get("traceparent", "") for message in teller.bus.stored("PW_CACHE")]
    assert len(set(headers)) == 2
    assert all(len(header) == 55 for header in headers)


async def test_a_fact_the_bus_can_never_take_ends_nothing(teller: Teller) -> None:
    async def refuse(_: Event) -> None:
        raise Permanent("TooLarge", "too large")

    teller.bus.publish = refuse  # type: ignore[method-assign, assignment]
    await teller.tell()
    assert teller.told() == []
