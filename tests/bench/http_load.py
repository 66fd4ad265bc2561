"""Loads an HTTP endpoint: `python -m tests.bench.http_load PORT SECONDS CONNECTIONS RATE`, request on stdin.

A rate of 0 keeps every connection busy; else requests begin at that rate whatever the answers take, and wait
for a free connection as they would in a client's pool. A program of its own, so that it has its own core.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import numpy as np
import uvloop


class Connection(asyncio.Protocol):
    """One keep-alive connection that sends the same request again and again."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bool] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            self._received = b""
            assert self._answer is not None
            self._answer.set_result(head.split(b" ", 2)[1] == b"200")

    async def ask(self, request: bytes) -> bool:
        """Send it; gives whether the answer was 200."""
        self._answer = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(request)
        return await self._answer


def _length(head: bytes) -> int:
    field = head.lower().partition(b"content-length:")[2]
    return int(field.split(b"\r\n", 1)[0])


class Load:
    """Latencies of the requests answered."""

    def __init__(self, request: bytes, seconds: float) -> None:
        self._request = request
        self._seconds = seconds
        self.took: list[float] = []
        self.failed = 0

    async def saturate(self, connections: list[Connection]) -> None:
        """Every connection asks again as soon as it has its answer."""
        end = time.perf_counter() + self._seconds

        async def client(connection: Connection) -> None:
            while (began := time.perf_counter()) < end:
                await self._ask(connection, began)

        await asyncio.gather(*(client(connection) for connection in connections))

    async def at_rate(self, connections: list[Connection], rate: float) -> None:
        """Latency counts from the time at which the request was due."""
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            free.put_nowait(connection)

        async def one(due: float) -> None:
            connection = await free.get()
            await self._ask(connection, due)
            free.put_nowait(connection)

        begin, running = time.perf_counter(), []
        for number in range(int(rate * self._seconds)):
            due = begin + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            running.append(asyncio.ensure_future(one(due)))
        await asyncio.gather(*running)

    async def _ask(self, connection: Connection, due: float) -> None:
        if await connection.ask(self._request):
            self.took.append(time.perf_counter() - due)
        else:
            self.failed += 1


async def main() -> None:
    """Print p50 and p95 in seconds, and the rate reached."""
    port, seconds, count, rate = int(sys.argv[1]), *map(float, sys.argv[2:])
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(int(count))]
    connections = [connection for _, connection in made]
    load = Load(sys.stdin.buffer.read(), seconds)
    began = time.perf_counter()
    await (load.at_rate(connections, rate) if rate else load.saturate(connections))
    elapsed = time.perf_counter() - began
    p50, p95 = (float(np.quantile(load.took, q)) for q in (0.5, 0.95))
    print(json.dumps({"p50": p50, "p95": p95, "rate": len(load.took) / elapsed, "failed": load.failed}))


uvloop.run(main())
