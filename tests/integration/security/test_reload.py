"""Values of the bus change while clients work: nothing restarts, no connection or position is lost."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientSession
from nats.aio.subscription import Subscription

from paddlewheel.bus.admin.durability import ServerFacts
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.monitor import ask_monitors
from paddlewheel.bus.ports import Reading
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.sockets import free_ports
from paddlewheel.core.tasks import end
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    ChartBus,
    Guest,
    guest,
    install,
    local_config,
    running,
    services_of,
    teams_of,
    with_passwords,
)
from paddlewheel.testkit.charts import render
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually, patiently

BEFORE = (
    "nats.subscribers[0].name=subscriber",
    "nats.subscribers[1].name=vision",
    "nats.subscribers[1].namespaces={default}",
    "nats.subscribers[1].maxBytes=16Mi",
)
AFTER = (
    "nats.subscribers[0].name=subscriber",
    "nats.subscribers[1].name=vision",
    "nats.subscribers[1].namespaces={default,team-b}",
    "nats.subscribers[1].maxBytes=16Mi",
    "nats.subscribers[2].name=audio",
    "nats.subscribers[2].namespaces={default}",
    "nats.subscribers[2].maxBytes=16Mi",
    "nats.services[0].name=notebooks",
    "nats.services[0].publishes[0].context=notebooks",
    "nats.jetstream.maxFileStore=6Gi",
    "nats.streams.PW_JOBS.maxBytes=1Gi",
    "nats.roleLimits.services=100",
)


async def test_teams_namespaces_services_and_a_larger_store_come_without_a_lost_connection(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "bus", *BEFORE) as bus:
        await install(bus)
        controller = NatsBus(bus.access("job-controller"), name="job-controller")
        readers = [
            NatsBus(bus.access("subscriber", url=bus.url_of(team)), name=team)
            for team in ("subscriber", "vision")
        ]
        heard: list[list[str]] = [[], []]
        following = [asyncio.create_task(follow(*each)) for each in zip(readers, heard, strict=True)]
        try:
            async with reloading(bus, tmp_path / "mounted") as config:
                await patiently(lambda: controller.publish(make_gated(1)))
                await patiently(lambda: controller.publish(make_gated(1, "other", "team-b")))
                await eventually(lambda: list(map(len, heard)) == [2, 1], what="the first facts")
                before = bus.process
                await change(bus, config, *AFTER)

                after = changed(bus, *AFTER)
                await install(after)
                newcomer = NatsBus(bus.access("subscriber", url=after.url_of("audio")), name="audio")
                readers.append(newcomer)
                heard.append([])
                following.append(asyncio.create_task(follow(newcomer, heard[2])))
                await eventually(lambda: len(heard[2]) == 1, what="the first fact, by the new team")
                async with guest(after, "notebooks"):
                    await controller.publish(make_gated(2))
                    await controller.publish(make_gated(2, "other", "team-b"))
                    await eventually(lambda: list(map(len, heard)) == [4, 3, 2], what="the second facts")

                assert before is not None
                assert before.poll() is None, "the server was restarted"
                assert bus.log.count("Server is ready") == 1
                assert [each._connection.generation for each in (controller, *readers)] == [0, 0, 0, 0]
                # Each fact once: the durables keep their positions.
                second = ["uid/gated/2", "other/gated/2"]
                assert heard == [
                    ["uid/gated/1", "other/gated/1", *second],
                    ["uid/gated/1", *second],
                    ["uid/gated/1", "uid/gated/2"],
                ]
        finally:
            await end(*following)
            await controller.close()
            for each in readers:
                await each.close()


@pytest.mark.long
async def test_a_smaller_store_keeps_no_other_change_from_the_server(tmp_path: Path) -> None:
    """Helm's rollback of a larger store makes it smaller, too."""
    large = (
        "nats.jetstream.maxFileStore=6Gi",
        *BEFORE[:2],
        "nats.subscribers[1].namespaces={default,team-b}",
    )
    small = ("nats.jetstream.maxFileStore=5Gi", *BEFORE[:2], "nats.subscribers[1].namespaces={default}")
    with running(tmp_path / "bus", *large) as bus:
        await install(bus)
        before = bus.process
        async with (
            reloading(bus, tmp_path / "mounted") as config,
            listening(bus, "vision") as (vision, heard),
        ):
            await publish_two(bus, 1)
            assert await next_namespaces(heard, 2) == ["default", "team-b"]

            await change(bus, config, *small)

            await publish_two(bus, 2)
            await publish_two(bus, 3)
            assert await next_namespaces(heard, 2) == ["default", "default"]
            assert vision.client.is_connected
        assert before is not None
        assert before.poll() is None, "the server was restarted"


@pytest.mark.long
async def test_a_team_that_was_left_out_by_mistake_goes_on_where_it_was(tmp_path: Path) -> None:
    """An upgrade without the file of values that has the teams leaves it out."""
    with running(tmp_path / "bus", *BEFORE) as bus:
        await install(bus)
        await publish_two(bus, 1)
        async with reloading(bus, tmp_path / "mounted") as config:
            async with guest(bus, "vision", prefix="_INBOX_subscriber") as member:
                heard = await member.client.jetstream().pull_subscribe("pw.evt.>", "work", stream="PW_JOBS")
                [first] = await heard.fetch(1, BUS_ANSWER_TIMEOUT_SECONDS)
                await first.ack_sync(BUS_ANSWER_TIMEOUT_SECONDS)
            await change(bus, config, *BEFORE[:1])
            await install(changed(bus, *BEFORE[:1]))
            await change(bus, config, *BEFORE)
            await install(bus)
            async with guest(bus, "vision", prefix="_INBOX_subscriber") as member:
                position = await member.client.jetstream().consumer_info("PW_JOBS", "work")
            assert position.ack_floor is not None
            assert (position.ack_floor.consumer_seq, position.num_pending) == (1, 0)


def changed(bus: ChartBus, *values: str) -> ChartBus:
    """The server as it is after other values."""
    declared = render("paddlewheel", "crds.install=false", *values)
    return ChartBus(bus.folder, bus.port, bus.home, teams_of(declared), services_of(declared))


@pytest.mark.long
async def test_a_refused_change_is_reported_and_the_next_one_is_loaded(tmp_path: Path) -> None:
    with running(tmp_path / "bus", *BEFORE) as bus:
        await install(bus)
        log = tmp_path / "reloader.log"
        async with reloading(bus, tmp_path / "mounted", log) as config:
            config.write_text(config.read_text().replace("name: $POD_NAME", "name: another"))
            await eventually(lambda: "did not load its new configuration" in log.read_text(), within=120)
            assert "Failed to reload server configuration" in bus.log

            await change(bus, config, *AFTER)


async def test_attack_a_pod_reads_the_clients_of_a_server(tmp_path: Path) -> None:
    """A pod can read the health of a server, and its sync interval."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with running(tmp_path / "bus", *BEFORE) as bus:
        async with reloading(bus, tmp_path / "mounted", port=port), ClientSession() as session:

            async def status(path: str) -> int:
                async with session.get(f"{url}{path}") as answer:
                    return answer.status

            with pytest.raises(ClientConnectorError):
                await session.get(f"http://127.0.0.2:{monitor_of(bus).split(':')[1]}/connz")
            assert [await status(path) for path in ("/healthz", "/readyz", "/connz")] == [200, 200, 404]
            assert await ask_monitors(url) == (ServerFacts(url, False, 120.0, config_loaded=True),)

            bus.stop()
            assert [await status(path) for path in ("/healthz", "/readyz")] == [503, 503]


@asynccontextmanager
async def reloading(
    bus: ChartBus, folder: Path, log: Path | None = None, port: int = 0
) -> AsyncIterator[Path]:
    """Run the container `config` beside the server. Yields the mounted nats.conf, when it is loaded."""
    config, *others = mounted(bus, folder)
    arguments = (config, *others, bus.home, f"http://{monitor_of(bus)}", port)
    with (log or Path(os.devnull)).open("wb") as output:
        beside = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bus_auth",
            "server-config",
            *map(str, arguments),
            stdout=output,
            stderr=output,
        )
        try:
            await eventually(lambda: reloads(bus) == 1, within=90, what="its first configuration")
            yield config
        finally:
            beside.terminate()
            await beside.wait()


def reloads(bus: ChartBus) -> float:
    """How many configurations the server has loaded since it started: it loads each twice."""
    return bus.log.count("Reloaded server configuration") / 2


async def change(bus: ChartBus, config: Path, *values: str) -> None:
    """Have the server load other values."""
    before = reloads(bus)
    config.write_text(configured(bus, *values))
    await eventually(lambda: reloads(bus) >= before + 1, within=120, what="the values are loaded")


@asynccontextmanager
async def listening(bus: ChartBus, team: str) -> AsyncIterator[tuple[Guest, Subscription]]:
    """A member of a team, with a subscription to all facts."""
    async with guest(bus, team, prefix="_INBOX_subscriber") as member:
        heard = await member.client.subscribe("pw.evt.>")
        await member.client.flush()
        yield member, heard


async def publish_two(bus: ChartBus, number: int) -> None:
    """A fact of namespace `team-b`, and then one of `default`."""
    controller = NatsBus(bus.access("job-controller"), name="job-controller")
    try:
        await patiently(lambda: controller.publish(make_gated(number, "other", "team-b")))
        await patiently(lambda: controller.publish(make_gated(number)))
    finally:
        await controller.close()


async def next_namespaces(heard: Subscription, most: int) -> list[str]:
    """The namespaces of the next facts, sorted."""
    messages = [await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS) for _ in range(most)]
    return sorted(message.subject.split(".")[-2] for message in messages)


def mounted(bus: ChartBus, folder: Path) -> tuple[Path, Path, Path]:
    """The files that the pod of the server mounts."""
    folder.mkdir()
    config = folder / "nats.conf"
    config.write_text((bus.home / "nats.conf").read_text())
    return config, bus.folder / "bus-auth-key" / "tls.crt", bus.folder / "nats-tls-server"


def configured(bus: ChartBus, *values: str) -> str:
    """The configuration by other values, with the places of this server."""
    manifests = render("paddlewheel", "crds.install=false", *values)
    places = {
        "/run/nats/": f"{bus.home}/",
        "/etc/nats-tls": str(bus.folder / "nats-tls-server"),
        "/data": str(bus.folder / "store"),
        "port: 4222": f"port: {bus.port}",
        "127.0.0.1:8223": monitor_of(bus),
    }
    return with_passwords(local_config(manifests, places), teams_of(manifests), services_of(manifests))


def monitor_of(bus: ChartBus) -> str:
    """Host and port of the server's HTTP monitor."""
    [found] = re.findall(r'^http: "(.*)"$', (bus.home / "nats.conf").read_text(), re.MULTILINE)
    return str(found)


async def follow(reader: NatsBus, heard: list[str]) -> None:
    """By a durable, which the team's account keeps."""
    since = datetime(2000, 1, 1, tzinfo=UTC)
    reading = Reading((event_filter("jobs"),), since=since, durable="sub-me", selection_key="jobs")
    async with aclosing(reader.read(reading)) as facts:
        async for delivery in facts:
            heard.append(delivery.event.id)
