"""Starting, stopping, and models that cannot be served."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import orjson
import pytest
from tests.integration.paddle_runtime.conftest import MODEL, ONE, Runtime, Start, request_head, tensor

from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.wait import eventually


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


async def test_connections_are_accepted_only_when_the_model_is_served(
    start: Start, models: Path, tmp_path: Path
) -> None:
    """A probe by TCP must not succeed before: an image of one's own with a model has only such probes."""
    runtime: Runtime = await start(tmp_path / "missing", ready=False, FAULT_DELAY=300)

    async def failed() -> bool:
        return "failed: " in await runtime.readiness()

    await eventually(failed, what="the replica reports why it cannot serve")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", runtime.port)

    served: Runtime = await start(models / "digits")

    assert (await served.get("v2/health/ready")).status == 200


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("MODEL_DIGEST", "md5:1", "must be sha256: and 64 hexadecimal digits"),
        ("MODEL_NAME", "a/b", "PADDLE_RUNTIME_MODEL_NAME"),
        ("MAX_QUEUE", "0", "PADDLE_RUNTIME_MAX_QUEUE"),
        ("MAX_PENDING_MIB", "63", "must be at least PADDLE_RUNTIME_MAX_BODY_MIB, 64"),
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
    body, began, go_on = orjson.dumps(ONE), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        began.set()
        await go_on.wait()
        yield body[10:]

    async def post() -> tuple[int, str]:
        async with runtime.session.post(f"{runtime.url}/{MODEL}/infer", data=slowly()) as answer:
            return answer.status, answer.headers.get("Connection", "")

    async def draining() -> bool:
        return "draining" in await runtime.readiness()

    request = asyncio.create_task(post())
    await began.wait()
    stopping = asyncio.create_task(runtime.service.stop())
    await eventually(draining, every=0.01, what="not ready any more")
    go_on.set()

    assert await request == (200, "close")
    assert await stopping == 0


@pytest.mark.long
async def test_slow_clients_are_given_up_and_hold_nobody_back(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", BODY_TIMEOUT=1)
    slow = [await asyncio.open_connection("127.0.0.1", runtime.port) for _ in range(100)]
    for _, writer in slow:
        writer.write(request_head(1000) + b"{")

    assert (await runtime.infer(ONE)).status == 200
    for reader, writer in slow:
        answer = (await asyncio.wait_for(reader.read(), 90)).decode()
        assert answer.startswith("HTTP/1.1 408 ")
        assert "did not arrive within 1 s" in answer
        writer.close()
        await writer.wait_closed()


@pytest.mark.long
async def test_connections_without_a_request_are_closed(start: Start, models: Path) -> None:
    """Neither one that sends nothing, nor a head without an end, nor one that had an answer stays."""
    runtime: Runtime = await start(models / "digits", IDLE_TIMEOUT=1)
    whole = f"GET /{MODEL} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    for sent in (b"", whole[:-4] + b"\r\nX: ", whole, whole + whole[:-2]):
        reader, writer = await asyncio.open_connection("127.0.0.1", runtime.port)
        writer.write(sent)
        answers = await asyncio.wait_for(reader.read(), 90)
        assert answers.count(b"HTTP/1.1 200 ") == sent.count(whole)
        writer.close()
        await writer.wait_closed()


@pytest.mark.long
async def test_who_does_not_read_an_answer_is_cut_off(start: Start, models: Path) -> None:
    """20 MB: more than the kernel keeps for a connection."""
    runtime: Runtime = await start(models / "wide", ANSWER_TIMEOUT=1)
    rows = {"inputs": [tensor("x", "FP32", [[0.5]] * 50)]}
    body = orjson.dumps(rows)
    reader, writer = await asyncio.open_connection("127.0.0.1", runtime.port)

    async def cut_off() -> bool:
        line = 'paddlewheel_runtime_request_duration_seconds_count{outcome="gone",protocol="oip"}'
        return await runtime.count(line) == 1

    writer.write(request_head(len(body)) + body)
    await eventually(cut_off, what="the client is cut off")

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(20_000_000), 90)
    assert await runtime.metric("paddlewheel_runtime_pending_bytes") == 0
    writer.close()
    assert (await runtime.infer(rows)).status == 200
    assert "Traceback" not in runtime.log


@pytest.mark.long
async def test_the_number_of_connections_is_limited(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", MAX_CONNECTIONS=5)
    opened = [await asyncio.open_connection("127.0.0.1", runtime.port) for _ in range(5)]

    refused = (await asyncio.wait_for(opened[-1][0].read(), 90)).decode()
    assert (await runtime.infer(ONE)).status == 200, "who has a connection goes on"
    for _, writer in opened:
        writer.close()

    async def accepted() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", runtime.port)
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        try:
            return (await reader.read()).startswith(b"HTTP/1.1 200 ")
        except ConnectionResetError:
            return False
        finally:
            writer.close()

    await eventually(accepted, what="there is room again")
    assert refused.startswith("HTTP/1.1 503 ")
    assert "Retry-After: 1" in refused


@pytest.mark.long
async def test_a_run_that_never_ends_ends_the_process(start: Start, models: Path, tmp_path: Path) -> None:
    (tmp_path / "termination-log").touch()
    runtime: Runtime = await start(models / "digits", RUN_TIMEOUT=1)
    (worker,) = runtime.workers

    os.kill(worker, signal.SIGSTOP)
    answer = await asyncio.wait_for(runtime.infer(ONE), 90)

    assert answer.status == 503
    assert await runtime.wait_exit() == 1
    assert "a run took longer than 1 s" in (tmp_path / "termination-log").read_text()
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.long
async def test_a_request_that_runs_when_its_time_to_drain_is_over_is_answered(
    start: Start, models: Path
) -> None:
    runtime: Runtime = await start(models / "digits", DRAIN_TIMEOUT=0.1, MAX_BATCH_ROWS=1)
    (worker,) = runtime.workers

    os.kill(worker, signal.SIGSTOP)
    asked = [asyncio.create_task(runtime.infer(ONE)) for _ in range(2)]
    await eventually(lambda: runtime.is_waiting(1), what="one runs, one waits")
    code = await runtime.service.stop()

    assert [(await one).status for one in asked] == [503, 503]
    assert code == 0


@pytest.mark.long
async def test_the_other_workers_finish_when_one_dies(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", WORKERS=2, MAX_BATCH_ROWS=1)
    dying, living = runtime.workers

    async def failed() -> bool:
        return "failed: the process that runs the model ended" in await runtime.readiness()

    for worker in (dying, living):
        os.kill(worker, signal.SIGSTOP)
    asked = [asyncio.create_task(runtime.infer(ONE)) for _ in range(4)]
    await eventually(lambda: runtime.is_waiting(2), what="two run, two wait")
    os.kill(dying, signal.SIGKILL)
    await eventually(failed, what="not ready")
    late = await runtime.infer(ONE)
    os.kill(living, signal.SIGCONT)

    assert sorted([(await one).status for one in asked]) == [200, 200, 200, 503]
    assert late.status == 503
    assert await runtime.wait_exit() == 1


async def test_the_servers_environment_cannot_be_read_by_the_same_user(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The model runs as the same user without capabilities, as in a pod, and the environment has keys."""
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    http_port, port = free_ports(2)
    own = {
        "MODEL_URI": tmp_path / "none",
        "HTTP_PORT": http_port,
        "METRICS_PORT": port,
        "FAULT_DELAY": 300,
        "STORE_SECRET_KEY": "hidden",
    }
    env = {**os.environ, **{f"PADDLE_RUNTIME_{name}": str(value) for name, value in own.items()}}

    def read(pid: int) -> bytes:
        return subprocess.run([*bare, "cat", f"/proc/{pid}/environ"], capture_output=True, check=False).stdout

    async def answers() -> bool:
        try:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    server = subprocess.Popen([*bare, sys.executable, "-m", "paddle_runtime"], env=env)
    other = subprocess.Popen([*bare, "sleep", "300"], env=env)
    try:
        await eventually(answers, what="the server runs")
        assert b"hidden" in read(other.pid)
        assert read(server.pid) == b""
    finally:
        for process in (server, other):
            process.kill()
            process.wait()


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
