"""Three NATS servers on loopback, the one that leads the stream killed with -9 every five seconds."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos.ledger import Account, settle_facts
from tests.chaos.publishers import Log, publishing
from tests.chaos.stored import read_ids

from paddlewheel import bus as bus_library
from paddlewheel.bus.access import Access
from paddlewheel.bus.streams import JOBS
from paddlewheel.testkit.nats import NatsCluster, NatsServer
from paddlewheel.testkit.wait import eventually

SECONDS = 60.0
EVERY = 5.0
DOWN = 2.0
"""Seconds a killed server stays away."""
KILLS = 5
"""That the run has to reach: elections take their time."""
ACKNOWLEDGED = 1000


@dataclass
class Kills:
    """So far."""

    count: int = 0


async def run() -> list[Row]:
    """All rows of the three servers."""
    kills = Kills()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        cluster = NatsCluster(Path(folder))
        try:
            await asyncio.to_thread(cluster.start)
            log = await _publish_and_kill(cluster, kills)
            await asyncio.to_thread(cluster.wait_healthy)
            facts = settle_facts(log.acknowledged, await read_ids(cluster.url, JOBS.name))
        finally:
            cluster.stop()
    return _rows(log, kills, facts)


async def _publish_and_kill(cluster: NatsCluster, kills: Kills) -> Log:
    bus = await bus_library.connect(Access(cluster.url, replicas=3), name="chaos")
    try:
        async with publishing(bus) as log:
            await eventually(lambda: len(log.acknowledged) > 100, within=60, what="publishing has begun")
            async with progress(
                "three nodes", lambda: f"{len(log.acknowledged)} acknowledged, {kills.count} kills"
            ):
                await _kill_leaders(cluster, kills)
    finally:
        await bus.close()
    return log


async def _kill_leaders(cluster: NatsCluster, kills: Kills) -> None:
    """Kill whoever leads at every fifth second; elections take four seconds and more, so nobody may."""
    async with asyncio.TaskGroup() as group:
        for _ in range(int(SECONDS / EVERY)):
            await asyncio.sleep(EVERY)
            with suppress(LookupError):
                leader = await asyncio.to_thread(cluster.leader_of, JOBS.name)
                kills.count += 1
                group.create_task(_strike(leader))


async def _strike(server: NatsServer) -> None:
    await asyncio.to_thread(server.kill)
    try:
        await asyncio.sleep(DOWN)
    finally:
        await asyncio.to_thread(server.start)


def _rows(log: Log, kills: Kills, facts: Account) -> list[Row]:
    note(str(log))
    return [
        Row("chaos.three_nodes.leader_kills", kills.count, KILLS, at_least=True),
        Row("chaos.three_nodes.acknowledged_facts", len(log.acknowledged), ACKNOWLEDGED, at_least=True),
        Row("chaos.three_nodes.acknowledged_facts_lost", len(facts.lost), 0),
        Row("chaos.three_nodes.facts_stored_twice", len(facts.doubled), 0),
    ]
