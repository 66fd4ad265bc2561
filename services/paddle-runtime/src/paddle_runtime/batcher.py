"""The queue in front of the model: bounded, and joined into batches while the model is busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paddle_runtime.domain import batches
from paddle_runtime.domain.model import Refused, Signature, Tensors, busy
from paddle_runtime.metrics import Metrics
from paddle_runtime.ports import EngineDied, InferenceFailed, Predictor
from paddlewheel.core.clock import Clock
from paddlewheel.core.tasks import end


@dataclass(frozen=True)
class BatchLimits:
    """`queue`: requests."""

    rows: int
    queue: int


@dataclass(frozen=True, eq=False)
class _Waiting:
    tensors: Tensors
    key: batches.Key | None
    rows: int
    answer: asyncio.Future[Tensors] = field(repr=False)


class Batcher:
    """Runs requests on predictors, one batch at a time on each.

    A free predictor takes what waits at once, and never waits for more: what comes while it runs is the next
    batch, so batches grow with the load, and no request waits while a predictor is free.
    """

    def __init__(
        self,
        signature: Signature,
        predictors: Sequence[Predictor],
        limits: BatchLimits,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._signature = signature
        self._limits = limits
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._predictors = predictors
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to run requests."""
        self._tasks = [asyncio.create_task(self._work(predictor)) for predictor in self._predictors]

    async def drain(self) -> None:
        """Refuse new requests; return when the waiting requests are answered, or no predictor is left."""
        self._closed = True
        self._arrived.set()
        await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Refuse new, waiting and running requests."""
        self._closed = True
        await end(*self._tasks)
        _fail(self._queue, _stopping())
        self._queue.clear()

    def check_room(self) -> None:
        """Raises Refused: a request would not be accepted now."""
        if self._closed:
            raise _stopping()
        if len(self._queue) >= self._limits.queue:
            raise busy(f"{self._limits.queue} requests wait already: try again")

    async def infer(self, tensors: Tensors) -> Tensors:
        """Outputs by name. A caller that is cancelled gives up its place.

        Raises:
            Refused: the queue is full, or the model failed on these values.
            EngineDied: while this request ran.
        """
        self.check_room()
        key = batches.key_of(tensors, self._signature)
        answer: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(tensors, key, batches.rows_of(tensors), answer)
        self._queue.append(waiting)
        self._arrived.set()
        try:
            return await answer
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._queue.remove(waiting)
            raise

    async def _work(self, predictor: Predictor) -> None:
        """Until the batcher is closed and nothing waits, or the predictor dies."""
        while await self._is_asked():
            batch = self._take()
            try:
                await self._run(predictor, batch)
            except EngineDied as error:
                _fail(batch, error)
                return
            finally:
                _fail(batch, _stopping())

    async def _is_asked(self) -> bool:
        """Wait for a request; False when there will be none."""
        while not self._queue:
            if self._closed:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return True

    def _take(self) -> list[_Waiting]:
        """The first request and the requests that can run with it; empty when all were cancelled."""
        if not self._queue:
            return []
        waiting = list(self._queue)
        keys, rows = [one.key for one in waiting], [one.rows for one in waiting]
        chosen = [waiting[index] for index in batches.count_joined(keys, rows, self._limits.rows)]
        taken = {id(one) for one in chosen}
        self._queue = deque(one for one in waiting if id(one) not in taken)
        return chosen

    async def _run(self, predictor: Predictor, batch: Sequence[_Waiting]) -> None:
        """Raises EngineDied."""
        batch = [one for one in batch if not one.answer.done()]
        if not batch:
            return
        began = self._clock.monotonic()
        try:
            outputs = await predictor.run(batches.join([one.tensors for one in batch]))
            answers = batches.split(outputs, [one.rows for one in batch])
        except (InferenceFailed, batches.NotSplit) as error:
            await self._run_halves(predictor, batch, error)
        except EngineDied:
            raise
        except Exception as error:
            _fail(batch, error)
        else:
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)
            self._metrics.ran(sum(one.rows for one in batch), self._clock.monotonic() - began)

    async def _run_halves(self, predictor: Predictor, batch: Sequence[_Waiting], error: Exception) -> None:
        """The values of one request must not fail the others that were joined with it."""
        if len(batch) == 1:
            _fail(batch, Refused(f"the model cannot run these inputs: {error}", 422))
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            await self._run(predictor, half)


def _stopping() -> Refused:
    return busy("the server is stopping")


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for one in batch:
        if not one.answer.done():
            one.answer.set_exception(error)
