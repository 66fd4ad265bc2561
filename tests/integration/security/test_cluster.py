"""Three servers with the chart's configuration: routes under TLS, which only a server may open."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import STREAMS
from paddlewheel.core.errors import Retry
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.chart_bus import (
    ChartBus,
    guest,
    install,
    local_config,
    teams_of,
    with_passwords,
    write_certificates,
)
from paddlewheel.testkit.charts import pod_specs, render
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually, patiently

pytestmark = pytest.mark.long

VALUES = ("crds.install=false", "profile=production")
SIZE = 3
ROGUE = "rogue"


@dataclass
class Cluster:
    """Certificates in `folder`; ports by server: clients, monitors, routes, and those of one more server."""

    folder: Path
    clients: list[int]
    monitors: list[int]
    routes: list[int]
    servers: list[ChartBus] = field(default_factory=list)

    def server(self, index: int, name: str, certificate: str = "server") -> ChartBus:
        """A server that was not started yet; they find each other by ports in place of pod names."""
        (self.folder / name).mkdir()
        made = ChartBus(self.folder, self.clients[index], self.folder / name)
        self.configure(made, index, certificate=certificate)
        return made

    def configure(self, server: ChartBus, index: int, *values: str, certificate: str = "server") -> None:
        """Write the configuration by further values."""
        home = server.home
        places = {
            "/etc/nats-tls": str(self.folder / f"nats-tls-{certificate}"),
            "/data": str(home / "store"),
            "/run/nats/": f"{home}/",
            "port: 4222": f"port: {self.clients[index]}",
            "127.0.0.1:8223": f"127.0.0.1:{self.monitors[index]}",
            "port: 6222": f"port: {self.routes[index]}\n  host: 127.0.0.1",
            **{
                f"nats-{peer}.nats-servers.paddle-system.svc:6222": f"localhost:{self.routes[peer]}"
                for peer in range(SIZE)
            },
        }
        manifests = render("paddlewheel", *VALUES, *values)
        config = with_passwords(local_config(manifests, places), teams_of(manifests))
        (home / "nats.conf").write_text(config)

    @property
    def monitor_urls(self) -> str:
        """What the chart tells the services, with ports in place of pod names."""
        [container] = dict(pod_specs(render("paddlewheel", *VALUES)))["bus-installer"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        urls = str(env["BUS_INSTALLER_NATS_MONITOR_URL"])
        for index in range(SIZE):
            there = f"nats-{index}.nats-servers.paddle-system.svc:8222"
            assert there in urls, there
            urls = urls.replace(there, f"127.0.0.1:{self.monitors[index]}")
        return urls

    def peers_of(self, index: int) -> set[str]:
        """Names of the servers it has routes to. Raises LookupError while it does not answer."""
        url = f"http://127.0.0.1:{self.monitors[index]}/routez"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return {route["remote_name"] for route in json.load(answer)["routes"] or ()}
        except (OSError, HTTPException, ValueError) as error:
            raise LookupError(f"{url}: {error}") from error


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Ends servers."""
    with ExitStack() as ends:
        yield ends


@pytest.fixture
def prepared(tmp_path: Path) -> Cluster:
    """Three servers that were not started yet."""
    write_certificates(render("paddlewheel", *VALUES), tmp_path)
    ports = free_ports(3 * (SIZE + 1))
    made = Cluster(tmp_path, ports[0::3], ports[1::3], ports[2::3])
    made.servers += [made.server(index, f"nats-{index}") for index in range(SIZE)]
    return made


@pytest.fixture
async def cluster(prepared: Cluster, started: ExitStack) -> Cluster:
    """Three servers that have found each other."""
    return await start(prepared, started)


async def start(made: Cluster, started: ExitStack) -> Cluster:
    for server in made.servers:
        launch(server, started)
    names = {f"nats-{index}" for index in range(SIZE)}

    def joined() -> bool:
        return all(made.peers_of(i) == names - {f"nats-{i}"} for i in range(SIZE))

    await eventually(joined, what="all servers have routes to all others")
    return made


def launch(server: ChartBus, started: ExitStack) -> ChartBus:
    started.callback(server.stop)
    server.launch()
    return server


async def test_the_installer_makes_every_stream_on_three_servers(cluster: Cluster) -> None:
    urls = ",".join(f"tls://localhost:{port}" for port in cluster.clients[:SIZE])
    access = ChartBus(cluster.folder, cluster.clients[0], cluster.folder).access(
        "installer", url=urls, replicas=SIZE, tls_hostname=""
    )
    bus = NatsBus(access, name="installer")
    try:
        await bus.start()
        await eventually(bus.healthy, within=60, what="every stream has its replicas")
    finally:
        await bus.close()
    operator = NatsBus(
        ChartBus(cluster.folder, cluster.clients[1], cluster.folder).access("operator"), name="operator"
    )
    try:
        status = await patiently(operator.inspect.status)
    finally:
        await operator.close()
    assert {stream.name: stream.replicas for stream in status.streams} == {s.name: SIZE for s in STREAMS}


async def test_one_server_of_three_that_syncs_late_is_found(prepared: Cluster, started: ExitStack) -> None:
    first, *_, last = prepared.servers
    config = last.home / "nats.conf"
    config.write_text(config.read_text().replace('sync_interval: "always"', 'sync_interval: "2m"'))
    cluster = await start(prepared, started)
    asked = {"profile": "production", "monitor_url": cluster.monitor_urls, "replicas": SIZE}

    bus = NatsBus(first.access("installer", **asked), name="installer")
    try:
        found = await eventually(lambda: refusal(bus), within=60, what="the bus is refused")
    finally:
        await bus.close()

    assert f"http://127.0.0.1:{cluster.monitors[SIZE - 1]} (every 120 s)" in found
    assert f":{cluster.monitors[0]}" not in found


async def refusal(bus: NatsBus) -> str:
    """Why the bus is refused, "" when it is not, or was not judged yet."""
    try:
        await bus.check()
    except Retry as error:
        return str(error) if error.reason == "UnsafeBus" else ""
    return ""


async def test_teams_have_their_copies_on_three_servers(cluster: Cluster) -> None:
    teams = teams_of(render("paddlewheel", *VALUES))
    bus = ChartBus(cluster.folder, cluster.clients[0], cluster.folder, teams)
    await install(bus, replicas=SIZE)
    fact = make_gated(1)
    controller = NatsBus(bus.access("job-controller"), name="job-controller")
    try:
        await patiently(lambda: controller.publish(fact))
    finally:
        await controller.close()
    elsewhere = ChartBus(cluster.folder, cluster.clients[1], cluster.folder)
    async with guest(elsewhere, "subscriber") as subscriber:

        async def copied() -> bool:
            info = await subscriber.ask("$JS.API.STREAM.INFO.PW_JOBS")
            return (info["config"]["num_replicas"], info["state"]["messages"]) == (SIZE, 1)

        await eventually(copied, what="the fact was copied")


async def test_a_team_that_comes_later_has_its_copies_on_three_servers(cluster: Cluster) -> None:
    """The servers reload twice, as `bus-auth server-config` makes them."""
    values = (
        "nats.subscribers[0].name=subscriber",
        "nats.subscribers[1].name=vision",
        "nats.jetstream.maxFileStore=6Gi",
        "nats.persistence.size=8Gi",
    )
    teams = teams_of(render("paddlewheel", *VALUES, *values))
    before = ChartBus(cluster.folder, cluster.clients[0], cluster.folder, teams[:1])
    await install(before, replicas=SIZE)
    controller = NatsBus(before.access("job-controller"), name="job-controller")
    try:
        await patiently(lambda: controller.publish(make_gated(1)))
        for index, server in enumerate(cluster.servers):
            cluster.configure(server, index, *values)
            for times in (1, 2):
                assert server.process is not None
                server.process.send_signal(signal.SIGHUP)
                await eventually(partial(has_reloaded, server, times), what="the server has reloaded")

        after = ChartBus(cluster.folder, cluster.clients[0], cluster.folder, teams)
        await install(after, replicas=SIZE)
        await patiently(lambda: controller.publish(make_gated(2)))
    finally:
        await controller.close()
    there = ChartBus(cluster.folder, cluster.clients[1], cluster.folder)
    async with guest(there, "vision", prefix="_INBOX_subscriber") as member:

        async def copied() -> bool:
            info = await member.ask("$JS.API.STREAM.INFO.PW_JOBS")
            return bool(info["state"]["messages"] == 2)

        await eventually(copied, what="both facts were copied")


def has_reloaded(server: ChartBus, times: int) -> bool:
    return server.log.count("Reloaded server configuration") >= times


async def test_a_route_is_not_opened_by_another_authoritys_certificate(
    cluster: Cluster, started: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A route may do everything."""
    other = tmp_path_factory.mktemp("other")
    write_certificates(render("paddlewheel", *VALUES), other)
    (other / "nats-tls-server").rename(cluster.folder / "nats-tls-other")
    rogue = launch(cluster.server(SIZE, ROGUE, "other"), started)

    await eventually(lambda: "TLS route handshake error" in rogue.log, within=90, what="it was turned away")

    assert all(ROGUE not in cluster.peers_of(index) for index in range(SIZE))


async def test_a_route_is_opened_by_the_servers_certificate(cluster: Cluster, started: ExitStack) -> None:
    """So that the refusal above is not for another reason."""
    launch(cluster.server(SIZE, "fourth"), started)

    await eventually(lambda: "fourth" in cluster.peers_of(0), what="it joined")
