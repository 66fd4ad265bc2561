"""The reconcile loop on a manual clock: what happens after each way a reconcile can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from paddlewheel.contracts.keys import Key
from paddlewheel.control.backoff import Backoff
from paddlewheel.control.controller import Controller, Result
from paddlewheel.control.metrics import METRIC_NAMES
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Conflict, Permanent, Retry

A = Key("team", "a")
B = Key("team", "b")


class Bench:
    """A controller whose reconcile does what the test's script says, then succeeds."""

    def __init__(self, *script: Exception | Result, **options: Any) -> None:
        self.clock = ManualClock()
        self.calls: list[tuple[float, Key]] = []
        self.script = list(script)
        self.reader = InMemoryMetricReader()
        meter = MeterProvider(metric_readers=[self.reader]).get_meter("test")
        options = {"keys": list, "backoff": Backoff(base=1, cap=60), **options}
        self.controller = Controller("bench", self.reconcile, clock=self.clock, meter=meter, **options)

    async def reconcile(self, key: Key) -> Result:
        self.calls.append((self.clock.monotonic(), key))
        step = self.script.pop(0) if self.script else Result()
        if isinstance(step, Exception):
            raise step
        return step

    async def pass_time(self, seconds: int) -> None:
        await settle()
        for _ in range(seconds):
            await self.clock.advance(1)
            await settle()

    def points(self, name: str) -> dict[str, float]:
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        found = next(metric for metric in metrics if metric.name == name)
        return {
            str((point.attributes or {}).get("result", "")): getattr(point, "value", 0)
            for point in found.data.data_points
        }


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.controller.run())
    await settle()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


ENDINGS: list[tuple[str, list[Exception | Result], list[float], str]] = [
    ("success rests", [Result()], [0], "success"),
    ("requeue comes when asked", [Result(requeue_after=7)], [0, 7], "requeue"),
    ("retry doubles", [Retry("Busy"), Retry("Busy"), Retry("Busy")], [0, 1, 3, 7], "retry"),
    ("retry says when", [Retry("Busy", after=9)], [0, 9], "retry"),
    ("a conflict is tried again", [Conflict("moved on")], [0, 1], "retry"),
    ("a permanent failure waits for the cap", [Permanent("Bad", "mend it")], [0, 60], "permanent"),
    ("a bug backs off", [ZeroDivisionError(), ZeroDivisionError()], [0, 1, 3], "bug"),
    ("success forgets failures", [Retry("x"), Result(requeue_after=1), Retry("x")], [0, 1, 2, 3], "retry"),
]


@pytest.mark.parametrize(("name", "script", "moments", "result"), ENDINGS, ids=[case[0] for case in ENDINGS])
async def test_when_a_key_is_tried_again(
    name: str, script: list[Exception | Result], moments: list[float], result: str
) -> None:
    bench = Bench(*script)
    async with running(bench):
        bench.controller.wake(A)
        await bench.pass_time(70)
    assert [at for at, _ in bench.calls] == moments
    assert bench.points("paddlewheel.reconciles")[result] >= 1


async def test_a_wake_does_not_wait_for_the_backoff() -> None:
    bench = Bench(Permanent("Bad", "mend it"))
    async with running(bench):
        bench.controller.wake(A)
        await bench.pass_time(2)
        bench.controller.wake(A)
        await settle()
    assert [at for at, _ in bench.calls] == [0, 2]


async def test_resync_wakes_every_key_at_start_and_on_the_timer() -> None:
    bench = Bench(keys=lambda: [A, B], resync=300.0)
    async with running(bench):
        await bench.pass_time(601)
    assert bench.calls == [(0, A), (0, B), (300, A), (300, B), (600, A), (600, B)]


async def test_only_own_keys_are_worked_on() -> None:
    bench = Bench(keys=lambda: [A, B], owns=lambda key: key == B)
    async with running(bench):
        bench.controller.wake(A)
        await settle()
    assert [key for _, key in bench.calls] == [B]


async def test_a_key_that_moved_away_while_it_waited_is_left_alone() -> None:
    mine = {A}
    bench = Bench(Result(requeue_after=5), owns=mine.__contains__)
    async with running(bench):
        bench.controller.wake(A)
        await bench.pass_time(1)
        mine.clear()
        await bench.pass_time(10)
    assert len(bench.calls) == 1


async def test_stop_lets_the_current_reconcile_end_and_starts_no_other() -> None:
    gate, ended = asyncio.Event(), []

    async def slow(key: Key) -> Result:
        await gate.wait()
        ended.append(key)
        return Result()

    controller = Controller("slow", slow, clock=ManualClock(), keys=lambda: [A, B], workers=1)
    task = asyncio.create_task(controller.run())
    await settle()
    controller.stop()
    await settle()
    assert not task.done()
    gate.set()
    await asyncio.wait_for(task, 1)
    assert ended == [A]


async def test_workers_share_keys_but_never_one_key() -> None:
    busy: set[Key] = set()
    most = 0
    keys = [Key("team", str(i)) for i in range(8)]

    async def work(key: Key) -> Result:
        nonlocal most
        assert key not in busy
        busy.add(key)
        most = max(most, len(busy))
        await asyncio.sleep(0)
        busy.discard(key)
        return Result()

    controller = Controller("many", work, clock=ManualClock(), keys=lambda: keys, workers=4)
    task = asyncio.create_task(controller.run())
    for _ in range(30):
        controller.wake(keys[0])
        await asyncio.sleep(0)
    await settle()
    controller.stop()
    await task
    assert most == 4


async def test_every_metric_is_emitted() -> None:
    bench = Bench()
    async with running(bench):
        bench.controller.wake(A)
        await settle()
    for name in METRIC_NAMES:
        assert bench.points(name)


async def test_a_bug_is_logged_with_its_trace() -> None:
    bench = Bench(AttributeError("no such field"))
    with capture_logs() as records:
        async with running(bench):
            bench.controller.wake(A)
            await bench.pass_time(1)
    assert len(bench.calls) == 2
    assert [(r["event"], r["key"], r["exc_info"]) for r in records] == [
        ("reconcile failed by a bug", "team/a", True)
    ]
