"""The parts around the plans: mirrors, effects, metrics, settings, the service's anatomy."""

from __future__ import annotations

import ast
import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import dataset_controller
from dataset_controller.config import Settings
from dataset_controller.domain.actions import ForgetRun, WriteRun
from dataset_controller.domain.journal import Journal
from dataset_controller.effects import SURE_SECONDS, Effects
from dataset_controller.metrics import METRIC_NAMES, Metrics
from dataset_controller.mirrors import NodeMirror, RunMirror
from dataset_controller.ports import DataBus
from dataset_controller.reconciler import Pace
from dataset_controller.view import View
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.contracts.announcements import confirm
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunPhase, RunSpec, RunState, WarmupOperation
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import SERVICES
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.testkit.wait import eventually

RUN = RunKey("set-uid", "run-1")
SPEC = RunSpec(run_id="run-1", set_uid="set-uid", partitions=1, warmup=WarmupOperation())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_effects(bus: Any, clock: Any) -> Any:
    cluster = MemoryCluster()
    parts = DataBus(bus.key_value("pw_cache_runs"), bus.key_value("pw_cache_nodes"), bus.work)
    return Effects(cluster, View(cluster, "", clock), parts, CircuitBreaker(clock), clock)


async def test_a_record_is_written_once_and_again_after_it_was_lost() -> None:
    bus, clock = MemoryBus(), ManualClock()
    runs = bus.key_value("pw_cache_runs")
    effects = make_effects(bus, clock)
    await effects.apply("set-uid", [WriteRun(SPEC)])
    first = await runs.get("set-uid.run-1.spec")
    await effects.apply("set-uid", [WriteRun(SPEC.model_copy(update={"partitions": 9}))])
    await clock.advance(SURE_SECONDS + 1)
    await effects.apply("set-uid", [WriteRun(SPEC.model_copy(update={"partitions": 9}))])
    assert await runs.get("set-uid.run-1.spec") == first
    await runs.delete("set-uid.run-1.spec")
    await clock.advance(SURE_SECONDS + 1)
    await effects.apply("set-uid", [WriteRun(SPEC)])
    assert (await runs.get("set-uid.run-1.spec")).value == first.value


async def test_a_forgotten_run_leaves_no_record_and_others_stay() -> None:
    bus, clock = MemoryBus(), ManualClock()
    runs = bus.key_value("pw_cache_runs")
    for key in ("set-uid.run-1.spec", "set-uid.run-1.state", "set-uid.run-1.part-0", "set-uid.run-2.spec"):
        await runs.put(key, b"{}")
    await make_effects(bus, clock).apply("set-uid", [ForgetRun(RUN)])
    assert [entry.key for entry in await runs.entries(">")] == ["set-uid.run-2.spec"]


async def test_a_bus_that_is_away_is_told_and_left_alone_for_a_moment() -> None:
    bus, clock = MemoryBus(), ManualClock()
    bus.down = True
    line = CircuitBreaker(clock)
    effects = make_effects(bus, clock)
    assert (await effects.apply("set-uid", [WriteRun(SPEC)])).is_bus_away
    with pytest.raises(Retry):
        await line.call(bus.key_value("pw_cache_runs").entries(">"))
    bus.down = False
    with pytest.raises(Retry, match="a moment ago"):
        await line.call(bus.key_value("pw_cache_runs").entries(">"))
    await clock.advance(3)
    assert await line.call(bus.key_value("pw_cache_runs").entries(">")) == []


async def test_mirrors_stamp_records_with_their_own_clock() -> None:
    bus, clock = MemoryBus(), ManualClock(NOW)
    runs, nodes = RunMirror(clock), NodeMirror(clock)
    woken: list[object] = []
    tasks = [
        asyncio.create_task(runs.follow(bus.key_value("pw_cache_runs"), woken.append)),
        asyncio.create_task(nodes.follow(bus.key_value("pw_cache_nodes"), woken.append)),
    ]
    elsewhere = NOW - timedelta(days=3)
    ended = RunState(run_id="run-1", phase=RunPhase.SUCCEEDED, ended_at=elsewhere)
    await bus.key_value("pw_cache_runs").put(RUN.state, to_json(ended))
    await bus.key_value("pw_cache_nodes").put("set-uid.0", to_json(NodeStatus(updated_at=elsewhere)))
    await eventually(lambda: len(woken) == 2)
    await clock.advance(60)
    await bus.key_value("pw_cache_runs").put(RUN.state, to_json(ended))
    await bus.key_value("pw_cache_runs").put("set-uid.run-2.state", b"nonsense")
    await eventually(lambda: len(woken) == 4)
    assert runs.of("set-uid")["run-1"].ended_at == NOW
    assert [r.updated_at for r in nodes.of("set-uid")] == [NOW]
    assert (runs.find("run-1"), runs.find("run-2")) == ((RUN,), ())
    await bus.key_value("pw_cache_runs").delete(RUN.state)
    await eventually(lambda: len(woken) == 5)
    assert runs.of("set-uid") == {}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_view_waits_for_its_own_writes_but_not_for_ever() -> None:
    clock, cluster = ManualClock(), MemoryCluster()
    view = View(cluster, "", clock)
    service = {"metadata": {"name": "s", "namespace": "default"}}
    view.wrote(SERVICES, await cluster.create(SERVICES, service))
    assert view.is_stale(SERVICES, Key("default", "s"))
    await clock.advance(6)
    assert not view.is_stale(SERVICES, Key("default", "s"))
    assert not view.is_stale(SERVICES, Key("default", "other"))


async def test_moving_figures_are_written_apart() -> None:
    clock = ManualClock()
    pace, key = Pace(5.0, clock), Key("default", "digits")
    assert pace.is_due(key)
    pace.mark(key)
    assert not pace.is_due(key)
    await clock.advance(5)
    assert pace.is_due(key)


def test_repeated_facts_do_not_pile_up() -> None:
    journal = Journal()
    for attempt in range(20):
        journal = journal.declare("SampleSetReady", NOW, attempt).declare("SampleSetDegraded", NOW, attempt)
        journal = journal.with_announcements(confirm(journal.announcements, journal.pending))
    assert [(a.fact, a.attempt) for a in journal.announcements] == [
        ("SampleSetReady", 19),
        ("SampleSetDegraded", 19),
    ]
    assert journal.declare("SampleSetReady", NOW, 3) == journal


def test_every_metric_is_emitted() -> None:
    reader = InMemoryMetricReader()
    metrics = Metrics(MeterProvider([reader]).get_meter("test"))
    metrics.announced("SampleSetReady", "published")
    metrics.created("StatefulSet")
    data: Any = reader.get_metrics_data()
    found = {m.name for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics}
    assert found == set(METRIC_NAMES)


def test_settings(monkeypatch: Any) -> None:
    monkeypatch.setenv("RUNTIME_IMAGE", "example/runtime:2")
    monkeypatch.setenv("DATASET_CONTROLLER_NATS_URL", "nats://bus:4222")
    runtime = Settings().runtime
    assert (runtime.image, runtime.nats_url) == ("example/runtime:2", "nats://bus:4222")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_IMAGE", "example/runtime:3")
    monkeypatch.setenv("DATASET_CONTROLLER_RUNTIME_NATS_URL", "nats://outside:4222")
    runtime = Settings().runtime
    assert (runtime.image, runtime.nats_url) == ("example/runtime:3", "nats://outside:4222")


PURE = {
    *(
        "__future__",
        "base64",
        "binascii",
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "hashlib",
        "json",
    ),
    *("math", "posixpath", "re", "typing", "urllib"),
}


def test_the_domain_is_pure() -> None:
    root = Path(dataset_controller.__file__).parent / "domain"
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            for name in imported(node):
                top = name.split(".")[0]
                ours = name.startswith(("dataset_controller.domain", "paddlewheel.contracts"))
                assert ours or top in PURE, f"{file.name} imports {name}"


def imported(node: Any) -> Any:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
