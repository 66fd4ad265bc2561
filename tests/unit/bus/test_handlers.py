"""A handler that hangs is reported, and one whose backend does not answer is called again."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.consume.settle import BACKEND_RETRY_MAX_INTERVAL_SECONDS
from paddlewheel.bus.instruments import HANDLING, Instruments
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.core.errors import Permanent, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.fakes import ConsumerFakes, FakeMessage, ScriptedHandler
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

SLOW = Subscription("slow", JOBS.name, JOBS.subjects, handle_within=100.0)


async def test_a_handler_that_hangs_is_late_until_it_ends_and_told_once() -> None:
    clock, gate = ManualClock(), asyncio.Event()
    bus = MemoryBus(clock)

    async def hang(_: Delivery) -> None:
        await gate.wait()

    task = asyncio.create_task(bus.consume(SLOW, hang))
    await bus.publish(make_gated(1))
    await eventually(lambda: bus._handlers.longest())
    with capture_logs() as logs:
        await clock.advance(99)
        assert bus.late_handlers() == {}
        for _ in range(10):
            await clock.advance(11)
        assert bus.late_handlers() == {"slow": 209.0}
        gate.set()
        await eventually(lambda: not bus.late_handlers())
    await end(task)
    told = [(entry["log_level"], entry["durable"]) for entry in logs if "handler" in entry["event"]]
    assert told == [("warning", "slow"), ("info", "slow")]


def test_the_oldest_handler_of_each_durable_counts() -> None:
    clock = ManualClock()
    handlers, other = Handlers(clock), Subscription("other", JOBS.name, JOBS.subjects)
    reader = InMemoryMetricReader()
    Instruments(MeterProvider(metric_readers=[reader]).get_meter("t"), longest=handlers.longest)
    with handlers.running(SLOW, "a"):
        asyncio.run(clock.advance(5))
        with handlers.running(SLOW, "b"), handlers.running(other, "c"):
            asyncio.run(clock.advance(2))
            assert handlers.longest() == {"slow": 7.0, "other": 2.0}
            assert figures(reader) == {"slow": 7.0, "other": 2.0}
        assert handlers.longest() == {"slow": 7.0}
    assert handlers.longest() == {}


def figures(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    [metric] = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == HANDLING
    ]
    return {str(p.attributes["durable"]): float(p.value) for p in metric.data.data_points}  # type: ignore[union-attr,index]


async def test_whatever_is_away_uses_up_no_attempt() -> None:
    fakes = ConsumerFakes()
    message, away = FakeMessage(), [Unavailable("ApiServerUnreachable")] * 100
    script = ScriptedHandler([*away, Permanent("Bad", "x")])
    await fakes.settle(fakes.settler(script), message)
    assert set(script.attempts) == {1}
    assert fakes.dead.parked == [(1, "Bad", 1)]


async def test_a_handler_that_never_finds_an_answer_is_late_and_called_less_and_less_often() -> None:
    fakes, script = ConsumerFakes(), ScriptedHandler([Unavailable("ApiServerUnreachable")] * 1000)
    task = asyncio.create_task(fakes.settler(script).settle(FakeMessage()))
    await asyncio.sleep(0)
    for _ in range(int(Subscription.handle_within)):
        await fakes.clock.advance(1)
    assert fakes.handlers.late() == {}
    for _ in range(60):
        await fakes.clock.advance(1)
    assert fakes.handlers.late() == {"d": Subscription.handle_within + 60}
    assert len(script.attempts) == 5 + 360 // BACKEND_RETRY_MAX_INTERVAL_SECONDS - 1
    await end(task)
    assert fakes.handlers.late() == {}


async def test_what_is_away_for_one_message_only_uses_up_its_attempts() -> None:
    fakes = ConsumerFakes()

    async def handle(delivery: Delivery) -> None:
        if delivery.sequence == 1:
            raise Unavailable("StoreUnavailable", "only this one")

    settler = fakes.settler(handle)
    task = asyncio.create_task(settler.settle(FakeMessage(sequence=1)))
    for number in range(2, 40):
        await fakes.clock.advance(BACKEND_RETRY_MAX_INTERVAL_SECONDS)
        await settler.settle(FakeMessage(sequence=number))
    await task
    assert fakes.dead.parked == [(1, "StoreUnavailable", 3)]


@pytest.mark.parametrize("times", [1, 30])
async def test_what_was_away_and_came_back_is_handled_once(times: int) -> None:
    fakes = ConsumerFakes()
    message, script = FakeMessage(), ScriptedHandler([Unavailable("BusUnreachable")] * times)
    await fakes.settle(fakes.settler(script), message)
    assert (message.ends, fakes.dead.parked) == (["ack"], [])
