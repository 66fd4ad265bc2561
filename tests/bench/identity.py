"""Service-account tokens: connecting many clients at once, and what an agent writes each second."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path

from tests.bench.progress import note
from tests.bench.rows import Row

from paddlewheel.bus.admin.permissions import AGENT
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.cli.repo import repo_file
from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect
from paddlewheel.kube.ports import NAMESPACES
from paddlewheel.testkit.bus_auth import BusAuthStand, standing
from paddlewheel.testkit.chart_bus import Guest
from paddlewheel.testkit.kubernetes import install

CLIENTS = 500
ROUNDS, REQUESTS, AT_ONCE = 7, 400, 8
RECORD = b"x" * 600
WRITE_GOAL = 0.7
"""Share of the rate of a bare client's publishes."""
_numbers = count()
Enter = Callable[[], AbstractAsyncContextManager[Guest]]
Request = Callable[[], Awaitable[object]]


async def measure() -> list[Row]:
    """Every client has a token of its own, because the API server remembers a reviewed token."""
    with running_cluster(
        ClusterSpec(name=f"bench-{uuid.uuid4().hex[:6]}", control_plane_only=True)
    ) as started:
        await install(str(started.kubeconfig), repo_file("deploy/charts/paddlewheel/files/crds"))
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory, writes = await _with_tokens(str(started.kubeconfig), Path(folder))
    return [
        Row(f"bus.connect_{CLIENTS}_clients", seconds, 30.0, "s"),
        Row("bus.memory_of_bus_auth", memory, 128.0, "MB"),
        Row("bus.agent_writes_over_bare_publishes", writes, WRITE_GOAL, "x", at_least=True),
    ]


async def _with_tokens(kubeconfig: str, folder: Path) -> tuple[float, float, float]:
    home = f"bench-{uuid.uuid4().hex[:6]}"
    async with await connect(kubeconfig) as cluster:
        await cluster.create(NAMESPACES, {"metadata": {"name": home}})
        async with standing(cluster, kubeconfig, home, folder) as stand:
            tokens = [await stand.allow_role(AGENT), *[await stand.token(AGENT) for _ in range(CLIENTS - 1)]]
            seconds = await _seconds([partial(stand.enter, AGENT, token) for token in tokens])
            assert stand.service is not None
            return seconds, _memory(stand.service.pid), await _writes(stand, tokens[0])


async def _seconds(entrances: Sequence[Enter]) -> float:
    """Until all are connected at the same time."""
    async with AsyncExitStack() as connected:
        begun = time.monotonic()
        await asyncio.gather(*(connected.enter_async_context(enter()) for enter in entrances))
        return time.monotonic() - begun


async def _writes(stand: BusAuthStand, token: str) -> float:
    """An agent's records each second, over the publishes of a bare client: the median of several rounds."""
    async with stand.installed(), stand.enter(AGENT, token) as bare:
        bus = NatsBus(stand.access(AGENT, token), name=AGENT)
        records = bus.key_value(RUNS_BUCKET)

        async def ours() -> None:
            await records.put(f"uid.bench.part-{next(_numbers) % 100}", RECORD)

        async def theirs() -> None:
            subject = f"$KV.{RUNS_BUCKET}.uid.bench.part-{next(_numbers) % 100}"
            await bare.client.request(subject, RECORD, timeout=30)

        try:
            for request in (ours, theirs):
                await _rate(request)
            pairs = [(await _rate(ours), await _rate(theirs)) for _ in range(ROUNDS)]
        finally:
            await bus.close()
    mine, floor = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    note(f"records each second, {AT_ONCE} at a time: {mine:.0f} by an agent, {floor:.0f} by a bare client")
    return statistics.median(one / other for one, other in pairs)


async def _rate(request: Request) -> float:
    """Requests each second."""

    async def work() -> None:
        for _ in range(REQUESTS // AT_ONCE):
            await request()

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return REQUESTS / (time.perf_counter() - begun)


def _memory(pid: int) -> float:
    """Peak resident memory of a process, in MB."""
    [line] = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024
