"""The reconcile loop on a manual clock: the next attempt after each outcome of a reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import DataPointT, HistogramDataPoint, InMemoryMetricReader
from structlog.testing import capture_logs

from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Controller, Result
from paddlewheel.control.metrics import METRIC_NAMES, RECONCILE_SECONDS, make_instruments
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.testkit.clock import ManualClock

A = Key("team", "a")
B = Key("team", "b")


class Harness:
    """A controller whose reconcile follows the script of the test, then succeeds."""

    def __init__(self, *script: Exception | Result, **options: Any) -> None:
        self.clock = ManualClock()
        self.calls: list[tuple[float, Key]] = []
        self.script = list(script)
        self.reader = InMemoryMetricReader()
        meter = MeterProvider(metric_readers=[self.reader]).get_meter("test")
        options = {"keys": list, "backoff": Backoff(base=1, cap=60), **options}
        self.controller = Controller("test", self.reconcile, clock=self.clock, meter=meter, **options)

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
        return {
            str((point.attributes or {}).get("result", "")): getattr(point, "value", 0)
            for point in data_points(self.reader, name)
        }


def data_points(reader: InMemoryMetricReader, name: str) -> Sequence[DataPointT]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    return next(metric for metric in metrics if metric.name == name).data.data_points


@asynccontextmanager
async def running(harness: Harness) -> AsyncIterator[None]:
    task = asyncio.create_task(harness.controller.run())
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
    ("a permanent failure waits for the cap", [Permanent("Bad", "fix it")], [0, 60], "permanent"),
    ("a bug backs off", [ZeroDivisionError(), ZeroDivisionError()], [0, 1, 3], "bug"),
    ("success forgets failures", [Retry("x"), Result(requeue_after=1), Retry("x")], [0, 1, 2, 3], "retry"),
]


@pytest.mark.parametrize(("name", "script", "moments", "result"), ENDINGS, ids=[case[0] for case in ENDINGS])
async def test_when_a_key_is_tried_again(
    name: str, script: list[Exception | Result], moments: list[float], result: str
) -> None:
    harness = Harness(*script)
    async with running(harness):
        harness.controller.wake(A)
        await harness.pass_time(70)
    assert [at for at, _ in harness.calls] == moments
    assert harness.points("paddlewheel.reconciles")[result] >= 1


async def test_a_wake_does_not_wait_for_the_backoff() -> None:
    harness = Harness(Permanent("Bad", "fix it"))
    async with running(harness):
        harness.controller.wake(A)
        await harness.pass_time(2)
        harness.controller.wake(A)
        await settle()
    assert [at for at, _ in harness.calls] == [0, 2]


Step = tuple[float, Exception | Result]
"""The time of a wake, and the outcome of its reconcile."""

WISHES: list[tuple[str, list[Step], list[float]]] = [
    ("a success ends the retries", [(0, Permanent("Bad", "fix it")), (2, Result())], [0, 2]),
    ("a success replaces what was asked for", [(0, Result(5)), (2, Result(9))], [0, 2, 11]),
    ("a success may ask for nothing more", [(0, Result(5)), (2, Result())], [0, 2]),
    ("an earlier wish displaces a later one", [(0, Result(60)), (2, Result(3))], [0, 2, 5]),
    ("a retry leaves an earlier wish", [(0, Result(5)), (2, Retry("Busy", after=40))], [0, 2, 5]),
    ("a retry comes before a later wish", [(0, Result(60)), (2, Retry("Busy"))], [0, 2, 3]),
    ("a permanent failure leaves an earlier wish", [(0, Result(5)), (2, Permanent("x", "y"))], [0, 2, 5]),
    ("a bug leaves an earlier wish", [(0, Result(3)), (2, ZeroDivisionError())], [0, 2, 3]),
    ("a retry replaces the retry before", [(0, Retry("x", after=9)), (2, Retry("x", after=4))], [0, 2, 6]),
    ("a retry of no seconds is a backoff", [(0, Retry("Busy", after=0))], [0, 1]),
]


@pytest.mark.parametrize(("name", "steps", "moments"), WISHES, ids=[case[0] for case in WISHES])
async def test_the_earliest_wish_counts_and_none_twice(
    name: str, steps: list[Step], moments: list[float]
) -> None:
    harness = Harness(*(ending for _, ending in steps))
    async with running(harness):
        for at, _ in steps:
            await harness.pass_time(int(at - harness.clock.monotonic()))
            harness.controller.wake(A)
        await harness.pass_time(100)
    assert [at for at, _ in harness.calls] == moments


async def test_a_delayed_wake_comes_in_any_case_and_displaces_nothing() -> None:
    harness = Harness(Result(8), Result(8))
    async with running(harness):
        harness.controller.wake(A, 5)
        harness.controller.wake(A)
        await harness.pass_time(1)
        harness.controller.wake(A, 2)
        harness.controller.wake(A, 7)
        await harness.pass_time(60)
    assert [at for at, _ in harness.calls] == [0, 3, 11]


async def test_keys_that_are_gone_are_forgotten() -> None:
    backoff: Backoff[Key] = Backoff(base=1, cap=60)
    there = [A]
    harness = Harness(Retry("x", after=20), Retry("x", after=20), backoff=backoff, keys=lambda: there)
    async with running(harness):
        harness.controller.wake(B)
        await harness.pass_time(1)
        assert (backoff.failures(A), backoff.failures(B)) == (1, 1)
        harness.controller.resync()
        assert (backoff.failures(A), backoff.failures(B)) == (1, 0)


async def test_a_key_of_another_replica_leaves_no_timer() -> None:
    mine = {A}
    harness = Harness(Retry("x", after=5), owns=mine.__contains__)
    async with running(harness):
        harness.controller.wake(A)
        await harness.pass_time(1)
        harness.controller.wake(A)
        mine.clear()
        await settle()
        mine.add(A)
        await harness.pass_time(60)
    assert [at for at, _ in harness.calls] == [0]


async def test_resync_wakes_every_key_at_start_and_on_the_timer() -> None:
    harness = Harness(keys=lambda: [A, B], resync=300.0)
    async with running(harness):
        await harness.pass_time(601)
    assert harness.calls == [(0, A), (0, B), (300, A), (300, B), (600, A), (600, B)]


async def test_a_change_overtakes_a_resync_whose_passes_wait_for_nothing() -> None:
    many = [Key("team", f"many-{number}") for number in range(100)]
    harness = Harness(keys=lambda: many)
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(harness.controller.run())
        while not harness.calls:
            await asyncio.sleep(0)
        harness.controller.wake(A)
        while len(harness.calls) <= len(many):
            await asyncio.sleep(0)
        harness.controller.stop()
        await loop
    order = [key for _, key in harness.calls]
    assert order.index(A) < 20
    assert set(order) == {A, *many}


async def test_only_own_keys_are_worked_on() -> None:
    harness = Harness(keys=lambda: [A, B], owns=lambda key: key == B)
    async with running(harness):
        harness.controller.wake(A)
        await settle()
    assert [key for _, key in harness.calls] == [B]


async def test_a_key_that_moved_away_while_it_waited_is_left_alone() -> None:
    mine = {A}
    harness = Harness(Result(requeue_after=5), owns=mine.__contains__)
    async with running(harness):
        harness.controller.wake(A)
        await harness.pass_time(1)
        mine.clear()
        await harness.pass_time(10)
    assert len(harness.calls) == 1


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
    harness = Harness()
    async with running(harness):
        harness.controller.wake(A)
        await settle()
    for name in METRIC_NAMES:
        assert harness.points(name)


async def test_a_bug_is_logged_with_its_trace() -> None:
    harness = Harness(AttributeError("no such field"))
    with capture_logs() as records:
        async with running(harness):
            harness.controller.wake(A)
            await harness.pass_time(1)
    assert len(harness.calls) == 2
    assert [(r["event"], r["key"], r["exc_info"]) for r in records] == [
        ("reconcile failed because of a bug", "team/a", True)
    ]


async def test_each_kind_of_failure_is_counted_and_only_a_bug_is_an_error() -> None:
    harness = Harness(KeyError("x"), Retry("Busy"), Permanent("Bad", "fix it"))
    with capture_logs() as records:
        async with running(harness):
            harness.controller.wake(A)
            await harness.pass_time(5)
    assert [at for at, _ in harness.calls] == [0, 1, 3]
    assert harness.points("paddlewheel.reconciles") == {"bug": 1, "retry": 1, "permanent": 1}
    assert [r["event"] for r in records if r["log_level"] == "error"] == ["reconcile failed because of a bug"]


def test_reconciles_of_a_few_milliseconds_and_of_a_second_are_told_apart() -> None:
    reader = InMemoryMetricReader()
    made = make_instruments(MeterProvider(metric_readers=[reader]).get_meter("test"), "test", lambda: 0)
    for seconds in (0.004, 1.0):
        made.record("success", seconds)
    (point,) = data_points(reader, RECONCILE_SECONDS)
    assert isinstance(point, HistogramDataPoint)
    assert sum(count > 0 for count in point.bucket_counts) == 2
