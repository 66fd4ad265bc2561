"""One host's clients connect in a loop with tokens that are refused: clients of other hosts get in."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.bus.callout.hosts import Limits
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.testkit.bus_auth import letting_in
from paddlewheel.testkit.chart_bus import BUS_CA, ChartBus, entering, running, tls_of
from paddlewheel.testkit.wait import eventually

FLOODING = "127.0.0.2"
LIMITS = Limits(of_host=4, waiting=8, of_all=16)
"""So small that a few connections are a flood."""
CONNECTIONS = 40
ENTRIES = 5
"""Of a good client, one after the other."""


class ApiServer:
    """Knows nobody but the operator, and takes its time."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self._now: Counter[str] = Counter()

    async def authorize(self, login: Login) -> Grant:
        host = login.host
        self.asked[host] += 1
        self._now[host] += 1
        self.at_once[host] = max(self.at_once[host], self._now[host])
        try:
            await asyncio.sleep(0.05)
        finally:
            self._now[host] -= 1
        if login.token != "good":
            raise Permanent("NotAuthenticated", "no")
        return Grant("operator", *rights(Identity("operator")), int(time.time()) + 60)


async def test_attack_a_flood_from_one_host_keeps_other_hosts_out(tmp_path: Path) -> None:
    server = ApiServer()
    with running(tmp_path / "bus", passwords=False) as bus:
        async with letting_in(bus, server.authorize, LIMITS), flood(bus):
            await eventually(lambda: server.asked[FLOODING] > 2 * LIMITS.of_host, what="the flood is refused")
            for _ in range(ENTRIES):
                async with entering(bus, bus.folder / BUS_CA, user="operator", password="good") as guest:
                    assert guest.client.is_connected

    assert server.asked["127.0.0.1"] == ENTRIES
    assert server.at_once[FLOODING] <= LIMITS.of_host


@asynccontextmanager
async def flood(bus: ChartBus) -> AsyncIterator[None]:
    """Connections that are tried again as soon as they are refused, while the block runs."""
    tasks = [asyncio.create_task(_knock_on(bus)) for _ in range(CONNECTIONS)]
    try:
        yield
    finally:
        await end(*tasks)


async def _knock_on(bus: ChartBus) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            await _knock(bus)


async def _knock(bus: ChartBus) -> None:
    """Until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bus.port, local_addr=(FLOODING, 0))
    try:
        await reader.readline()
        await writer.start_tls(tls_of(bus.folder / BUS_CA), server_hostname="nats")
        login = {"user": "operator", "pass": "bad", "verbose": False, "tls_required": True}
        writer.write(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        await writer.drain()
        await reader.read()
    finally:
        writer.close()
