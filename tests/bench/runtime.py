"""The Paddle runtime against calling the predictor in-process, and beside MLServer where it is given."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from tests.bench.progress import note
from tests.bench.rows import Row

from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.wait import eventually

HERE = Path(__file__).parent
SECONDS, ROUNDS, CLIENTS = 5.0, 3, 32
MLSERVER = "BENCH_MLSERVER"
"""Environment variable: the program `mlserver` of a Python that has paddlepaddle too; for information."""


@dataclass(frozen=True)
class Figures:
    """Seconds and calls a second."""

    p95: float
    rate: float


async def measure() -> list[Row]:
    """Floor and runtime in turn, the medians of the rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-runtime-") as folder:
        top = Path(folder)
        await _python(str(HERE / "paddle_floor.py"), "save", str(top / "model"))
        floors, served = [], []
        async with _runtime(top) as port:
            for number in range(ROUNDS):
                floors.append(await _floor(top / "model"))
                served.append(await _served(port))
                note(f"round {number + 1} of {ROUNDS}: in-process {floors[-1]}, served {served[-1]}")
        await _beside(top)
    added = statistics.median(s.p95 - f.p95 for s, f in zip(served, floors, strict=True))
    share = statistics.median(s.rate / f.rate for s, f in zip(served, floors, strict=True))
    return [
        Row("runtime: p95 at half load over in-process", added * 1000, 3.0, "ms"),
        Row("runtime: throughput over in-process", share, 0.8, "x", at_least=True),
    ]


async def _beside(top: Path) -> None:
    if program := os.environ.get(MLSERVER):
        async with _mlserver(program, top) as port:
            for _ in range(ROUNDS):
                note(f"MLServer with the same predictor: {await _served(port)}")


async def _floor(model: Path) -> Figures:
    return Figures(
        **json.loads(await _python(str(HERE / "paddle_floor.py"), "call", str(model), str(SECONDS)))
    )


async def _served(port: int) -> Figures:
    """Peak rate with many clients, and p95 at half of it."""
    await _load(port, 1.0, CLIENTS, 0)
    peak = (await _load(port, SECONDS, CLIENTS, 0))["rate"]
    half = await _load(port, SECONDS, CLIENTS, peak / 2)
    assert not half["failed"], half
    return Figures(half["p95"], peak)


async def _load(port: int, seconds: float, clients: int, rate: float) -> Mapping[str, float]:
    arguments = [str(port), str(seconds), str(clients), str(rate)]
    found: Mapping[str, float] = json.loads(
        await _python("-m", "tests.bench.http_load", *arguments, stdin=_request())
    )
    return found


def _request() -> bytes:
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = "POST /v2/models/digits/infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def _runtime(top: Path) -> AsyncIterator[int]:
    port = free_ports(1)[0]
    settings = {"MODEL_URI": top / "model", "MODEL_NAME": "digits", "HTTP_PORT": port, "DRAIN_DELAY": 0}
    env = {f"PADDLE_RUNTIME_{name}": str(value) for name, value in settings.items()}
    async with _process([sys.executable, "-m", "paddle_runtime"], env, top / "runtime.log"):
        await _wait_ready(port)
        yield port


@asynccontextmanager
async def _mlserver(program: str, top: Path) -> AsyncIterator[int]:
    """The same model and settings of batching, in MLServer's process that runs models."""
    ports = free_ports(3)
    home = top / "mlserver"
    home.mkdir()
    names = ("http_port", "grpc_port", "metrics_port")
    ports_of = dict(zip(names, ports, strict=True))
    (home / "settings.json").write_text(json.dumps({**ports_of, "host": "127.0.0.1", "debug": False}))
    model = {
        "name": "digits",
        "implementation": "mlserver_paddle.PaddleModel",
        "parameters": {"uri": str(top / "model")},
        "max_batch_size": 32,
        "max_batch_time": 0.002,
    }
    (home / "model-settings.json").write_text(json.dumps(model))
    env = {"PYTHONPATH": str(HERE)}
    async with _process([program, "start", str(home)], env, top / "mlserver.log"):
        await _wait_ready(ports[0])
        yield ports[0]


async def _wait_ready(port: int) -> None:
    async def ready() -> bool:
        url = f"http://127.0.0.1:{port}/v2/models/digits/ready"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await eventually(ready, within=90, what="the server is ready")


@asynccontextmanager
async def _process(command: list[str], env: Mapping[str, str], log: Path) -> AsyncIterator[None]:
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdout=out, stderr=out
        )
    try:
        yield
    except BaseException:
        note(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _python(*arguments: str, stdin: bytes = b"") -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "GLOG_minloglevel": "2"},
    )
    out, err = await process.communicate(stdin)
    assert process.returncode == 0, err.decode(errors="replace")[-3000:]
    return out
