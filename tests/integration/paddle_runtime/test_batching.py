"""Requests that are joined get the answers they would get alone; what cannot be joined is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.paddle_runtime.conftest import (
    Answer,
    Client,
    Runtime,
    Shared,
    Start,
    images,
    mixed,
    request_head,
    tensor,
)

from paddlewheel.testkit.wait import eventually

ROWS = "paddlewheel_runtime_batch_rows"


def numbers(answer: Answer) -> Any:
    assert answer.status == 200, answer.raw
    (output,) = answer.json["outputs"]
    return np.reshape(output["data"], output["shape"])


async def runs(client: Client) -> float:
    return await client.count(f"{ROWS}_count")


async def asked_at_once(runtime: Runtime, bodies: Sequence[object], held: int) -> list[Answer]:
    """Answers to requests. The first runs, with tensors of `held` bytes, while the others wait."""

    async def runs_alone() -> bool:
        """Otherwise the model could have taken several requests that arrive together."""
        pending = await runtime.metric("paddlewheel_runtime_pending_bytes")
        return pending == held and await runtime.is_waiting(0)

    with runtime.busy():
        asked = [asyncio.create_task(runtime.infer(bodies[0]))]
        await eventually(runs_alone, what="the first is with the model")
        asked += [asyncio.create_task(runtime.infer(body)) for body in bodies[1:]]
        await eventually(lambda: runtime.is_waiting(len(bodies) - 1), what="all but the first wait")
    return await asyncio.gather(*asked)


async def test_joined_requests_get_the_answers_they_get_alone(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", MAX_BATCH_ROWS=16)
    expected = np.load(models / "digits.npz")
    sizes = [1, 2, 3, 1, 5, 1] * 6
    ends = np.cumsum(sizes) % (len(expected["images"]) - 5)

    bodies = [
        images(expected["images"][end : end + size].tolist()) for end, size in zip(ends, sizes, strict=True)
    ]

    answers = await asked_at_once(runtime, bodies, expected["images"][:1].astype(np.float32).nbytes)

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


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rows", "alone"),
    [
        ("centred", tensor("ids", "INT64", [[1, 2, 3]]), [[0, 0, 0]]),
        ("shares", tensor("x", "FP32", [[1.0, 2.0, 3.0]]), [[1e-4, 1e-4, 1e-4]]),
    ],
)
async def test_neither_are_integers_nor_small_numbers_that_depend_on_other_rows(
    start: Start, models: Path, name: str, rows: dict[str, Any], alone: list[list[float]]
) -> None:
    runtime: Runtime = await start(models / name)
    others = {**rows, "data": [[70, 80, 90]]}

    held = np.size(rows["data"]) * (8 if rows["datatype"] == "INT64" else 4)

    answers = await asked_at_once(runtime, [{"inputs": [one]} for one in [rows, others] * 6], held)

    for answer in answers[::2]:
        np.testing.assert_allclose(numbers(answer), alone, rtol=1e-6)
    assert await runs(runtime) == 12


async def test_a_request_that_needs_too_much_memory_is_refused_and_those_joined_with_it_are_not(
    start: Start, models: Path
) -> None:
    """8 PB: more than an address space, so no machine gives it."""
    runtime: Runtime = await start(models / "hungry", MAX_BATCH_ROWS=16)
    sizes = [*range(5), 10**15, *range(5, 10)]
    bodies = [{"inputs": [tensor("sizes", "INT64", [[size]])]} for size in sizes]

    (worker,) = runtime.workers

    answers = await asked_at_once(runtime, bodies, np.dtype(np.int64).itemsize)

    assert [answer.status for answer in answers] == [422 if size == 10**15 else 200 for size in sizes]
    assert "not enough memory" in next(answer for answer in answers if answer.status == 422).error
    assert runtime.workers == [worker]


@pytest.mark.long
async def test_a_model_with_a_fixed_first_dimension_is_served_alone(shared: Shared) -> None:
    client = shared("fixed")
    body = {"inputs": [tensor("x", "FP32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])]}

    answers = await asyncio.gather(*(client.infer(body) for _ in range(4)))

    for answer in answers:
        np.testing.assert_allclose(numbers(answer), [[2, 4, 6], [8, 10, 12]])


async def test_one_bad_request_does_not_fail_those_joined_with_it(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "mixed", MAX_BATCH_ROWS=16)
    words = [*range(10), 100, *range(10, 20)]

    answers = await asked_at_once(runtime, [mixed(word) for word in words], held=1 + 8 + 3 * 4)

    assert [answer.status for answer in answers] == [422 if word == 100 else 200 for word in words]
    assert [a.json["outputs"][1]["data"] for a in answers if a.status == 200] == [
        [w] for w in words if w != 100
    ]


async def test_a_full_queue_answers_503_and_the_server_stays_responsive(start: Start, models: Path) -> None:
    """Metrics are answered while the model does not."""
    runtime: Runtime = await start(models / "slow", MAX_BATCH_ROWS=1, MAX_QUEUE=2)
    body = {"inputs": [tensor("x", "FP32", [[0.0] * 256])]}

    async def accepted() -> Answer:
        """Three at once may find the queue full before the model has taken the first one out of it."""
        while (answer := await runtime.infer(body)).status == 503:
            await asyncio.sleep(0.05)
        return answer

    with runtime.busy():
        asked = [asyncio.create_task(accepted()) for _ in range(3)]
        await eventually(lambda: runtime.is_waiting(2), what="the queue is full")
        refused = await runtime.infer(body)
        unread = await head_alone(runtime)

    assert refused.status == 503
    assert refused.headers["Retry-After"] == "1"
    assert "2 requests wait already" in refused.error
    assert unread.startswith("HTTP/1.1 503 "), "it is refused before its body has come"
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200, 200, 200]


async def head_alone(client: Client) -> str:
    """The answer to a request whose body never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request_head(1000))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 90)
    writer.close()
    await writer.wait_closed()
    return head.decode()
