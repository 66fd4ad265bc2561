"""Loads an HTTP endpoint: `python -m tests.bench.http_load PORT SECONDS CONNECTIONS RATE`, request on stdin.

A rate of 0 keeps every connection busy; else requests begin at that rate whatever the answers take, and wait
for a free connection as they would in a client's pool.

A loop over `select`, not over uvloop's event loop: that counts time-outs in milliseconds, and as 0 below half
of one, so a client on it is late, and keeps a core from the server. Those of `select` have microseconds.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

_ANSWER_WITHIN = 30.0
_PIECE = 65536


@dataclass(eq=False)
class Connection:
    """One keep-alive connection; `due` is when the request that it carries was to begin."""

    socket: socket.socket
    due: float = 0.0
    received: bytes = b""

    def fileno(self) -> int:
        """For `select`."""
        return self.socket.fileno()

    def take(self) -> bytes | None:
        """Read what is there; gives the status when the answer is complete. Raises ConnectionError."""
        piece = self.socket.recv(_PIECE)
        if not piece:
            raise ConnectionResetError("the server closed a connection")
        self.received += piece
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return None
        self.received = b""
        return head.split(b" ", 2)[1]


def _length(head: bytes) -> int:
    field = head.lower().partition(b"content-length:")[2]
    return int(field.split(b"\r\n", 1)[0])


@dataclass
class Load:
    """Latencies in seconds of the requests answered, each from the time at which it was due.

    Args:
        late: by how much the client itself was late with requests for which a connection was free.
    """

    request: bytes
    free: deque[Connection]
    took: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed: int = 0
    busy: set[Connection] = field(default_factory=set)

    def saturate(self, seconds: float) -> None:
        """Every connection asks again as soon as it has its answer."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            while self.free:
                self._begin(now)
            self._await(_ANSWER_WITHIN)
        self._finish()

    def at_rate(self, seconds: float, rate: float) -> None:
        """Requests are due at equal distances; waiting for a free connection counts."""
        begin = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            while (wait := due - time.perf_counter()) > 0:
                self._await(wait)
            if self.free:
                self.late.append(-wait)
            while not self.free:
                self._await(_ANSWER_WITHIN)
            self._begin(due)
        self._finish()

    def _begin(self, due: float) -> None:
        connection = self.free.popleft()
        connection.due = due
        connection.socket.sendall(self.request)
        self.busy.add(connection)

    def _finish(self) -> None:
        while self.busy:
            self._await(_ANSWER_WITHIN)

    def _await(self, within: float) -> None:
        """Read what has come, or return when the time is over. Raises TimeoutError: nothing came for long."""
        readable, _, _ = select.select(self.busy, (), (), within)
        if not readable and within == _ANSWER_WITHIN:
            raise TimeoutError("the server does not answer")
        for connection in readable:
            status = connection.take()
            if status is not None:
                self._end(connection, status)

    def _end(self, connection: Connection, status: bytes) -> None:
        if status == b"200":
            self.took.append(time.perf_counter() - connection.due)
        else:
            self.failed += 1
        self.busy.remove(connection)
        self.free.append(connection)


def main() -> None:
    """Print p50, p95 and the client's own delay in seconds, the rate reached, and what it took of a core."""
    port, seconds, count, rate = int(sys.argv[1]), *map(float, sys.argv[2:])
    made = [Connection(socket.create_connection(("127.0.0.1", port))) for _ in range(int(count))]
    for one in made:
        one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    load = Load(sys.stdin.buffer.read(), deque(made))
    began, worked = time.perf_counter(), time.process_time()
    if rate:
        load.at_rate(seconds, rate)
    else:
        load.saturate(seconds)
    elapsed, worked = time.perf_counter() - began, time.process_time() - worked
    p50, p95 = (float(np.quantile(load.took, q)) for q in (0.5, 0.95))
    late = float(np.quantile(load.late or [0.0], 0.95))
    found = {"p50": p50, "p95": p95, "late": late, "rate": len(load.took) / elapsed}
    print(json.dumps({**found, "failed": load.failed, "cores": worked / elapsed}))


main()
