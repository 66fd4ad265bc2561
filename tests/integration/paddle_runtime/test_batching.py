"""Requests that are joined get the answers they would get alone; what cannot be joined is not."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from tests.integration.paddle_runtime.conftest import Answer, Client, Runtime, Shared, Start
from tests.integration.paddle_runtime.test_protocol import images, tensor

from paddlewheel.testkit.wait import eventually

ROWS = "paddlewheel_runtime_batch_rows"


def numbers(answer: Answer) -> Any:
    assert answer.status == 200, answer.raw
    (output,) = answer.json["outputs"]
    return np.reshape(output["data"], output["shape"])


async def runs(client: Client) -> float:
    """0 before the first, when there is no series yet."""
    try:
        return await client.metric(f"{ROWS}_count")
    except LookupError:
        return 0


async def test_joined_requests_get_the_answers_they_get_alone(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", MAX_BATCH_ROWS=16, MAX_BATCH_WAIT=0.05)
    expected = np.load(models / "digits.npz")
    sizes = [1, 2, 3, 1, 5, 1] * 6
    ends = np.cumsum(sizes) % (len(expected["images"]) - 5)

    answers = await asyncio.gather(
        *(
            runtime.infer(images(expected["images"][end : end + size].tolist()))
            for end, size in zip(ends, sizes, strict=True)
        )
    )

    for answer, end, size in zip(answers, ends, sizes, strict=True):
        np.testing.assert_allclose(
            numbers(answer), expected["answers"][end : end + size], rtol=1e-4, atol=1e-5
        )
    assert await runtime.metric(f"{ROWS}_sum") == sum(sizes)
    assert await runs(runtime) < len(sizes)


async def test_a_model_whose_rows_depend_on_each_other_is_never_joined(shared: Shared) -> None:
    client = shared("mixing")
    before = await runs(client)
    body = {"inputs": [tensor("x", "FP32", [[1.0, 2.0, 3.0]])]}

    answers = await asyncio.gather(*(client.infer(body) for _ in range(12)))

    for answer in answers:
        np.testing.assert_allclose(numbers(answer), [[1.0, 1.0, 1.0]])
    assert await runs(client) == before + 12


async def test_a_model_with_a_fixed_first_dimension_is_served_alone(shared: Shared) -> None:
    client = shared("fixed")
    body = {"inputs": [tensor("x", "FP32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])]}

    answers = await asyncio.gather(*(client.infer(body) for _ in range(4)))

    for answer in answers:
        np.testing.assert_allclose(numbers(answer), [[2, 4, 6], [8, 10, 12]])


async def test_one_bad_request_does_not_fail_those_joined_with_it(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "mixed", MAX_BATCH_ROWS=16, MAX_BATCH_WAIT=0.05)

    def body(word: int) -> dict[str, Any]:
        return {
            "inputs": [
                tensor("flag", "BOOL", [[True]]),
                tensor("ids", "INT64", [[word]]),
                tensor("numbers", "FP32", [[1, 2, 3]]),
            ]
        }

    words = [*range(10), 100, *range(10, 20)]
    answers = await asyncio.gather(*(runtime.infer(body(word)) for word in words))

    assert [answer.status for answer in answers] == [422 if word == 100 else 200 for word in words]
    assert [a.json["outputs"][1]["data"] for a in answers if a.status == 200] == [
        [w] for w in words if w != 100
    ]


async def test_a_full_queue_answers_503_and_the_server_stays_responsive(start: Start, models: Path) -> None:
    """Metrics are answered while the model does not."""
    runtime: Runtime = await start(models / "slow", MAX_BATCH_ROWS=1, MAX_QUEUE=2)
    zeros = {"name": "x", "datatype": "FP32", "shape": [1, 256], "data": [0.0] * 256}
    body = {"inputs": [zeros]}

    async def accepted() -> Answer:
        """Three at once may find the queue full before the model has taken the first one out of it."""
        while (answer := await runtime.infer(body)).status == 503:
            await asyncio.sleep(0.05)
        return answer

    async def queue_is_full() -> bool:
        return await runtime.metric("paddlewheel_runtime_queued_requests") == 2

    (worker,) = runtime.workers
    os.kill(worker, signal.SIGSTOP)
    try:
        waiting = [asyncio.create_task(accepted()) for _ in range(3)]
        await eventually(queue_is_full, what="the queue is full")
        refused = await runtime.infer(body)
    finally:
        os.kill(worker, signal.SIGCONT)

    assert refused.status == 503
    assert refused.headers["Retry-After"] == "1"
    assert "2 requests wait already" in refused.error
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200, 200]
