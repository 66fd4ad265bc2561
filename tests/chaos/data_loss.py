"""The data directory deleted in the middle of a run; then the streams deleted, and `rebuild` asked for."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import nats
from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos import subscriber
from tests.chaos.ledger import made_twice, settle_effects, settle_facts
from tests.chaos.lives import draw_lives
from tests.chaos.scene import SAMPLE_SETS, SERVICES, Scene, explain, scene

from paddlewheel.bus.streams import DATASETS, JOBS
from paddlewheel.contracts.generated.bus_v1 import Rebuild, RebuildReport
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import Retry

LIVES = 120
LOST_AT = 0.4
"""Share of the lives led when the data go."""
BACK_WITHIN = 60.0
"""Seconds in which current facts must be back."""


async def run(seed: int, logs: Path | None = None) -> list[Row]:
    """All rows of the lost data.

    Args:
        seed: of what the objects do.
        logs: a folder that keeps what the services wrote.
    """
    chance = random.Random(seed)
    async with scene(chance, logs) as played, progress("lost data", lambda: f"{played.lives.led} jobs led"):
        await _live(played, chance)
        by_itself = await _missing(played, "by itself")
        await played.come_to_rest()
        restless, twice = played.restless(), await _twice(played)
        await _delete_streams(played.stand.nats.url)
        await _command(played)
        by_command = await _missing(played, "by command")
    explain(restless=restless, missing=by_itself, missing_by_command=by_command, twice=twice)
    return [
        Row("chaos.data_loss.objects_not_converged", len(restless) + played.lives.stuck, 0),
        Row("chaos.data_loss.effects_done_twice", len(twice), 0),
        Row("chaos.data_loss.facts_missing_without_command", len(by_itself), 0),
        Row("chaos.data_loss.facts_missing_after_command", len(by_command), 0),
    ]


async def _live(played: Scene, chance: random.Random) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_lose_data(played))
        group.create_task(played.lives.make_sample_sets(SAMPLE_SETS))
        await played.lives.lead(draw_lives(chance, LIVES, SAMPLE_SETS))
    await played.come_to_rest()


async def _lose_data(played: Scene) -> None:
    await played.world.until(lambda: played.lives.led >= LIVES * LOST_AT, 600.0)
    note(f"the data directory is deleted after {len(await played.stored())} facts")
    await asyncio.to_thread(played.stand.nats.lose_data)


async def _missing(played: Scene, how: str) -> list[str]:
    """Announced facts of live objects that are not in the streams after some time."""
    began = time.monotonic()
    while True:
        owed = {fact for o in played.world.objects.values() if not o.is_gone for fact in o.told}
        account = settle_facts(owed, await played.stored())
        if not account.lost or time.monotonic() - began > BACK_WITHIN:
            note(f"{how}: {len(owed) - len(account.lost)} of {len(owed)} facts of live objects are there "
                 f"after {time.monotonic() - began:.0f} s")  # fmt: skip
            return [*account.lost, *account.doubled]
        await asyncio.sleep(1.0)


async def _twice(played: Scene) -> list[str]:
    """A fact told again under its id is a second delivery, never a second effect."""
    stored = await played.stored()
    effects = settle_effects(stored, subscriber.read(played.effects, "effects"))
    started = [event for event, uids in played.world.started.items() if len(uids) > 1]
    return [*made_twice(played.world.pods), *effects.doubled, *started]


async def _delete_streams(url: str) -> None:
    """By hand, while all are connected: nobody notices before the next look at it by timer."""
    client = await nats.connect(url)
    try:
        for stream in (JOBS, DATASETS):
            await client.jetstream().delete_stream(stream.name)
    finally:
        await client.close()


async def _command(played: Scene) -> None:
    for service in SERVICES[:2]:
        for report in await _reports(played, service):
            done = f"{report.facts_published} of {report.facts_checked} facts published again"
            note(f"{report.replica}: {report.objects} objects, {done}")


async def _reports(played: Scene, service: str) -> list[RebuildReport]:
    """What the replicas say; asked again when one could not, as the command's user would."""
    deadline = time.monotonic() + BACK_WITHIN
    while time.monotonic() < deadline:
        try:
            answers = await played.bus.ask_all(command_subject(service, "rebuild"), to_json(Rebuild()))
        except Retry as error:
            note(f"{service}: {error}")
            await asyncio.sleep(1.0)
        else:
            return [from_json(RebuildReport, answer) for answer in answers]
    return []
