"""A Redis that is killed and comes back with what it had acknowledged."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.commands import tool

_READY_WITHIN = 90.0
_POLL = 0.02


class RedisServer:
    """One redis-server on a loopback port of its own, with an append-only file that outlives restarts.

    `port` is set by callers that reserve the ports of several servers at once.
    """

    def __init__(self, directory: Path, port: int = 0) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port or free_ports(1)[0]

    @property
    def url(self) -> str:
        """Without a database."""
        return f"redis://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when it takes commands. Raises AssertionError."""
        self._directory.mkdir(exist_ok=True)
        command = [tool("redis-server"), "--port", str(self._port), "--bind", "127.0.0.1"]
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        directory = ["--dir", str(self._directory)]
        self._process = subprocess.Popen([*command, *kept, *directory], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _READY_WITHIN
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(_POLL)

    def kill(self) -> None:
        """Kill the server, as a power cut does. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
        self._process = None

    def _answers(self) -> bool:
        """Whether the server answers. While it loads its file, it only answers with an error."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith(b"+PONG")
        except OSError:
            return False
