"""Starting, stopping, and models that cannot be served."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest
from tests.integration.paddle_runtime.conftest import Runtime, Start
from tests.integration.paddle_runtime.test_protocol import MODEL, images

from paddlewheel.testkit.wait import eventually

ONE = images([0.0] * 64, [1, 1, 8, 8])


def empty(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


def two_programs(model: Path) -> None:
    for ending in ("json", "pdiparams"):
        shutil.copy(model / f"model.{ending}", model / f"other.{ending}")


def damaged_program(model: Path) -> None:
    (model / "model.json").write_text('{"base_code": {}}')


def damaged_weights(model: Path) -> None:
    (model / "model.pdiparams").write_bytes(b"not weights")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (empty, "NoModel: the model must be a directory with NAME.pdmodel or NAME.json"),
        (shutil.rmtree, "is not a directory: check PADDLE_RUNTIME_MODEL_URI"),
        (two_programs, "one program only; found model.json, other.json"),
        (damaged_program, "LoadFailed: model.json"),
        (damaged_weights, "LoadFailed: model.json"),
    ],
)
async def test_a_model_that_cannot_be_served_ends_the_process_with_the_reason(
    start: Start, copy_of: Callable[[str], Path], damage: Callable[[Path], None], words: str
) -> None:
    model = copy_of("digits")
    damage(model)

    runtime: Runtime = await start(model, ready=False, FAULT_DELAY=0)

    assert await runtime.wait_exit() == 3
    assert words in runtime.log


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("MODEL_DIGEST", "md5:1", "must be sha256: and 64 hexadecimal digits"),
        ("MODEL_NAME", "a/b", "PADDLE_RUNTIME_MODEL_NAME"),
        ("MAX_QUEUE", "0", "PADDLE_RUNTIME_MAX_QUEUE"),
    ],
)
async def test_invalid_settings_are_named(
    start: Start, models: Path, setting: str, value: str, words: str
) -> None:
    runtime: Runtime = await start(models / "digits", ready=False, **{setting: value})

    assert await runtime.wait_exit() == 2
    assert words in runtime.log


async def test_running_requests_end_before_the_process_does(start: Start, models: Path) -> None:
    """SIGTERM while a request's body is still on its way: it is answered, and the connection closed."""
    runtime: Runtime = await start(models / "digits", DRAIN_DELAY=0.2)
    body, go_on = orjson.dumps(ONE), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        await go_on.wait()
        yield body[10:]

    async def post() -> tuple[int, str]:
        async with runtime.session.post(f"{runtime.url}/{MODEL}/infer", data=slowly()) as answer:
            return answer.status, answer.headers.get("Connection", "")

    async def draining() -> bool:
        return "draining" in await runtime.readiness()

    request = asyncio.create_task(post())
    stopping = asyncio.create_task(runtime.service.stop())
    await eventually(draining, every=0.01, what="not ready any more")
    go_on.set()

    assert await request == (200, "close")
    assert await stopping == 0


async def test_slow_clients_are_given_up_and_hold_nobody_back(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", BODY_TIMEOUT=1)
    head = f"POST /{MODEL}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode()
    slow = [await asyncio.open_connection("127.0.0.1", runtime.port) for _ in range(100)]
    for _, writer in slow:
        writer.write(head)

    assert (await runtime.infer(ONE)).status == 200
    for reader, writer in slow:
        answer = (await asyncio.wait_for(reader.read(), 30)).decode()
        assert answer.startswith("HTTP/1.1 408 ")
        assert "did not arrive within 1 s" in answer
        writer.close()
        await writer.wait_closed()


async def test_the_process_ends_when_the_model_process_dies(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits")
    (worker,) = runtime.workers

    os.kill(worker, signal.SIGKILL)

    assert await runtime.wait_exit() == 1
    assert "the process that runs the model ended" in runtime.log


async def test_the_model_process_ends_when_the_server_is_killed(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits")
    (worker,) = runtime.workers

    await runtime.service.kill()

    await eventually(lambda: not Path(f"/proc/{worker}").exists(), what="the worker is gone")
