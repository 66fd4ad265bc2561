"""Real NATS servers for tests, alone or three together: killed, restarted and emptied at will."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from paddlewheel.bus.nats import NatsBus
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.commands import tool

_READY_TIMEOUT_SECONDS = 90.0
_POLL_INTERVAL_SECONDS = 0.02
_CLUSTER_SIZE = 3


class NatsProcess:
    """A nats-server with the `nats.conf` of `home`, where its log lies, too; `port` is for clients."""

    home: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The log of the server."""
        return (self.home / "nats.log").read_text()

    @property
    def pid(self) -> int:
        """Raises AssertionError when it does not run."""
        assert self.process is not None, "nats-server does not run"
        return self.process.pid

    @property
    def running(self) -> bool:
        """It was started and not killed or stopped since."""
        return self.process is not None

    def start(self) -> None:
        """Return when it takes clients and JetStream is up."""
        self.launch()
        deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
        while not self._is_ready():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"nats-server did not start:\n{self.log[-3000:]}")
            time.sleep(_POLL_INTERVAL_SECONDS)

    def launch(self) -> None:
        """Start it as the chart's StatefulSet does, and return at once."""
        command = [tool("nats-server"), "--config", str(self.home / "nats.conf")]
        env = {**os.environ, "POD_NAME": self.home.name}
        with (self.home / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def freeze(self) -> None:
        """Stop all its threads; its connections stay open, and it sends nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
        while not all(_is_stopped(task) for task in Path(f"/proc/{self.pid}/task").iterdir()):
            assert time.monotonic() < deadline, "nats-server still runs"
            time.sleep(_POLL_INTERVAL_SECONDS)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL, like a power cut: it flushes nothing and closes no connection."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; idempotent."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """SIGKILL and start on the same port and store."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
        self.process = None

    def _is_ready(self) -> bool:
        """The greeting names JetStream once the server is whole."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                greeting = connection.makefile("rb").readline()
            return bool(json.loads(greeting.removeprefix(b"INFO ")).get("jetstream"))
        except (OSError, ValueError):  # closed before it has greeted
            return False


class NatsServer(NatsProcess):
    """A server on loopback ports of its own; ports and store outlive restarts.

    `config` is laid over the server's configuration (keys as in nats.conf: `tls`, `authorization`,
    `max_payload`, `jetstream: {"sync_interval": "always"}`); change it and `restart` or `reload`.
    Pass `ports` (for clients, of the monitor) when several servers start together: until a server listens
    on a port, another call may find it free.
    """

    def __init__(
        self, directory: Path, config: Mapping[str, Any] | None = None, ports: Sequence[int] = ()
    ) -> None:
        self.home = directory
        self._store = directory / "store"
        self.config: dict[str, Any] = dict(config or {})
        self.port, self.monitor_port = ports or free_ports(2)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        """Address of its HTTP monitor."""
        return f"http://127.0.0.1:{self.monitor_port}"

    @override
    def launch(self) -> None:
        self._write_config()
        super().launch()

    def reload(self) -> None:
        """Take up a changed `config` without a restart, as far as the server can."""
        self._write_config()
        os.kill(self.pid, signal.SIGHUP)

    def ask_monitor(self, path: str) -> dict[str, Any]:
        """One page of the HTTP monitor, e.g. `/varz`. Raises LookupError while there is no answer."""
        try:
            with urllib.request.urlopen(f"{self.monitor_url}{path}", timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, HTTPException, ValueError) as error:  # it may end in the middle of an answer
            raise LookupError(f"{path}: {error}") from error

    def lose_data(self) -> None:
        """SIGKILL, delete everything stored, start again."""
        self.kill()
        shutil.rmtree(self._store, ignore_errors=True)
        self.start()

    def _write_config(self) -> None:
        jetstream = {"store_dir": str(self._store), "max_file_store": 8 << 30, "max_memory_store": 1 << 30}
        base = {"host": "127.0.0.1", "port": self.port, "http": f"127.0.0.1:{self.monitor_port}"}
        merged = {**base, **self.config, "jetstream": {**jetstream, **self.config.get("jetstream", {})}}
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "nats.conf").write_text(json.dumps(merged))


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class NatsCluster:
    """Three servers joined by routes: streams may have three replicas; each dies and returns alone."""

    def __init__(self, directory: Path, config: Mapping[str, Any] | None = None) -> None:
        ports = free_ports(3 * _CLUSTER_SIZE)
        routes, own = ports[:_CLUSTER_SIZE], ports[_CLUSTER_SIZE:]
        self.servers = {
            name: NatsServer(
                directory / name,
                {**(config or {}), **_joined(name, number, routes)},
                own[2 * number : 2 * number + 2],
            )
            for number, name in enumerate(f"n{index}" for index in range(_CLUSTER_SIZE))
        }

    @property
    def url(self) -> str:
        """All of them, joined by commas."""
        return ",".join(server.url for server in self.servers.values())

    @property
    def monitor_url(self) -> str:
        """All of them, joined by commas."""
        return ",".join(server.monitor_url for server in self.servers.values())

    def start(self) -> None:
        """Return when they have found each other and JetStream has a leader."""
        for server in self.servers.values():
            server.launch()
        self.wait_healthy()

    def stop(self) -> None:
        """End all; idempotent."""
        for server in self.servers.values():
            server.stop()

    def wait_healthy(self) -> None:
        """Return when every server has caught up with what it missed. Raises AssertionError."""
        deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
        while not all(_is_healthy(server) for server in self.servers.values()):
            assert time.monotonic() < deadline, "the NATS cluster did not become whole"
            time.sleep(_POLL_INTERVAL_SECONDS)

    def leader_of(self, stream: str) -> NatsServer:
        """The server that leads a stream now, by its own word: the others know late that a leader is gone.

        Raises LookupError while there is none.
        """
        for name, server in self.servers.items():
            if server.running and _leader_by(server, stream) == name:
                return server
        raise LookupError(f"{stream} has no leader")


def _joined(name: str, number: int, routes: list[int]) -> dict[str, Any]:
    cluster = {
        "name": "test",
        "host": "127.0.0.1",
        "port": routes[number],
        "routes": [f"nats://127.0.0.1:{port}" for port in routes],
    }
    return {"server_name": name, "cluster": cluster}


def _is_healthy(server: NatsServer) -> bool:
    try:
        return server.ask_monitor("/healthz").get("status") == "ok"
    except LookupError:
        return False


def _leader_by(server: NatsServer, stream: str) -> str:
    """The leader that one server reports; "" when it knows no such stream or no leader."""
    try:
        accounts = server.ask_monitor("/jsz?streams=true&accounts=true").get("account_details", [])
    except LookupError:
        return ""
    streams = (found for account in accounts for found in account.get("stream_detail", []))
    return next((s.get("cluster", {}).get("leader", "") for s in streams if s["name"] == stream), "")


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """An empty server for this test alone; starting one takes a few hundredths of a second."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-nats-") as directory:
        server = NatsServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    """Address of that server."""
    return nats_server.url


@asynccontextmanager
async def started_bus(url: str) -> AsyncIterator[NatsBus]:
    """A client that has made its streams, closed at the end."""
    bus = NatsBus(url)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.close()


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """A bus with its streams, on that server."""
    async with started_bus(nats_url) as bus:
        yield bus


@pytest.fixture
def nats_cluster() -> Iterator[NatsCluster]:
    """Three empty servers for this test alone."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-nats-") as directory:
        cluster = NatsCluster(Path(directory))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
