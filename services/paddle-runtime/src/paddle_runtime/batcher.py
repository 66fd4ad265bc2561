"""The queue in front of the model: bounded, and joined into batches while the model is busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paddle_runtime.domain import batches
from paddle_runtime.domain.model import Refused, Signature, Tensors
from paddle_runtime.metrics import Metrics
from paddle_runtime.ports import InferenceFailed, Predictor
from paddlewheel.core.clock import Clock
from paddlewheel.core.tasks import end

RETRY_AFTER = 1
"""Seconds that a client is asked to wait when the queue is full."""


@dataclass(frozen=True)
class BatchLimits:
    """`wait`: seconds; `queue`: requests."""

    rows: int
    wait: float
    queue: int


@dataclass(frozen=True, eq=False)
class _Waiting:
    tensors: Tensors
    key: batches.Shapes | None
    rows: int
    answer: asyncio.Future[Tensors] = field(repr=False)


class Batcher:
    """Runs requests on predictors, one batch at a time on each.

    A free predictor takes what waits at once. Only after a batch that joined several requests it waits a
    moment for more, so a lone client never pays for batching.
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
        self._predictors = predictors
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to run requests."""
        self._tasks = [asyncio.create_task(self._work(predictor)) for predictor in self._predictors]

    async def stop(self) -> None:
        """End the workers; requests that still wait are refused."""
        await end(*self._tasks)
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                waiting.answer.set_exception(Refused("the server is stopping", 503, RETRY_AFTER))

    async def infer(self, tensors: Tensors) -> Tensors:
        """Outputs by name. A caller that is cancelled gives up its place.

        Raises:
            Refused: the queue is full, or the model failed on these values.
        """
        if len(self._queue) >= self._limits.queue:
            raise Refused(f"{self._limits.queue} requests wait already: try again", 503, RETRY_AFTER)
        key = batches.key_of(tensors, self._signature)
        answer: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(tensors, key, batches.rows_of(tensors), answer))
        self._arrived.set()
        return await answer

    async def _work(self, predictor: Predictor) -> None:
        loaded = False
        while True:
            await self._wait_for_request()
            if loaded:
                await self._wait_for_more()
            batch = self._take()
            loaded = len(batch) > 1
            if batch:
                await self._run(predictor, batch)

    async def _wait_for_request(self) -> None:
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()

    async def _wait_for_more(self) -> None:
        """Until a full batch waits, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.wait):
                while sum(one.rows for one in self._queue) < self._limits.rows:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _take(self) -> list[_Waiting]:
        """The first request and those that can run with it; nothing when all were given up."""
        waiting = [one for one in self._queue if not one.answer.done()]
        if not waiting:
            self._queue.clear()
            return []
        keys, rows = [one.key for one in waiting], [one.rows for one in waiting]
        chosen = [waiting[index] for index in batches.count_joined(keys, rows, self._limits.rows)]
        taken = {id(one) for one in chosen}
        self._queue = deque(one for one in waiting if id(one) not in taken)
        return chosen

    async def _run(self, predictor: Predictor, batch: Sequence[_Waiting]) -> None:
        began = self._clock.monotonic()
        try:
            outputs = await predictor.run(batches.join([one.tensors for one in batch]))
            answers = batches.split(outputs, [one.rows for one in batch])
        except InferenceFailed as error:
            await self._run_each(predictor, batch, error)
        except Exception as error:
            _fail(batch, error)
        else:
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)
            self._metrics.ran(sum(one.rows for one in batch), self._clock.monotonic() - began)

    async def _run_each(
        self, predictor: Predictor, batch: Sequence[_Waiting], error: InferenceFailed
    ) -> None:
        """The values of one request must not fail the others that were joined with it."""
        if len(batch) == 1:
            _fail(batch, Refused(f"the model cannot run these inputs: {error}", 422))
            return
        for one in batch:
            await self._run(predictor, [one])


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for one in batch:
        if not one.answer.done():
            one.answer.set_exception(error)
