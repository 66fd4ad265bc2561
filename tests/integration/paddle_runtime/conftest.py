"""Models saved by Paddle, and the runtime as a process that serves them."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import orjson
import pytest

from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

START_TIMEOUT_SECONDS = 120.0
NAME = "digits"
MODEL = f"v2/models/{NAME}"


def tensor(name: str, datatype: str, data: Any, shape: list[int] | None = None) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or list(np.shape(data)), "data": data}


def images(data: Any, shape: list[int] | None = None) -> dict[str, Any]:
    return {"inputs": [tensor("images", "FP32", data, shape)]}


def mixed(word: int) -> dict[str, Any]:
    """For the model `mixed`, which knows the words up to 99."""
    flag, ids = tensor("flag", "BOOL", [[True]]), tensor("ids", "INT64", [[word]])
    return {"inputs": [flag, ids, tensor("numbers", "FP32", [[1, 2, 3]])]}


ONE = images([0.0] * 64, [1, 1, 8, 8])
"""A request about one digit."""


def request_head(length: int) -> bytes:
    """The head of a request with a body of so many bytes."""
    return f"POST /{MODEL}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.fixture(scope="session")
def models(test_run: TestRun) -> Path:
    """Folder of the models, made once in a test run; read only."""

    def make(home: Path) -> Mapping[str, object]:
        for flag in ("1", "0"):
            command = [sys.executable, str(Path(__file__).with_name("saved_models.py")), str(home)]
            env = {**os.environ, "FLAGS_enable_pir_api": flag, "GLOG_minloglevel": "2"}
            done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=180)
            assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
        return {"folder": str(home)}

    return Path(str(test_run.share("paddle-models", make)["folder"]))


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.raw)

    @property
    def error(self) -> str:
        """The message of a refusal."""
        return str(self.json["error"])


class Client:
    """A client of one replica. `own_port` is the port of its metrics and health."""

    def __init__(self, port: int, own_port: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.own_port = own_port
        self.session = session

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def get(self, path: str) -> Answer:
        async with self.session.get(f"{self.url}/{path}") as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get_own(self, path: str) -> Answer:
        """`healthz`, `readyz` or `metrics`."""
        async with self.session.get(f"http://127.0.0.1:{self.own_port}/{path}") as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        """`body`: bytes, or a value to send as JSON."""
        kind: Any = {"data": io.BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        async with self.session.post(f"{self.url}/{path}", headers=headers, **kind) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def infer(self, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.post(f"{MODEL}/infer", body, headers)

    async def metric(self, line: str) -> float:
        """The value of a series. Raises LookupError."""
        text = (await self.get_own("metrics")).raw.decode()
        return float(dict(row.rsplit(" ", 1) for row in text.splitlines() if row)[line])

    async def count(self, line: str) -> float:
        """The value of a series that begins with the first event; 0 before."""
        with suppress(LookupError):
            return await self.metric(line)
        return 0

    async def is_waiting(self, requests: int) -> bool:
        """Whether so many requests are in the queue."""
        return await self.metric("paddlewheel_runtime_queued_requests") == requests


class Runtime(Client):
    """A replica of one test."""

    def __init__(self, service: Service, ports: tuple[int, int], session: aiohttp.ClientSession) -> None:
        super().__init__(*ports, session)
        self.service = service

    async def ready(self) -> bool:
        """Whether it is; fails once the process has ended."""
        code = self.service.exit_code
        assert code is None, f"ended with {code}: {self.log}"
        try:
            return (await self.get_own("readyz")).status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def readiness(self) -> str:
        """The body of /readyz; "" while the process does not listen."""
        try:
            return (await self.get_own("readyz")).raw.decode()
        except aiohttp.ClientConnectionError:
            return ""

    @property
    def pid(self) -> int:
        return self.service.pid

    @property
    def workers(self) -> list[int]:
        """The processes that run the model."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(child) for child in children.split()]

    @contextmanager
    def busy(self) -> Iterator[int]:
        """The only process that runs the model is stopped meanwhile; gives its id."""
        (worker,) = self.workers
        os.kill(worker, signal.SIGSTOP)
        try:
            yield worker
        finally:
            os.kill(worker, signal.SIGCONT)

    async def wait_ready(self) -> None:
        await eventually(self.ready, within=START_TIMEOUT_SECONDS, what="the runtime is ready")

    async def wait_exit(self) -> int:
        async def code() -> tuple[int] | None:
            code = self.service.exit_code
            return None if code is None else (code,)

        return (await eventually(code, within=START_TIMEOUT_SECONDS, what="the runtime ends"))[0]

    @property
    def log(self) -> str:
        return self.service.log.read_text(errors="replace")


Start = Callable[..., Awaitable[Runtime]]
Shared = Callable[[str], Client]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """The session of this test."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.fixture
def shared(models: Path, test_run: TestRun, session: aiohttp.ClientSession) -> Shared:
    """Gives a client of a model that one replica serves for the whole test run: nothing may disturb it."""

    def client(name: str) -> Client:
        def begin(home: Path) -> Mapping[str, object]:
            port, own = free_ports(2)
            where = {"MODEL_URI": models / name, "MODEL_NAME": NAME}
            settings = {**where, "HTTP_PORT": port, "METRICS_PORT": own}
            for key, value in settings.items():
                os.environ[f"PADDLE_RUNTIME_{key}"] = str(value)
            try:
                test_run.spawn([sys.executable, "-m", "paddle_runtime"], home / "log", lambda: _answers(own))
            finally:
                for key in settings:
                    del os.environ[f"PADDLE_RUNTIME_{key}"]
            return {"port": port, "own": own}

        ports = test_run.share(f"paddle-runtime-{name.replace('/', '-')}", begin)
        return Client(int(str(ports["port"])), int(str(ports["own"])), session)

    return client


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
async def start(session: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts replicas, which end with the test: `await start(uri, SETTING=value)`."""
    async with AsyncExitStack() as stack:

        async def begin(uri: object, *, ready: bool = True, **settings: object) -> Runtime:
            ports = free_ports(2)
            given = {
                "MODEL_URI": uri,
                "MODEL_NAME": NAME,
                "HTTP_PORT": ports[0],
                "METRICS_PORT": ports[1],
                "CACHE_DIR": tmp_path / "cache",
                "DRAIN_DELAY": 0,
                "TERMINATION_LOG": tmp_path / "termination-log",
                **settings,
            }
            env = {f"PADDLE_RUNTIME_{name}": str(value) for name, value in given.items()}
            service = Service("paddle_runtime", {**os.environ, **env}, tmp_path / f"runtime-{ports[0]}.log")
            runtime = Runtime(service, (ports[0], ports[1]), session)
            await service.start()
            stack.push_async_callback(_end, runtime)
            if ready:
                await runtime.wait_ready()
            return runtime

        yield begin


async def _end(runtime: Runtime) -> None:
    """The log appears in the report of a test that fails."""
    await runtime.service.kill()
    sys.stdout.write(f"--- log of the runtime\n{runtime.log}")


@pytest.fixture
def copy_of(models: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a model that a test may change."""

    def make(name: str) -> Path:
        target = tmp_path / "copies" / name
        shutil.copytree(models / name, target)
        return target

    return make
