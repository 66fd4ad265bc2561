"""Three NATS servers on loopback, the one that leads the stream killed with -9 every five seconds."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos.ledger import Account, settle_facts
from tests.chaos.stored import read_ids

from paddlewheel import bus as bus_library
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Publisher
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsCluster, NatsServer
from paddlewheel.testkit.wait import eventually

SECONDS = 60.0
EVERY = 5.0
DOWN = 2.0
"""Seconds a killed server stays away."""
PUBLISHERS = 8
PAUSE = 0.01
"""Seconds of rest after each fact: the stream must hold all of them in the end."""
KILLS = 5
"""That the run has to reach: elections take their time."""
ACKNOWLEDGED = 1000


@dataclass
class Log:
    """What publishers were told, and when; kills so far."""

    numbers: Iterator[int] = field(default_factory=itertools.count)
    acknowledged: list[str] = field(default_factory=list)
    last: float = 0.0
    worst: float = 0.0
    tries_failed: int = 0
    kills: int = 0

    def confirm(self, event_id: str) -> None:
        """The stream has it, says the bus."""
        self.look()
        self.last = time.monotonic()
        self.acknowledged.append(event_id)

    def look(self) -> None:
        """Note for how long nothing was acknowledged now."""
        if self.last:
            self.worst = max(self.worst, time.monotonic() - self.last)


async def run() -> list[Row]:
    """All rows of the three servers."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        cluster = NatsCluster(Path(folder))
        try:
            await asyncio.to_thread(cluster.start)
            log = await _publish_and_kill(cluster)
            await asyncio.to_thread(cluster.wait_healthy)
            facts = settle_facts(log.acknowledged, await read_ids(cluster.url, JOBS.name))
        finally:
            cluster.stop()
    return _rows(log, facts)


async def _publish_and_kill(cluster: NatsCluster) -> Log:
    log = Log()
    bus = await bus_library.connect(Access(cluster.url, replicas=3), name="chaos")
    publishers = [asyncio.create_task(_publish(bus, log)) for _ in range(PUBLISHERS)]
    try:
        await eventually(lambda: len(log.acknowledged) > 100, within=60, what="publishing has begun")
        async with progress(
            "three nodes", lambda: f"{len(log.acknowledged)} acknowledged, {log.kills} kills"
        ):
            await _kill_leaders(cluster, log)
    finally:
        log.look()
        await end(*publishers)
        await bus.close()
    return log


async def _kill_leaders(cluster: NatsCluster, log: Log) -> None:
    """Kill whoever leads at every fifth second; elections take four seconds and more, so nobody may."""
    async with asyncio.TaskGroup() as group:
        for _ in range(int(SECONDS / EVERY)):
            await asyncio.sleep(EVERY)
            with suppress(LookupError):
                leader = await asyncio.to_thread(cluster.leader_of, JOBS.name)
                log.kills += 1
                group.create_task(_strike(leader))


async def _strike(server: NatsServer) -> None:
    await asyncio.to_thread(server.kill)
    try:
        await asyncio.sleep(DOWN)
    finally:
        await asyncio.to_thread(server.start)


async def _publish(bus: Publisher, log: Log) -> None:
    """Fact after fact; a refused one is published again under its id, as controllers do."""
    while True:
        event = _make_event(next(log.numbers))
        while not await _is_stored(bus, event):
            log.tries_failed += 1
            await asyncio.sleep(0.05)
        log.confirm(event.id)
        await asyncio.sleep(PAUSE)


async def _is_stored(bus: Publisher, event: Event) -> bool:
    try:
        await bus.publish(event)
    except Retry:
        return False
    return True


def _rows(log: Log, facts: Account) -> list[Row]:
    note(
        f"{len(log.acknowledged)} acknowledged, {log.tries_failed} tries failed, "
        f"longest time without an acknowledgement {log.worst:.2f} s"
    )
    return [
        Row("chaos.three_nodes.leader_kills", log.kills, KILLS, at_least=True),
        Row("chaos.three_nodes.acknowledged_facts", len(log.acknowledged), ACKNOWLEDGED, at_least=True),
        Row("chaos.three_nodes.acknowledged_facts_lost", len(facts.lost), 0),
        Row("chaos.three_nodes.facts_stored_twice", len(facts.doubled), 0),
    ]


def _make_event(number: int) -> Event:
    uid = f"uid-{number}"
    at = datetime.now(UTC)
    return make_event(JobGated(message=str(number)), id=f"{uid}/JobGated/0", source="chaos",
                      namespace="chaos", uid=uid, time=at)  # fmt: skip
