"""Joining requests and dividing answers."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider

from paddle_runtime.batcher import Batcher, BatchLimits
from paddle_runtime.domain import batches
from paddle_runtime.domain.model import ANY, Datatype, Refused, Signature, Tensors, TensorSpec
from paddle_runtime.metrics import Metrics
from paddle_runtime.ports import EngineDied, InferenceFailed
from paddlewheel.core.clock import SystemClock

X = (TensorSpec("x", Datatype.FP32, (ANY, ANY)),)
JOINS, ALONE = Signature(X, X, joins=True), Signature(X, X)


def row(value: float, rows: int = 1, width: int = 1) -> Tensors:
    return {"x": np.full((rows, width), value, np.float32)}


class FakePredictor:
    """Doubles its input. A negative value is refused; of NaN it dies; for a batch with 7 it gives one row.

    `go` keeps it busy while it is not set; `leaving` are cancelled when a run is refused.
    """

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.leaving: list[asyncio.Task[Tensors]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.busy = asyncio.Event()

    async def run(self, inputs: Tensors) -> Tensors:
        self.busy.set()
        await self.go.wait()
        self.runs.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            for task in self.leaving:
                task.cancel()
            await asyncio.sleep(0)
            raise InferenceFailed("negative")
        if np.isnan(inputs["x"]).any():
            raise EngineDied("killed")
        return {"x": (inputs["x"] * 2)[: 1 if (inputs["x"] == 7).any() else None]}


class Bench:
    """A batcher in front of a predictor that is busy with one request."""

    def __init__(
        self,
        signature: Signature = JOINS,
        *,
        rows: int = 8,
        queue: int = 16,
        predictors: int = 1,
    ) -> None:
        self.predictors = [FakePredictor() for _ in range(predictors)]
        self.predictor = self.predictors[0]
        metrics = Metrics(MeterProvider().get_meter("test"), lambda: 0, lambda: 0)
        limits = BatchLimits(rows, queue)
        self.batcher = Batcher(signature, self.predictors, limits, metrics, SystemClock())
        self.batcher.start()

    def ask(self, inputs: Tensors) -> asyncio.Task[Tensors]:
        return asyncio.ensure_future(self.batcher.infer(inputs))

    async def hold(self) -> asyncio.Task[Tensors]:
        """Occupy the predictor until `release`."""
        self.predictor.go.clear()
        first = self.ask(row(1))
        await self.predictor.busy.wait()
        return first

    async def hold_at_once(self) -> asyncio.Task[Tensors]:
        """As `hold`, but no time may pass: a loop that has nothing to do but wait for a timer fails."""
        self.predictor.go.clear()
        first = self.ask(row(1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert self.predictor.busy.is_set(), "it is with the predictor"
        return first

    def release(self) -> None:
        self.predictor.go.set()

    async def ask_behind(self, *inputs: Tensors) -> list[asyncio.Task[Tensors]]:
        """All of these wait until a first request has run, which comes first in what is returned."""
        asked = [await self.hold(), *map(self.ask, inputs)]
        await asyncio.sleep(0)
        self.release()
        return asked


async def test_what_waits_while_the_model_is_busy_runs_together() -> None:
    bench = Bench()
    asked = await bench.ask_behind(*(row(value, rows) for value, rows in ((2, 1), (3, 2), (4, 3))))

    answers = await asyncio.gather(*asked)

    assert [answer["x"].ravel().tolist() for answer in answers] == [[2], [4], [6, 6], [8, 8, 8]]
    assert bench.predictor.runs == [1, 6]
    await bench.batcher.stop()


async def test_only_equal_shapes_are_joined_and_nobody_starves() -> None:
    bench = Bench()
    asked = await bench.ask_behind(*(row(2, width=width) for width in (1, 2, 1, 2)))

    await asyncio.gather(*asked)

    assert bench.predictor.runs == [1, 2, 2]
    await bench.batcher.stop()


async def test_a_model_that_does_not_join_runs_each_alone() -> None:
    bench = Bench(ALONE)
    asked = await bench.ask_behind(*(row(2) for _ in range(3)))

    await asyncio.gather(*asked)

    assert bench.predictor.runs == [1, 1, 1, 1]
    await bench.batcher.stop()


async def test_a_request_larger_than_a_batch_still_runs() -> None:
    bench = Bench(rows=2)

    answer = await bench.ask(row(1, rows=5))

    assert len(answer["x"]) == 5
    await bench.batcher.stop()


async def test_the_bad_one_of_a_batch_is_refused_and_the_others_answered() -> None:
    bench = Bench()
    asked = await bench.ask_behind(*(row(value) for value in (2, -1, 3)))

    answers = await asyncio.gather(*asked, return_exceptions=True)

    refused = answers[2]
    assert isinstance(refused, Refused)
    assert refused.status == 422
    assert [answer["x"].tolist() for answer in answers if isinstance(answer, dict)] == [[[2]], [[4]], [[6]]]
    await bench.batcher.stop()


async def test_a_bad_request_costs_its_batch_few_runs() -> None:
    bench = Bench(rows=32, queue=32)
    asked = await bench.ask_behind(
        *(row(-1 if number == 11 else number) for number in range(32) if number != 7)
    )

    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(isinstance(answer, Refused) for answer in answers) == 1
    assert len(bench.predictor.runs) <= 1 + 1 + 2 * 5
    await bench.batcher.stop()


async def test_who_left_is_not_run_again_with_the_halves_of_a_batch() -> None:
    bench = Bench()
    asked = await bench.ask_behind(*(row(value) for value in (-1, 2, 3, 4)))
    bench.predictor.leaving = asked[3:]

    await asyncio.gather(*asked, return_exceptions=True)

    assert bench.predictor.runs == [1, 4, 2, 1, 1]
    await bench.batcher.stop()


async def test_a_run_that_gives_other_rows_than_it_got_is_divided() -> None:
    bench = Bench()
    asked = await bench.ask_behind(*(row(value) for value in (2, 7)))

    answers = await asyncio.gather(*asked)

    assert [answer["x"].tolist() for answer in answers] == [[[2]], [[4]], [[14]]]
    await bench.batcher.stop()


async def test_a_full_queue_refuses() -> None:
    bench = Bench(queue=2)
    first = await bench.hold()
    waiting = [bench.ask(row(2)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(Refused, match="2 requests wait already") as refused:
        await bench.batcher.infer(row(3))

    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    bench.release()
    await asyncio.gather(first, *waiting)
    await bench.batcher.stop()


async def test_who_gives_up_is_not_run() -> None:
    bench = Bench()
    first = await bench.hold()
    leaving, staying = bench.ask(row(2)), bench.ask(row(3))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    bench.release()

    await asyncio.gather(first, staying)

    assert bench.predictor.runs == [1, 1]
    await bench.batcher.stop()


async def test_who_gives_up_leaves_room_in_the_queue() -> None:
    bench = Bench(queue=1)
    first = await bench.hold()
    leaving = bench.ask(row(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])

    staying = bench.ask(row(3))
    await asyncio.sleep(0)
    bench.release()

    assert (await staying)["x"].tolist() == [[6]]
    await first
    await bench.batcher.stop()


async def test_what_waits_runs_or_comes_when_the_batcher_stops_is_refused() -> None:
    bench = Bench()
    running = await bench.hold()
    waiting = bench.ask(row(2))
    await asyncio.sleep(0)

    await bench.batcher.stop()

    for asked in (running, waiting, bench.ask(row(3))):
        with pytest.raises(Refused, match="the server is stopping") as refused:
            await asyncio.wait_for(asked, 5)
        assert refused.value.status == 503


async def test_what_waits_is_answered_when_the_batcher_drains() -> None:
    bench = Bench(ALONE)
    asked = [await bench.hold(), bench.ask(row(2)), bench.ask(row(3))]
    await asyncio.sleep(0)

    draining = asyncio.create_task(bench.batcher.drain())
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="the server is stopping"):
        await bench.batcher.infer(row(4))
    bench.release()
    await asyncio.wait_for(draining, 5)

    assert [(await one)["x"].tolist() for one in asked] == [[[2]], [[4]], [[6]]]


async def test_a_predictor_that_died_gets_no_more_and_the_others_finish() -> None:
    bench = Bench(ALONE, predictors=2)
    bench.predictors[1].go.clear()
    asked = [bench.ask(row(value)) for value in (float("nan"), 1, 2, 3)]
    await asyncio.wait_for(bench.predictors[1].busy.wait(), 5)

    draining = asyncio.create_task(bench.batcher.drain())
    bench.predictors[1].go.set()
    await asyncio.wait_for(draining, 5)

    with pytest.raises(EngineDied):
        await asked[0]
    assert [(await one)["x"].tolist() for one in asked[1:]] == [[[2]], [[4]], [[6]]]
    assert (len(bench.predictors[0].runs), len(bench.predictors[1].runs)) == (1, 3)


async def test_draining_ends_when_nobody_is_left_to_run_what_waits() -> None:
    bench = Bench(ALONE)
    dying, waiting = bench.ask(row(float("nan"))), bench.ask(row(2))
    await asyncio.wait([dying])

    await asyncio.wait_for(bench.batcher.drain(), 5)
    await bench.batcher.stop()

    with pytest.raises(Refused, match="the server is stopping"):
        await waiting
    with pytest.raises(EngineDied):
        await dying


async def test_after_a_joined_run_the_next_request_runs_without_a_timer() -> None:
    bench = Bench()
    await asyncio.gather(*await bench.ask_behind(row(2), row(3)))
    bench.predictor.busy.clear()

    alone = await bench.hold_at_once()
    late = bench.ask(row(5))
    bench.release()
    await asyncio.gather(alone, late)

    assert bench.predictor.runs == [1, 2, 1, 1]
    await bench.batcher.stop()


@pytest.mark.parametrize(
    ("keys", "rows", "most", "chosen"),
    [
        ([((1,),), ((1,),), ((1,),)], [1, 1, 1], 2, [0, 1]),
        ([((1,),), ((2,),), ((1,),)], [1, 1, 1], 8, [0, 2]),
        ([((1,),), ((1,),), ((1,),)], [3, 6, 5], 8, [0, 2]),
        ([None, None], [1, 1], 8, [0]),
        ([((1,),), None], [1, 0], 8, [0]),
    ],
)
def test_who_runs_with_the_first(
    keys: list[batches.Key | None], rows: list[int], most: int, chosen: list[int]
) -> None:
    assert batches.count_joined(keys, rows, most) == chosen


def test_inputs_with_different_first_dimensions_are_not_joined() -> None:
    tensors = {"x": np.zeros((2, 1)), "y": np.zeros((3, 1))}

    assert batches.rows_of(tensors) == 0
    assert batches.key_of(tensors, JOINS) is None
