"""Connecting many clients at once by service-account tokens, against the same clients with certificates."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from tests.bench.rows import Row

from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.cli.repo import repo_file
from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect
from paddlewheel.kube.ports import NAMESPACES
from paddlewheel.testkit.bus_auth import BusAuthStand, standing
from paddlewheel.testkit.chart_bus import Guest, guest, running
from paddlewheel.testkit.kubernetes import install

CLIENTS = 500
Enter = Callable[[], AbstractAsyncContextManager[Guest]]


async def measure() -> list[Row]:
    """Every client has a token of its own: the API server remembers reviewed ones."""
    with running_cluster(
        ClusterSpec(name=f"bench-{uuid.uuid4().hex[:6]}", control_plane_only=True)
    ) as started:
        await install(str(started.kubeconfig), repo_file("deploy/charts/paddlewheel/files/crds"))
        with tempfile.TemporaryDirectory() as folder:
            floor = await _with_certificates(Path(folder) / "floor")
            seconds, memory = await _with_tokens(str(started.kubeconfig), Path(folder))
    return [
        Row(f"bus.connect_{CLIENTS}_clients_with_tokens", seconds, 30.0, "s"),
        Row(f"bus.connect_{CLIENTS}_clients_over_certificates", seconds / floor, 10.0, "x"),
        Row("bus.memory_of_bus_auth", memory, 128.0, "MB"),
    ]


async def _with_certificates(folder: Path) -> float:
    with running(folder) as bus:
        return await _seconds([lambda: guest(bus, "cache-runtime") for _ in range(CLIENTS)])


async def _with_tokens(kubeconfig: str, folder: Path) -> tuple[float, float]:
    home = f"bench-{uuid.uuid4().hex[:6]}"
    async with await connect(kubeconfig) as cluster:
        await cluster.create(NAMESPACES, {"metadata": {"name": home}})
        async with standing(cluster, kubeconfig, home, folder) as stand:
            owner, pod, _ = await stand.agent(home)
            inbox = agent_inbox(owner["metadata"]["uid"])
            tokens = [await stand.token("default", home, pod=pod) for _ in range(CLIENTS)]
            seconds = await _seconds([_entrance(stand, token, inbox) for token in tokens])
            assert stand.service is not None
            return seconds, _memory(stand.service.pid)


def _entrance(stand: BusAuthStand, token: str, inbox: str) -> Enter:
    return lambda: stand.enter("cache-runtime", token, prefix=inbox)


async def _seconds(entrances: Sequence[Enter]) -> float:
    """Until all are connected at the same time."""
    async with AsyncExitStack() as connected:
        begun = time.monotonic()
        await asyncio.gather(*(connected.enter_async_context(enter()) for enter in entrances))
        return time.monotonic() - begun


def _memory(pid: int) -> float:
    """Peak resident memory of a process, in MB."""
    [line] = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024
