"""The fault run: two thousand facts while nats-server and the controllers are killed with -9 twenty times."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos import subscriber
from tests.chaos.killer import Killer, draw_moments, draw_names, server_victim, service_victim
from tests.chaos.ledger import made_twice, settle_effects, settle_facts, settle_started
from tests.chaos.lives import draw_lives
from tests.chaos.scene import SAMPLE_SETS, SUBSCRIBER, Scene, explain, scene

TRANSITIONS = 2000
KILLS = 20
SUBSCRIBER_KILLS = 3
"""Beside the twenty."""
LIVES = 440
NATS = "nats-server"


async def run(seed: int, logs: Path | None = None) -> list[Row]:
    """All rows of the fault run.

    Args:
        seed: of who is killed when, and of what the objects do; repeats both, not their interleaving.
        logs: a folder that keeps what the services wrote.
    """
    chance = random.Random(seed)
    async with scene(chance, logs) as played:
        began = time.monotonic()
        killer = _killer(played, chance)
        async with progress("fault run", lambda: _so_far(played, killer)):
            await _live_and_die(played, killer, chance)
            await played.come_to_rest()
        note(f"fault run took {time.monotonic() - began:.0f} s, killed: {dict(killer.killed)}")
        return await _judge(played, killer)


def _killer(played: Scene, chance: random.Random) -> Killer:
    services = {name: service_victim(service) for name, service in played.stand.services.items()}
    victims = {NATS: server_victim(played.stand.nats), **services}

    async def until(facts: int) -> None:
        await played.world.until(lambda: played.facts() >= facts or played.lives.led == LIVES, 600.0)

    return Killer(victims, chance, until)


async def _live_and_die(played: Scene, killer: Killer, chance: random.Random) -> None:
    controllers = [name for name in killer.victims if name != SUBSCRIBER]
    names = [*draw_names(chance, KILLS, controllers, NATS), *[SUBSCRIBER] * SUBSCRIBER_KILLS]
    chance.shuffle(names)
    moments = draw_moments(chance, len(names), TRANSITIONS)
    lives = draw_lives(chance, LIVES, SAMPLE_SETS)
    async with asyncio.TaskGroup() as group:
        group.create_task(killer.run(moments, names))
        group.create_task(played.lives.make_sample_sets(SAMPLE_SETS))
        await played.lives.lead(lives)


async def _judge(played: Scene, killer: Killer) -> list[Row]:
    world, stored = played.world, await played.stored()
    facts = settle_facts(played.owed(), stored)
    effects = settle_effects(stored, subscriber.read(played.effects, "effects"))
    started = settle_started(stored, world.started)
    pods_twice, restless, syncs_twice = made_twice(world.pods), played.restless(), played.synced_twice()
    explain(lost=facts.lost, stored_twice=facts.doubled, disordered=facts.disordered, restless=restless,
            pods_twice=pods_twice, syncs_twice=syncs_twice, effects_lost=effects.lost,
            effects_twice=effects.doubled, not_started=started.lost,
            started_twice=started.doubled)  # fmt: skip
    deliveries = len(subscriber.read(played.effects, "deliveries"))
    note(f"{len(stored)} facts, {len(world.pods)} pods, {len(world.started)} jobs started by facts; "
         f"{deliveries} deliveries to the subscriber")  # fmt: skip
    kills = killer.killed.total() - killer.killed[SUBSCRIBER]
    twice = (*pods_twice, *syncs_twice, *effects.doubled, *started.doubled)
    return [
        Row("chaos.faults.transitions", len(set(stored)), TRANSITIONS, at_least=True),
        Row("chaos.faults.kills", kills, KILLS, at_least=True),
        Row("chaos.faults.facts_lost", len(facts.lost), 0),
        Row("chaos.faults.facts_stored_twice", len(facts.doubled), 0),
        Row("chaos.faults.facts_out_of_order", len(facts.disordered), 0),
        Row("chaos.faults.effects_done_twice", len(twice), 0),
        Row("chaos.faults.effects_missing", len(effects.lost) + len(started.lost), 0),
        Row("chaos.faults.objects_not_converged", len(restless) + played.lives.stuck, 0),
    ]


def _so_far(played: Scene, killer: Killer) -> str:
    return f"{played.facts()} facts, {played.lives.led} of {LIVES} jobs, {killer.killed.total()} kills"
