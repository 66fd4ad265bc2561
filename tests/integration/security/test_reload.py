"""Values of the bus change while clients work: nothing restarts, no connection or position is lost."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Reading
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.tasks import end
from paddlewheel.testkit.chart_bus import (
    ChartBus,
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
        sources = mounted(bus, tmp_path / "mounted")
        beside = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bus_auth", "server-config", *map(str, sources), str(bus.home)
        )
        # Before, it would take the second configuration for the first.
        await eventually((bus.home / "keys.conf").exists, within=90)
        controller = NatsBus(bus.access("job-controller"), name="job-controller")
        readers = [
            NatsBus(bus.access("subscriber", url=bus.url_of(team)), name=team)
            for team in ("subscriber", "vision")
        ]
        heard: list[list[str]] = [[], []]
        following = [asyncio.create_task(follow(*each)) for each in zip(readers, heard, strict=True)]
        try:
            await patiently(lambda: controller.publish(make_gated(1)))
            await patiently(lambda: controller.publish(make_gated(1, "other", "team-b")))
            await eventually(lambda: list(map(len, heard)) == [2, 1], what="the first facts")
            before = bus.process
            sources[0].write_text(configured(bus, *AFTER))
            await eventually(lambda: "Reloaded server configuration" in bus.log, within=60)

            declared = render("paddlewheel", "crds.install=false", *AFTER)
            after = ChartBus(bus.folder, bus.port, bus.home, teams_of(declared), services_of(declared))
            await install(after)
            async with guest(after, "audio", prefix="_INBOX_subscriber"), guest(after, "notebooks"):
                await controller.publish(make_gated(2))
                await controller.publish(make_gated(2, "other", "team-b"))
                await eventually(lambda: list(map(len, heard)) == [4, 3], what="the second facts")

            assert before is not None
            assert before.poll() is None, "the server was restarted"
            assert bus.log.count("Server is ready") == 1
            assert [each._connection.generation for each in (controller, *readers)] == [0, 0, 0]
            # Each fact once: the durables keep their positions.
            second = ["uid/gated/2", "other/gated/2"]
            assert heard == [["uid/gated/1", "other/gated/1", *second], ["uid/gated/1", *second]]
        finally:
            await end(*following)
            await controller.close()
            for each in readers:
                await each.close()
            beside.terminate()
            await beside.wait()


def mounted(bus: ChartBus, folder: Path) -> tuple[Path, Path, Path]:
    """The files that the pod of the server mounts."""
    folder.mkdir()
    config = folder / "nats.conf"
    config.write_text((bus.home / "nats.conf").read_text())
    return config, bus.folder / "bus-auth-key" / "tls.crt", bus.folder / "nats-tls-server"


def configured(bus: ChartBus, *values: str) -> str:
    """The configuration by other values, with the places of this server."""
    manifests = render("paddlewheel", "crds.install=false", *values)
    [monitor] = re.findall(r"^http_port: .*$", (bus.home / "nats.conf").read_text(), re.MULTILINE)
    places = {
        "/run/nats/": f"{bus.home}/",
        "/etc/nats-tls": str(bus.folder / "nats-tls-server"),
        "/data": str(bus.folder / "store"),
        "port: 4222": f"port: {bus.port}",
        "http_port: 8222": monitor,
    }
    return with_passwords(local_config(manifests, places), teams_of(manifests), services_of(manifests))


async def follow(reader: NatsBus, heard: list[str]) -> None:
    """By a durable, which the team's account keeps."""
    since = datetime(2000, 1, 1, tzinfo=UTC)
    reading = Reading((event_filter("jobs"),), since=since, durable="sub-me", selection_key="jobs")
    async with aclosing(reader.read(reading)) as facts:
        async for delivery in facts:
            heard.append(delivery.event.id)
