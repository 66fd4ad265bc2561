"""The SDK with an account that is in no team: it receives the live facts of its namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest

import paddlewheel
from paddlewheel.bus.ports import Bus
from paddlewheel.core.errors import Permanent, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.sdk import Event
from paddlewheel.testkit.chart_bus import WATCHER, ChartBus, install, running
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.patient_bus import connect
from paddlewheel.testkit.wait import patiently

pytestmark = pytest.mark.long


@pytest.fixture
def chart_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChartBus]:
    """A server as the chart configures it, and the environment of a watcher of `default`."""
    with running(tmp_path / "bus") as started:
        monkeypatch.setenv("NATS_URL", started.url_of(WATCHER))
        monkeypatch.setenv("NATS_TLS_DIR", str(started.authority))
        monkeypatch.setenv("NATS_TLS_HOSTNAME", "nats")
        monkeypatch.setenv("NATS_NAMESPACES", "default")
        yield started


@pytest.fixture
async def publishing(chart_bus: ChartBus) -> AsyncIterator[None]:
    """Facts of two namespaces are published all the time."""
    await install(chart_bus)
    bus = await connect(chart_bus.access("job-controller"), name="job-controller")
    task = asyncio.create_task(publish(bus))
    yield
    await end(task)
    await bus.close()


async def publish(bus: Bus) -> None:
    for number in count():
        for namespace in ("team-a", "default"):
            fact = make_gated(number, f"uid-{namespace}", namespace)
            await patiently(lambda: bus.publish(fact))  # noqa: B023 - awaited here
        await asyncio.sleep(0.05)


async def first(number: int) -> list[Event]:
    async with aclosing(paddlewheel.events(context="jobs")) as events:
        return [await anext(events) for _ in range(number)]


@pytest.mark.usefixtures("publishing")
async def test_live_facts_of_the_namespace_arrive_in_order_and_no_others(chart_bus: ChartBus) -> None:
    events = await first(5)
    assert {event.object.namespace for event in events} == {"default"}
    sequences = [event.sequence for event in events]
    assert sequences == sorted(sequences)
    assert sequences[0] > 0


@pytest.mark.usefixtures("publishing")
async def test_the_loop_goes_on_after_a_lost_connection(chart_bus: ChartBus) -> None:
    async with aclosing(paddlewheel.events(context="jobs")) as events:
        await anext(events)
        await asyncio.to_thread(chart_bus.restart)
        # One that another program receives was published after the restart.
        [later] = await first(1)
        found = await anext(events)
        while found.sequence < later.sequence:
            found = await anext(events)


async def test_facts_of_other_namespaces_are_refused_with_the_reason(chart_bus: ChartBus) -> None:
    async with aclosing(paddlewheel.events(job="team-a/digits")) as events:
        with pytest.raises(Permanent, match="only default can be watched"):
            await anext(events)


async def test_a_bus_that_is_away_ends_the_loop_after_the_limit(chart_bus: ChartBus) -> None:
    chart_bus.stop()
    async with aclosing(paddlewheel.events(open_within=0.5)) as events:
        with pytest.raises(Unavailable, match=r"open_within=0\.5"):
            await anext(events)
