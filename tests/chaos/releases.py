"""Two releases beside each other on a real cluster for as long as one asks, while pods of both are killed.

Jobs with and without data, data sets' runs, triggers and services go on meanwhile; facts that neither release
knows are published all the time, as those of a third one would be.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
from nats.js import JetStreamContext
from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos.errands import Errands
from tests.chaos.ledger import made_twice, settle_facts, settle_started
from tests.chaos.scene import explain
from tests.chaos.stored import read_ids, read_stream
from tests.chaos.two_releases import SERVICES, Replica, check_out, kill, logs, metrics, replicas, side_by_side
from tests.chaos.world import World

from paddlewheel.bus import Access
from paddlewheel.bus.admin.permissions import OPERATOR
from paddlewheel.bus.nats.tls import load_tls
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import DATASETS, DEAD_LETTERS, JOBS, SERVING, TRIGGERS
from paddlewheel.cli.bus_access import cluster_bus_access
from paddlewheel.cli.target import Target
from paddlewheel.contracts import wire
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.tasks import end

CLUSTER = "releases"
BETWEEN_KILLS = (45.0, 135.0)
"""Seconds."""
BETWEEN_UNKNOWN = 5.0
"""Seconds between two facts that no release knows, one about a job, one about a data set."""
REST_WITHIN = 300.0
"""Seconds after the last errand in which everything must come to rest."""
UNKNOWN = (JobGated(), "gated"), (SampleSetReady(), "ready")
_WRITES = re.compile(
    r'^paddlewheel_kube_requests_total\{(?=.*verb="(?:create|patch|patch-status|delete)").*\} (\S+)'
)
_SKIPPED = re.compile(r'^paddlewheel_bus_settled_total\{(?=.*ending="unknown").*\} (\S+)')


@dataclass
class Watch:
    """What was seen of the services' pods, killed ones included."""

    writes: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """API writes by (service, is_older)."""
    skipped: Counter[bool] = field(default_factory=Counter)
    """Facts of unknown types that were passed over, by is_older."""
    killed: Counter[str] = field(default_factory=Counter)
    restarts: dict[str, int] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    """Log messages of level error."""

    async def look(self, where: Target, replica: Replica) -> None:
        """Note what a pod has done, which is gone with it."""
        text = await metrics(where, replica)
        self.writes[replica.service, replica.is_older] += _sum(_WRITES, text)
        self.skipped[replica.is_older] += _sum(_SKIPPED, text)
        self.restarts[replica.pod] = replica.restarts
        for line in (await logs(where, replica)).splitlines():
            if '"level":"error"' in line.replace(" ", ""):
                self.errors[line[:300]] += 1

    def told_errors(self) -> list[str]:
        """With how often each was logged."""
        return [f"{count}x {text}" for text, count in self.errors.items()]


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return sum(int(float(found[1])) for line in text.splitlines() if (found := pattern.match(line)))


async def run(seed: int, release: str, minutes: float) -> list[Row]:
    """All rows of the run.

    Args:
        seed: of who is killed when, and of the errands.
        release: commit or tag of the older release.
        minutes: for how long both are there.
    """
    chance, watch = random.Random(seed), Watch()
    with tempfile.TemporaryDirectory(prefix="releases-") as folder:
        upgrade = check_out(release, Path(folder) / "older")
        async with (
            side_by_side(upgrade, CLUSTER, Path(folder)) as where,
            where.connected() as cluster,
            cluster_bus_access(where, role=OPERATOR) as access,
        ):
            world, client = World(cluster), await nats.connect(access.url, **_options(access))
            errands = Errands(where, cluster, world, chance)
            try:
                async with world.watching():
                    await errands.prepare()
                    lasted = await _live(
                        where, errands, client.jetstream(timeout=10.0), watch, chance, minutes * 60
                    )
                    await world.until(lambda: not errands.restless(), REST_WITHIN)
                    await _look_at_all(where, watch)
                    return await _judge(errands, access, watch, lasted, minutes)
            finally:
                await client.close()


async def _live(
    where: Target, errands: Errands, js: JetStreamContext, watch: Watch, chance: random.Random, seconds: float
) -> float:
    """Returns the seconds that it took."""
    began = time.monotonic()
    disturbing = _beside(_kill_now_and_then(where, watch, chance), _publish_unknown(js))
    async with progress("two releases", lambda: f"{errands}; killed {watch.killed.total()}"), disturbing:
        await errands.run(seconds)
    return time.monotonic() - began


@asynccontextmanager
async def _beside(*work: object) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]  # type: ignore[call-overload]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await end(*tasks)


async def _kill_now_and_then(where: Target, watch: Watch, chance: random.Random) -> None:
    """Every replica of both releases in turn, in an order that is drawn."""
    while True:
        order = [(service, is_older) for service in SERVICES for is_older in (True, False)]
        chance.shuffle(order)
        for place in order:
            await asyncio.sleep(chance.uniform(*BETWEEN_KILLS))
            for replica in await replicas(where):
                if (replica.service, replica.is_older) == place and replica.is_ready:
                    await watch.look(where, replica)
                    watch.killed[str(replica)] += 1
                    await kill(where, replica)


async def _publish_unknown(js: JetStreamContext) -> None:
    """Well-formed facts of types that no release has."""
    number = 0
    while True:
        for data, word in UNKNOWN:
            message = _unknown(data, word, number)
            await js.publish(message.subject, message.data, headers=dict(message.headers))
        number += 1
        await asyncio.sleep(BETWEEN_UNKNOWN)


def _unknown(data: JobGated | SampleSetReady, word: str, number: int) -> RawMessage:
    uid = f"pondered-{number}"
    event = make_event(
        data, id=f"{uid}/Pondered/0", source="chaos", namespace="default", uid=uid, time=datetime.now(UTC)
    )
    body, headers = wire.encode(event)
    known = headers["ce-type"]
    later = {**headers, "ce-type": re.sub(r"(Gated|Ready)$", "Pondered", known)}
    return RawMessage(event.subject.replace(f".{word}.", ".pondered."), body, later)


async def _look_at_all(where: Target, watch: Watch) -> None:
    """Once all are there. Raises TimeoutError when one does not come back."""
    async with asyncio.timeout(REST_WITHIN):
        while not all(replica.is_ready for replica in await replicas(where)):
            await asyncio.sleep(2.0)
    for replica in await replicas(where):
        await watch.look(where, replica)


async def _judge(errands: Errands, access: Access, watch: Watch, lasted: float, minutes: float) -> list[Row]:
    world, options = errands.world, _options(access)
    stored = await read_ids(access.url, JOBS.name, DATASETS.name, SERVING.name, TRIGGERS.name, **options)
    parked = [letter.subject for letter in await read_stream(access.url, DEAD_LETTERS.name, **options)]
    known = [fact for fact in stored if "/Pondered/" not in fact]
    facts, started = settle_facts(await errands.owed(), known), settle_started(known, world.started)
    twice, wrong = made_twice(errands.pods), [*errands.wrong, *errands.restless()]
    idle = [
        f"{service}, older: {older}"
        for service in SERVICES
        for older in (True, False)
        if not watch.writes[service, older]
    ]
    crashed = [pod for pod, count in watch.restarts.items() if count]
    explain(lost=facts.lost, stored_twice=facts.doubled, disordered=facts.disordered, pods_twice=twice,
            unfinished=wrong, not_started=started.lost, started_twice=started.doubled, parked=parked,
            idle=idle, crashed=crashed, errors=watch.told_errors())  # fmt: skip
    note(f"{len(known)} facts and {len(stored) - len(known)} of unknown types; {errands}")
    note(f"killed {dict(watch.killed)}; writes {_shown(watch.writes)}")
    return [
        Row("chaos.releases.minutes", lasted / 60, minutes, "min", at_least=True),
        Row("chaos.releases.kills", watch.killed.total(), 1, at_least=True),
        Row("chaos.releases.facts_lost", len(facts.lost), 0),
        Row("chaos.releases.facts_stored_twice", len(facts.doubled), 0),
        Row("chaos.releases.facts_out_of_order", len(facts.disordered), 0),
        Row("chaos.releases.messages_parked", len(parked), 0),
        Row("chaos.releases.unknown_facts_skipped_by_the_older", watch.skipped[True], 1, at_least=True),
        Row("chaos.releases.unknown_facts_skipped_by_the_newer", watch.skipped[False], 1, at_least=True),
        Row("chaos.releases.effects_missing_or_twice", len((*started.lost, *started.doubled, *twice)), 0),
        Row("chaos.releases.errands_not_as_asked", len(wrong), 0),
        Row("chaos.releases.replicas_that_wrote_nothing", len(idle), 0),
        Row("chaos.releases.services_that_ended_by_themselves", len(crashed), 0),
    ]


def _options(access: Access) -> dict[str, Any]:
    """Of bare nats-py."""
    return {
        "tls": load_tls(access.tls_dir),
        "tls_hostname": access.tls_hostname,
        "inbox_prefix": access.inbox_prefix,
    }


def _shown(writes: Mapping[tuple[str, bool], int]) -> str:
    return ", ".join(
        f"{service} {writes[service, True]} older {writes[service, False]} newer" for service in SERVICES
    )
