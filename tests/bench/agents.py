"""What agents of a data set read and write each second: with tokens through bus-auth, over certificates."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from tests.bench.progress import note
from tests.bench.rows import Row

from paddlewheel.bus import connect as connect_bus
from paddlewheel.bus.admin.permissions import AGENT
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.kube import connect
from paddlewheel.kube.ports import NAMESPACES
from paddlewheel.testkit.bus_auth import standing
from paddlewheel.testkit.chart_bus import installing, running

ROUNDS = 7
REQUESTS = 400
AT_ONCE = 8
"""What bus-auth works on for one set."""
RECORD = b"x" * 600
READ_GOAL, WRITE_GOAL = 0.2, 0.15
"""Shares of the direct rate."""

_numbers = count()
Request = Callable[[], Awaitable[object]]


async def measure(kubeconfig: str, folder: Path) -> list[Row]:
    """Ratios of medians over alternating rounds, on two servers as the chart configures them."""
    async with through_bus_auth(kubeconfig, folder / "tokens") as ours, directly(folder / "plain") as bare:
        writes = await _ratio("writes", _write(*ours), _write(*bare))
        reads = await _ratio("reads", _read(*ours), _read(*bare))
    return [
        Row("bus.agent_writes_with_tokens_over_certificates", writes, WRITE_GOAL, "x", at_least=True),
        Row("bus.agent_reads_with_tokens_over_certificates", reads, READ_GOAL, "x", at_least=True),
    ]


@asynccontextmanager
async def through_bus_auth(kubeconfig: str, folder: Path) -> AsyncIterator[tuple[Bus, str]]:
    """An agent's bus and the uid of its set."""
    home = f"bench-{uuid.uuid4().hex[:6]}"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(await connect(kubeconfig))
        await cluster.create(NAMESPACES, {"metadata": {"name": home}})
        stand = await stack.enter_async_context(standing(cluster, kubeconfig, home, folder))
        await stack.enter_async_context(stand.installed())
        owner, _, token = await stand.agent(home)
        uid = owner["metadata"]["uid"]
        bus = await connect_bus(stand.access(AGENT, token).for_set(uid), name=AGENT)
        stack.push_async_callback(bus.close)
        yield bus, uid


@asynccontextmanager
async def directly(folder: Path) -> AsyncIterator[tuple[Bus, str]]:
    """The same with a certificate."""
    with running(folder) as plain:
        async with installing(plain):
            bus = await connect_bus(plain.access(AGENT), name=AGENT)
            try:
                yield bus, "uid"
            finally:
                await bus.close()


def _write(bus: Bus, uid: str) -> Request:
    records = bus.key_value(RUNS_BUCKET)

    async def put() -> None:
        await records.put(f"{uid}.bench.part-{next(_numbers) % 100}", RECORD)

    return put


def _read(bus: Bus, uid: str) -> Request:
    return partial(bus.key_value(RUNS_BUCKET).get, f"{uid}.bench.part-0")


async def _ratio(what: str, ours: Request, bare: Request) -> float:
    for request in (ours, bare):
        await _rate(request)
    pairs = [(await _rate(ours), await _rate(bare)) for _ in range(ROUNDS)]
    mine, floor = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    note(f"{what} each second, {AT_ONCE} at a time: {mine:.0f} through bus-auth, {floor:.0f} directly")
    return statistics.median(one / other for one, other in pairs)


async def _rate(request: Request) -> float:
    """Requests each second."""

    async def work() -> None:
        for _ in range(REQUESTS // AT_ONCE):
            await request()

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return REQUESTS / (time.perf_counter() - begun)
