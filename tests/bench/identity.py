"""Service-account tokens against certificates: connecting many clients at once, and facts on their way."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import agents
from tests.bench.progress import note
from tests.bench.rows import Row

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Reading
from paddlewheel.cli.repo import repo_file
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect
from paddlewheel.kube.ports import NAMESPACES
from paddlewheel.testkit.bus_auth import BusAuthStand, standing
from paddlewheel.testkit.chart_bus import Guest, guest, installing, running
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.kubernetes import install
from paddlewheel.testkit.wait import eventually

CLIENTS = 500
FACTS = 400
"""On their way by each identity, by turns."""
EVERY = 0.01
"""Seconds between two facts."""
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_PUBLISHER = "job-controller"
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
            latency = await _latency(str(started.kubeconfig), Path(folder) / "latency")
            at_work = await agents.measure(str(started.kubeconfig), Path(folder) / "agents")
    return [
        *at_work,
        Row(f"bus.connect_{CLIENTS}_clients_with_tokens", seconds, 30.0, "s"),
        Row(f"bus.connect_{CLIENTS}_clients_over_certificates", seconds / floor, 10.0, "x"),
        Row("bus.memory_of_bus_auth", memory, 128.0, "MB"),
        Row("bus.fact_latency_with_tokens_over_certificates", latency, 1.2, "x"),
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


async def _latency(kubeconfig: str, folder: Path) -> float:
    """Medians from publish to subscriber, by tokens over certificates: two servers as the chart configures
    them, the same programs."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(await connect(kubeconfig))
        home = f"bench-{uuid.uuid4().hex[:6]}"
        await cluster.create(NAMESPACES, {"metadata": {"name": home}})
        stand = await stack.enter_async_context(standing(cluster, kubeconfig, home, folder / "tokens"))
        await stack.enter_async_context(stand.installed())
        plain = stack.enter_context(running(folder / "certificates"))
        await stack.enter_async_context(installing(plain))
        tokens = await stack.enter_async_context(_way(*await _by_token(stand)))
        with_certificates = plain.access(_PUBLISHER), plain.access(SUBSCRIBER)
        certificates = await stack.enter_async_context(_way(*with_certificates))
        for number in range(FACTS):
            for way in (tokens, certificates):
                await way.publish(number)
                await asyncio.sleep(EVERY)
        await eventually(lambda: len(tokens.arrived) == FACTS == len(certificates.arrived), within=30)
    return tokens.summary("tokens") / certificates.summary("certificates")


async def _by_token(stand: BusAuthStand) -> tuple[Access, Access]:
    """Of the publisher and of the subscriber."""
    publisher = stand.access(_PUBLISHER, await stand.allow_role(_PUBLISHER))
    await stand.account("archive")
    await stand.allow_facts("archive")
    await stand.allow_team("archive")
    return publisher, stand.access(SUBSCRIBER, await stand.token("archive"))


@dataclass
class _Way:
    """Facts from a service to a subscriber; seconds by number."""

    bus: NatsBus
    sent: dict[str, float] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)

    async def publish(self, number: int) -> None:
        self.sent[str(number)] = time.perf_counter()
        await self.bus.publish(make_gated(number))

    async def listen(self, reader: NatsBus) -> None:
        async with aclosing(reader.read(Reading((event_filter("jobs"),), since=BEGINNING))) as facts:
            async for delivery in facts:
                self.arrived[delivery.event.data.message] = time.perf_counter()  # type: ignore[attr-defined]

    def summary(self, name: str) -> float:
        """The median in seconds, without the first tenth, in which all warms up."""
        found = [self.arrived[number] - at for number, at in self.sent.items()][FACTS // 10 :]
        middle, late = statistics.median(found), statistics.quantiles(found, n=100)[98]
        note(f"fact with {name}: median {middle * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms")
        return middle


@asynccontextmanager
async def _way(publisher: Access, subscriber: Access) -> AsyncIterator[_Way]:
    bus, reader = NatsBus(publisher, name=_PUBLISHER), NatsBus(subscriber, name=SUBSCRIBER)
    way = _Way(bus)
    listening = asyncio.create_task(way.listen(reader))
    try:
        yield way
    finally:
        await end(listening)
        await reader.close()
        await bus.close()


def _memory(pid: int) -> float:
    """Peak resident memory of a process, in MB."""
    [line] = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024
