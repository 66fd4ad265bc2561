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
    """Peak rate, calls a second, and p95, seconds, at half of the server's peak; the floor's beside.

    `late` is p95 of what the client itself was late at half load, which all that it measures contains.
    """

    rate: float
    p95: float
    late: float
    floor_rate: float
    floor_p95: float
    http_p95: float

    def __str__(self) -> str:
        ours = f"{self.rate:.0f}/s, p95 {self.p95 * 1e3:.2f} ms (client {self.late * 1e3:.2f} ms late)"
        floor = f"{self.floor_rate:.0f}/s, p95 {self.floor_p95 * 1e3:.2f} ms"
        return f"{ours}; in-process {floor}; HTTP without a model p95 {self.http_p95 * 1e3:.2f} ms"


async def measure() -> list[Row]:
    """Floor and runtime in turn, the medians of the rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-runtime-") as folder:
        top = Path(folder)
        await _python(str(HERE / "paddle_floor.py"), "save", str(top / "model"))
        async with _http_floor(top) as bare:
            async with _runtime(top) as port:
                rounds = await _rounds("runtime", port, bare, top / "model")
            await _beside(bare, top)
    added = statistics.median(one.p95 - one.floor_p95 for one in rounds)
    share = statistics.median(one.rate / one.floor_rate for one in rounds)
    return [
        Row("runtime: p95 at half load over in-process", added * 1000, 3.0, "ms"),
        Row("runtime: throughput over in-process", share, 0.8, "x", at_least=True),
    ]


async def _beside(bare: int, top: Path) -> None:
    if program := os.environ.get(MLSERVER):
        async with _mlserver(program, top) as port:
            await _rounds("MLServer with the same predictor", port, bare, top / "model")


async def _rounds(name: str, port: int, bare: int, model: Path) -> list[Figures]:
    """Server and floors in turn; `bare` is the port of HTTP without a model."""
    await _load(port, 1.0, CLIENTS, 0)
    found = []
    for _ in range(ROUNDS):
        found.append(await _round(port, bare, model))
        note(f"{name}: {found[-1]}")
    return found


async def _round(port: int, bare: int, model: Path) -> Figures:
    """Peak rates, and p95 at half of the server's."""
    floor = await _floor(model, 0)
    peak = await _load(port, SECONDS, CLIENTS, 0)
    half = await _load(port, SECONDS, CLIENTS, peak["rate"] / 2)
    paced = await _floor(model, peak["rate"] / 2)
    http = await _load(bare, SECONDS, CLIENTS, peak["rate"] / 2)
    assert not half["failed"], half
    return Figures(
        rate=peak["rate"],
        p95=half["p95"],
        late=half["late"],
        floor_rate=floor["rate"],
        floor_p95=paced["p95"],
        http_p95=http["p95"],
    )


async def _floor(model: Path, rate: float) -> Mapping[str, float]:
    arguments = ["call", str(model), str(SECONDS), str(rate)]
    found: Mapping[str, float] = json.loads(await _python(str(HERE / "paddle_floor.py"), *arguments))
    return found


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
async def _http_floor(top: Path) -> AsyncIterator[int]:
    port = free_ports(1)[0]
    async with _process([sys.executable, str(HERE / "http_floor.py"), str(port)], {}, top / "http.log"):
        await _wait_ready(port)
        yield port


@asynccontextmanager
async def _runtime(top: Path) -> AsyncIterator[int]:
    port, own = free_ports(2)
    ports = {"HTTP_PORT": port, "METRICS_PORT": own}
    settings = {"MODEL_URI": top / "model", "MODEL_NAME": "digits", "DRAIN_DELAY": 0, **ports}
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
    # By default, MLServer writes metrics into the folder from which the bench is started.
    settings = {**ports_of, "host": "127.0.0.1", "debug": False, "metrics_dir": str(home / "metrics")}
    (home / "settings.json").write_text(json.dumps(settings))
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
