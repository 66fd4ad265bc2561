"""Our publisher's acknowledged rate over bare nats-py's: same server, stream, bytes and headers, by turns."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import nats
from nats.js import JetStreamContext
from tests.bench.progress import note
from tests.bench.rows import Row

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobRunning, RoleCounts
from paddlewheel.testkit.nats import NatsServer

ONE_BY_ONE = 1500
BATCHES = 12
BATCH = 256
ROUNDS = 7
GOAL = 0.7

Send = Callable[[], Awaitable[object]]
"""One publish, to be awaited until it is acknowledged."""
Prepare = Callable[[Event], Send]
Run = Callable[[Sequence[Send]], Awaitable[None]]

_numbers = itertools.count()


async def measure() -> list[Row]:
    """Ratios of medians over alternating rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = NatsServer(Path(folder))
        server.start()
        try:
            return await _ratios(server.url)
        finally:
            server.kill()


async def _ratios(url: str) -> list[Row]:
    bus = await bus_library.connect(url, name="bench")
    client = await nats.connect(url)
    try:
        return await _compare(bus, client.jetstream(timeout=5.0))
    finally:
        await client.close()
        await bus.close()


async def _compare(bus: Publisher, js: JetStreamContext) -> list[Row]:
    def ours(event: Event) -> Send:
        return partial(bus.publish, event)

    def bare(event: Event) -> Send:
        """Handed its bytes ready; making ours is part of our path."""
        data, headers = wire.encode(event)
        return partial(js.publish, event.subject, data, headers=headers)

    alone = await _ratio(ours, bare, _one_by_one, ONE_BY_ONE)
    batched = await _ratio(ours, bare, _in_batches, BATCHES * BATCH)
    return [
        Row("bus.publish_one_by_one_over_bare", alone, GOAL, "x", at_least=True),
        Row("bus.publish_in_batches_over_bare", batched, GOAL, "x", at_least=True),
    ]


async def _ratio(ours: Prepare, bare: Prepare, run: Run, count: int) -> float:
    rates: dict[Prepare, list[float]] = {ours: [], bare: []}
    for _ in range(ROUNDS):
        for prepare, found in rates.items():
            found.append(await _rate([prepare(_make_event()) for _ in range(count)], run))
    mine, floor = (statistics.median(found) for found in rates.values())
    note(f"{run.__name__.strip('_')}: {mine:.0f} acknowledged publishes per second, bare nats-py {floor:.0f}")
    return mine / floor


async def _rate(sends: Sequence[Send], run: Run) -> float:
    began = time.perf_counter()
    await run(sends)
    return len(sends) / (time.perf_counter() - began)


async def _one_by_one(sends: Sequence[Send]) -> None:
    for send in sends:
        await send()


async def _in_batches(sends: Sequence[Send]) -> None:
    for start in range(0, len(sends), BATCH):
        await asyncio.gather(*(send() for send in sends[start : start + BATCH]))


def _make_event() -> Event:
    number = next(_numbers)
    uid = f"uid-{number}"
    job = ObjectRef(namespace="bench", name=f"job-{number}", uid=uid, generation=1, resource_version="1")
    fact = JobRunning(job=job, roles={"worker": RoleCounts(wanted=2, running=2)})
    return make_event(
        fact, id=f"{uid}/JobRunning/0", source="bench", namespace="bench", uid=uid, time=datetime.now(UTC)
    )
