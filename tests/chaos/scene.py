"""Where faults happen: every controller, a subscriber and played agents, all watched from outside."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.progress import note
from tests.bench.stand import JOB_CONTROLLER, Stand, stand
from tests.chaos import subscriber
from tests.chaos.ledger import settle_started
from tests.chaos.lives import Lives
from tests.chaos.stored import read_ids
from tests.chaos.world import World

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import DATASETS, JOBS
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import NAMESPACES, PADDLE_JOBS, TRIGGERS, Object
from paddlewheel.testkit.paddlejobs import make_role
from paddlewheel.testkit.samplesets import ScriptedRuntime
from paddlewheel.testkit.services import Service

FAKE_NODES = 12
NAMESPACE = "chaos"
SAMPLE_SETS = tuple(f"set-{number:02}" for number in range(10))
TRIGGER = "again"
"""It makes a new PaddleJob for every one that failed."""
REST_WITHIN = 120.0
"""Seconds in which everything must come to rest once the last life has been led."""
SERVICES = (JOB_CONTROLLER, "dataset-controller", "trigger-controller")
REPLICAS = ("job-controller-a", "job-controller-b")
SUBSCRIBER = "subscriber"
_JOB_REPLICA = {"REPLICAS_SHARE": "true"}


@dataclass
class Scene:
    """`effects` is the subscriber's database."""

    stand: Stand
    world: World
    lives: Lives
    bus: Bus
    runtime: ScriptedRuntime
    effects: Path

    def facts(self) -> int:
        """Promised so far."""
        return len(self.world.promised())

    async def stored(self) -> list[str]:
        """Ids of what lies in the streams, those of each stream in order."""
        return await read_ids(self.stand.nats.url, JOBS.name, DATASETS.name)

    def owed(self) -> set[str]:
        """Ids of all facts that must be in the streams: announced in a status, or said by going."""
        gone = (uid for uid, o in self.world.objects.items() if o.is_gone and o.kind == PADDLE_JOBS.kind)
        return self.world.promised() | {f"{uid}/JobDeleted/0" for uid in gone}

    def restless(self) -> list[str]:
        """Objects that are not where they should be in the end, and services that ended by themselves."""
        codes = ((name, service.exit_code) for name, service in self.stand.services.items())
        ended = [f"{name} ended with {code}" for name, code in codes if code is not None]
        return [*ended, *(f"{o.key} {o.phase}" for o in self.world.objects.values() if not o.at_rest)]

    async def come_to_rest(self) -> None:
        """Return when every object is at rest, and the subscriber and the trigger have done what they can, or
        time is up: what a killed one held is delivered again after a while."""
        await self.world.until(lambda: not self.restless(), REST_WITHIN)
        deadline = time.monotonic() + REST_WITHIN
        while time.monotonic() < deadline:
            stored = await self.stored()
            is_done = set(stored) <= set(subscriber.read(self.effects, "effects"))
            if is_done and not settle_started(stored, self.world.started).lost:
                await self.world.until(lambda: not self.restless(), REST_WITHIN)
                return
            await asyncio.sleep(1.0)

    def synced_twice(self) -> list[str]:
        """Data sets whose source was synced by more than one run."""
        runs: dict[str, set[str]] = {}
        for spec in self.runtime.seen:
            if member_of(spec) == "sync":
                runs.setdefault(spec.set_uid, set()).add(spec.run_id)
        return [uid for uid, ids in runs.items() if len(ids) > 1]


@asynccontextmanager
async def scene(chance: random.Random, logs: Path | None) -> AsyncIterator[Scene]:
    """Two replicas of job-controller that share the jobs, one of each other controller.

    Args:
        logs: a folder that keeps what the services wrote.
    """
    async with stand(FAKE_NODES, "chaos", logs) as made:
        await made.cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for replica in REPLICAS:
            await made.start(JOB_CONTROLLER, replica, POD_NAMESPACE=NAMESPACE, **_JOB_REPLICA)
        for service in SERVICES[1:]:
            await made.start(service, POD_NAMESPACE=NAMESPACE)
        await made.cluster.create(TRIGGERS, _trigger())
        effects = made.folder / "effects.db"
        made.services[SUBSCRIBER] = await _start_subscriber(made, effects)
        bus = await bus_library.connect(made.nats.url, name="chaos")
        try:
            async with _played(made, bus, chance, effects) as played:
                yield played
        finally:
            await bus.close()


@asynccontextmanager
async def _played(made: Stand, bus: Bus, chance: random.Random, effects: Path) -> AsyncIterator[Scene]:
    world, runtime = World(made.cluster), ScriptedRuntime(bus, repeat=1.0)
    lives = Lives(made.cluster, world, NAMESPACE, chance)
    tasks = [asyncio.create_task(_play(runtime)), asyncio.create_task(lives.end_started())]
    try:
        async with world.watching():
            yield Scene(made, world, lives, bus, runtime, effects)
    finally:
        await end(*tasks)


async def _start_subscriber(made: Stand, effects: Path) -> Service:
    env = {**os.environ, "CHAOS_NATS_URL": made.nats.url, "CHAOS_EFFECTS": str(effects)}
    service = Service("tests.chaos.subscriber", env, made.folder / "subscriber.log")
    await service.start()
    return service


async def _play(runtime: ScriptedRuntime) -> None:
    """The agents' bus goes away with everybody's."""
    while True:
        with suppress(Retry, ExceptionGroup):
            await runtime.run()
        await asyncio.sleep(0.5)


def _trigger() -> Object:
    failed = {"fact": {"type": "paddlewheel.jobs.v1.JobFailed"}}
    create = {"paddleJob": {"spec": {"worker": make_role(1)}}}
    metadata = {"namespace": NAMESPACE, "name": TRIGGER}
    return {"metadata": metadata, "spec": {"when": failed, "create": create, "concurrencyPolicy": "Allow"}}


def explain(**faults: Sequence[str]) -> None:
    """Name a few of each kind of fault found."""
    for name, found in faults.items():
        if found:
            note(f"{name}: {len(found)}, such as {', '.join(found[:8])}")
