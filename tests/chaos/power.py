"""Power is cut while facts are published: everything acknowledged must be there when it is back.

Servers run in virtual machines, with the configuration that the chart renders, unchanged. Two scenarios have
the setting of profile development, fsync every two minutes: they must lose facts, or the others show nothing.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.js import JetStreamContext
from tests.bench.progress import note
from tests.bench.rows import Row
from tests.chaos.initramfs import System, find_system, pack
from tests.chaos.ledger import settle_facts
from tests.chaos.machine import PACKAGE, PROGRAM, Machine, address_of
from tests.chaos.publishers import Log, publishing
from tests.chaos.stored import Stored, read_stream

from paddlewheel import bus as bus_library
from paddlewheel.bus.admin.permissions import OPERATOR, inbox_prefix
from paddlewheel.bus.streams import JOBS, STREAMS
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.doctor import install as install_packages
from paddlewheel.testkit.chart_bus import (
    ChartBus,
    install,
    tls_of,
    with_passwords,
    with_user,
    write_certificates,
)
from paddlewheel.testkit.charts import Manifests, named, render
from paddlewheel.testkit.wait import eventually

FACTS = (150, 600)
"""Acknowledged before a cut, at least and at most."""
MOMENT = 0.5
"""Seconds at most from the last of them to the cut."""
BOOTED_WITHIN = 180.0
PUBLISHED_WITHIN = 240.0
ANSWERED_WITHIN = 90.0
OFTEN = 0.5
ON_DISK_WITHIN = 90.0
"""Linux writes after 30 seconds what nobody synchronizes."""
DECLARED = [f'"name":"{spec.name}"'.encode() for spec in STREAMS if spec.storage == "file"]
"""In the streams' own files."""
PRODUCTION = "profile=production"


@dataclass(frozen=True)
class Scenario:
    """How many servers, with which values of the chart, and how many of them are cut at once, how often.

    `loses`: without a loss the others show nothing.
    """

    name: str
    values: tuple[str, ...]
    servers: int
    at_once: int
    cuts: int
    loses: bool = False


SCENARIOS = (
    Scenario("three_of_three", (PRODUCTION,), servers=3, at_once=3, cuts=4),
    Scenario("one_of_three", (PRODUCTION,), servers=3, at_once=1, cuts=4),
    Scenario("alone", ("nats.jetstream.syncInterval=always",), servers=1, at_once=1, cuts=6),
    Scenario("alone_not_synced", (), servers=1, at_once=1, cuts=1, loses=True),
    Scenario("three_not_synced", ("nats.replicas=3",), servers=3, at_once=3, cuts=1, loses=True),
)


@dataclass(frozen=True)
class Cut:
    """These servers lose power some seconds after so many facts were acknowledged since the last time."""

    facts: int
    seconds: float
    servers: tuple[int, ...]


def draw_cuts(chance: random.Random, scenario: Scenario) -> list[Cut]:
    """When, and whom."""
    return [
        Cut(
            facts=chance.randint(*FACTS),
            seconds=chance.uniform(0.0, MOMENT),
            servers=tuple(chance.sample(range(scenario.servers), scenario.at_once)),
        )
        for _ in range(scenario.cuts)
    ]


@dataclass
class Findings:
    """What was wrong after any of the cuts."""

    lost: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)

    def judge(self, acknowledged: Sequence[str], stored: Sequence[Stored], silent: Collection[str]) -> None:
        """Compare what publishers were told with what is there; silence and gaps are damage."""
        facts = settle_facts(acknowledged, [each.id for each in stored])
        self.lost.update(facts.lost)
        self.doubled.update(facts.doubled)
        self.damaged.update(silent)
        if [each.sequence for each in stored] != list(range(1, len(stored) + 1)):
            self.damaged.add(JOBS.name)


@dataclass(frozen=True)
class Rack:
    """The servers of a scenario, and how they are reached."""

    machines: Sequence[Machine]
    bus: ChartBus
    common: Mapping[str, Any]

    async def power_on(self, numbers: Iterable[int]) -> None:
        """Return when all servers are ready, by the probe of the chart's pods."""
        for number in numbers:
            self.machines[number].power_on()
        for machine in self.machines:
            probe = partial(asyncio.to_thread, machine.is_ready)
            await eventually(probe, within=BOOTED_WITHIN, every=OFTEN, what=f"nats-{machine.number} is ready")

    async def install(self) -> None:
        """As bus-installer does. Return when the contents of all declarations were written to every disk.

        Servers that do not fsync may lose streams nevertheless: the kernel writes the sizes of files later.
        """
        await install(self.bus, **self.common)
        for machine in self.machines:
            probe = partial(asyncio.to_thread, machine.disk.has, DECLARED)
            what = f"all streams are on the disk of nats-{machine.number}"
            await eventually(probe, within=ON_DISK_WITHIN, every=OFTEN, what=what)

    def cut_power(self, numbers: Iterable[int]) -> None:
        """Of all of them in the same moment."""
        for number in numbers:
            self.machines[number].cut_power()

    async def inspect(self, acknowledged: Sequence[str], findings: Findings) -> None:
        """Judge what is there, asked with bare nats-py."""
        url = with_user(self.common["url"], OPERATOR)
        options = {
            "tls": tls_of(self.bus.authority),
            "tls_hostname": "nats",
            "inbox_prefix": inbox_prefix(OPERATOR),
        }
        client = await nats.connect(url.split(","), **options)
        try:
            silent = await _silent_streams(client.jetstream(timeout=5.0))
        finally:
            await client.close()
        read = partial(_read_facts, url, options)
        stored = [] if JOBS.name in silent else await eventually(read, within=ANSWERED_WITHIN)
        findings.judge(acknowledged, stored, silent)


async def _read_facts(url: str, options: Mapping[str, Any]) -> list[Stored]:
    """Raises LookupError while the stream changes its leader."""
    try:
        return await read_stream(url, JOBS.name, **options)
    except nats.errors.Error as error:
        raise LookupError(repr(error)) from error


async def _silent_streams(js: JetStreamContext) -> set[str]:
    """Those that do not answer in time: lost, damaged beyond recovery, or without a leader."""
    silent = {spec.name for spec in STREAMS}
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWERED_WITHIN):
            while silent:
                for name in sorted(silent):
                    with suppress(nats.errors.Error):
                        await js.stream_info(name)
                        silent.remove(name)
                await asyncio.sleep(OFTEN)
    return silent


@contextmanager
def _rack(scenario: Scenario, system: System, folder: Path, logs: Path | None) -> Iterator[Rack]:
    """Machines with empty disks, still without power; what they said remains in `logs`."""
    manifests = render("paddlewheel", "crds.install=false", *scenario.values)
    write_certificates(manifests, folder)
    archive = folder / "initramfs"
    archive.write_bytes(pack({**system.files, **_server_files(manifests, folder, scenario.servers)}))
    rack, *ports = free_ports(1 + 2 * scenario.servers)
    machines = [
        Machine(
            folder / f"nats-{number}",
            number,
            system.kernel,
            archive,
            rack,
            ports[2 * number : 2 * number + 2],
        )
        for number in range(scenario.servers)
    ]
    for machine in machines:
        machine.disk.make()
    try:
        yield Rack(machines, ChartBus(folder, machines[0].ports[0], folder), _common(scenario, machines))
    finally:
        for machine in machines:
            machine.cut_power()
        for machine in machines:
            machine.wait_off()
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                (logs / f"{scenario.name}-nats-{machine.number}.log").write_text(machine.console)


def _server_files(manifests: Manifests, folder: Path, servers: int) -> dict[str, bytes]:
    """What the chart's pods mount, and the addresses that the cluster's DNS would know."""
    namespace = named(manifests, "ConfigMap", "nats-config")["metadata"]["namespace"]
    hosts = [f"{address_of(each)} nats-{each}.nats-servers.{namespace}.svc\n" for each in range(servers)]
    certificate = folder / "nats-tls-server"
    return {
        "etc/hosts": "".join(hosts).encode(),
        "etc/nats/nats.conf": with_passwords(
            named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
        ).encode(),
        **{f"etc/nats-tls/{file.name}": file.read_bytes() for file in certificate.iterdir()},
    }


def _common(scenario: Scenario, machines: Sequence[Machine]) -> dict[str, Any]:
    """What the settings of every service say about the bus."""
    return {
        "url": ",".join(machine.url for machine in machines),
        "monitor_url": ",".join(machine.monitor_url for machine in machines),
        "replicas": scenario.servers,
        "profile": "production" if PRODUCTION in scenario.values else "development",
    }


async def run(seed: int, logs: Path | None = None) -> list[Row]:
    """All rows of the cuts; installs QEMU when it is missing.

    Args:
        seed: of the moments, and of who is cut.
        logs: a folder that keeps what the machines wrote on their consoles.
    """
    if not is_possible():
        await asyncio.to_thread(install_packages, [PACKAGE], note)
    system = await asyncio.to_thread(find_system)
    rows: list[Row] = []
    for scenario in SCENARIOS:
        rows += await _play(scenario, system, random.Random(f"{seed} {scenario.name}"), logs)
    return rows


def is_possible() -> bool:
    """QEMU is installed."""
    return shutil.which(PROGRAM) is not None


async def _play(scenario: Scenario, system: System, chance: random.Random, logs: Path | None) -> list[Row]:
    findings = Findings()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        _rack(scenario, system, Path(folder), logs) as rack,
    ):
        await rack.power_on(range(scenario.servers))
        await rack.install()
        log = await _publish_and_cut(rack, draw_cuts(chance, scenario), findings)
        await rack.inspect(log.acknowledged, findings)
    note(f"{scenario.name}: {log}; damaged: {', '.join(sorted(findings.damaged)) or 'no stream'}")
    return rows_of(scenario, log, findings)


async def _publish_and_cut(rack: Rack, cuts: Sequence[Cut], findings: Findings) -> Log:
    bus = await bus_library.connect(rack.bus.access("job-controller", **rack.common), name="chaos")
    try:
        async with publishing(bus) as log:
            for cut in cuts:
                await _await_facts(log, cut.facts)
                await asyncio.sleep(cut.seconds)
                rack.cut_power(cut.servers)
                acknowledged = list(log.acknowledged)
                await rack.power_on(cut.servers)
                await rack.inspect(acknowledged, findings)
                note(f"{len(acknowledged)} acknowledged, {cut.servers} cut, {len(findings.lost)} lost")
    finally:
        await bus.close()
    return log


async def _await_facts(log: Log, more: int) -> None:
    wanted = len(log.acknowledged) + more
    await eventually(lambda: len(log.acknowledged) >= wanted, within=PUBLISHED_WITHIN, what=f"{more} facts")


def rows_of(scenario: Scenario, log: Log, findings: Findings) -> list[Row]:
    """One promise, or one loss, and what it is measured by."""
    name = f"chaos.power.{scenario.name}"
    enough = Row(f"{name}.acknowledged", len(log.acknowledged), scenario.cuts * FACTS[0], at_least=True)
    lost = len(findings.lost)
    if scenario.loses:
        return [enough, Row(f"{name}.acknowledged_lost", lost, 1, at_least=True)]
    return [
        enough,
        Row(f"{name}.acknowledged_lost", lost, 0),
        Row(f"{name}.stored_twice", len(findings.doubled), 0),
        Row(f"{name}.streams_damaged", len(findings.damaged), 0),
    ]
