"""Every metric and span of the bus is really emitted, and a handler works in its publisher's trace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from paddlewheel.bus.admin.mirrors import MirrorStatus
from paddlewheel.bus.instruments import (
    CONFIG_LOADED,
    DURABLE_LAG,
    HANDLING,
    METRIC_NAMES,
    MIRROR_BROKEN,
    MIRROR_LAG,
    PUBLISHED,
    SPAN_NAMES,
    STOPPED,
    Instruments,
)
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import BUS_FULL, JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def make_gated(id_: str) -> Event:
    return make_event(
        JobGated(job=ObjectRef(uid=id_)),
        id=id_,
        source="t",
        namespace="ns",
        uid=id_,
        time=datetime(2026, 1, 1, tzinfo=UTC),
        traceparent=f"00-{TRACE_ID}-b7ad6b7169203331-01",
    )


async def test_metrics_and_spans_are_recorded() -> None:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    bus = MemoryBus()
    bus._instruments = Instruments(
        MeterProvider(metric_readers=[reader]).get_meter("t"), tracers.get_tracer("t")
    )
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(trace.format_trace_id(trace.get_current_span().get_span_context().trace_id))
        if delivery.event.id.startswith("bad"):
            raise Permanent("Bad", "x")
        if delivery.event.id == "busy" and delivery.attempt == 1:
            raise Retry("Busy", after=0)

    bus.down = True
    with pytest.raises(Retry):
        await bus.publish(make_gated("good"))
    bus.down = False
    for id_ in ("good", "bad", "busy"):
        await bus.publish(make_gated(id_))
    wanted = Subscription("d", JOBS.name, (event_filter("jobs"),), max_parked=1)
    task = asyncio.create_task(bus.consume(wanted, handle))
    await eventually(lambda: len(seen) == 4 and bus.stored("PW_DLQ"))
    await bus.publish(make_gated("bad-again"))
    await eventually(lambda: stopped(bus))
    assert ("d", 1) in [(*labels, n) for (name, labels), n in counted(reader).items() if name == STOPPED]
    await end(task)

    assert seen == [TRACE_ID] * 5
    assert {span.name for span in exporter.get_finished_spans()} == set(SPAN_NAMES)
    points = counted(reader)
    # Handlers at work have one more (test_handlers.py), and mirrors theirs.
    assert {name for name, _ in points} == set(METRIC_NAMES) - {
        HANDLING,
        MIRROR_LAG,
        MIRROR_BROKEN,
        DURABLE_LAG,
        CONFIG_LOADED,
    }
    assert [(*labels, count) for (_, labels), count in sorted(points.items())] == [
        ("PW_JOBS", "failed", 1),
        ("PW_JOBS", "stored", 4),
        ("d", "acked", 2),
        ("d", "parked", 1),
        ("d", "retried", 1),
        ("d", 0),
    ]


def test_the_mirrors_of_teams_are_measured() -> None:
    reader = InMemoryMetricReader()
    found = (MirrorStatus("a", "PW_JOBS", 7), MirrorStatus("b", "PW_JOBS", 0, "it is not fed"))
    Instruments(MeterProvider(metric_readers=[reader]).get_meter("test"), mirrors=lambda: found)
    points = {place: n for place, n in counted(reader).items() if place[0] in (MIRROR_LAG, MIRROR_BROKEN)}
    assert points == {
        (MIRROR_LAG, ("a", "PW_JOBS")): 7,
        (MIRROR_LAG, ("b", "PW_JOBS")): 0,
        (MIRROR_BROKEN, ("a", "PW_JOBS")): 0,
        (MIRROR_BROKEN, ("b", "PW_JOBS")): 1,
    }


def test_what_durables_have_not_acknowledged_is_measured() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    Instruments(meter, lags=lambda: {"trigger-controller-sources": 7})
    assert counted(reader)[DURABLE_LAG, ("trigger-controller-sources",)] == 7


def test_whether_servers_have_loaded_their_configuration_is_measured() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    Instruments(meter, loaded=lambda: {"a": False, "b": True})
    points = {place: n for place, n in counted(reader).items() if place[0] == CONFIG_LOADED}
    assert points == {(CONFIG_LOADED, ("a",)): 0, (CONFIG_LOADED, ("b",)): 1}


def test_a_full_stream_is_told_from_other_failures() -> None:
    reader = InMemoryMetricReader()
    instruments = Instruments(MeterProvider(metric_readers=[reader]).get_meter("test"))
    for error in (Retry(BUS_FULL, "full"), Retry("BusRefused", "away"), Permanent("TooLarge", "big")):
        with pytest.raises(type(error)), instruments.publishing("PW_SOURCES"):
            raise error
    points = {place: n for place, n in counted(reader).items() if place[0] == PUBLISHED}
    assert points == {(PUBLISHED, ("PW_SOURCES", outcome)): 1 for outcome in ("full", "failed", "refused")}


async def stopped(bus: MemoryBus) -> bool:
    return not await bus.healthy()


def counted(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[str, ...]], float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple(str(v) for v in (point.attributes or {}).values())): point.value  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
