"""Messages that nobody can handle, among a steady stream that must not wait for them."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.errors import APIError
from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.chaos.stored import Stored, read_stream

from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus, Delivery, RawMessage, Subscription
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import dead_letter_subject, event_filter
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

SECONDS = 10.0
"""Of neighbours alone, and again of neighbours with poison."""
RATE = 100.0
"""Neighbours per second."""
OF_EACH = 8
"""Poison messages of every kind; together they stay below the cap that stops a consumer."""
TWO_MB = 2 * 1000 * 1000
GOAL = 1.0
PARKED_WITHIN = 30.0
SUBSCRIPTION = Subscription("chaos-poison", JOBS.name, (event_filter("jobs"),))
LETTERS = dead_letter_subject(SUBSCRIPTION.durable)
SERVER = {"max_payload": 4 << 20}
"""The server lets 2 MB in, or the stream would never meet them."""


@dataclass
class Neighbours:
    """A steady stream of good facts, and how long each took to its handler."""

    sent: dict[str, float] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)

    async def handle(self, delivery: Delivery) -> None:
        """A handler's work takes a moment."""
        await asyncio.sleep(0.002)
        event_id = delivery.event.id
        self.delays[event_id] = time.monotonic() - self.sent[event_id]

    async def send(self, bus: Bus, phase: str) -> None:
        """So many per second, for ten seconds."""
        for number in range(int(SECONDS * RATE)):
            event = _make_event(f"{phase}-{number}")
            self.sent[event.id] = time.monotonic()
            await bus.publish(event)
            await asyncio.sleep(1 / RATE)

    def worst(self, phase: str) -> float:
        """Longest delay of a phase, in seconds."""
        return max(delay for event_id, delay in self.delays.items() if event_id.startswith(phase))


async def run(seed: int) -> list[Row]:
    """All rows of the poison run."""
    chance = random.Random(seed)
    async with _consumed() as (server, bus, js, neighbours):
        doses = [dose for kind in range(OF_EACH) for dose in _make_poison(kind)]
        chance.shuffle(doses)
        refused = await _is_refused(js, _too_large("at-the-door"))
        async with progress("poison", lambda: f"{len(neighbours.delays)} neighbours handled"):
            await neighbours.send(bus, "clean")
            await _lift_limit(js)
            await asyncio.gather(neighbours.send(bus, "poisoned"), _inject(js, doses))
            await eventually(lambda: len(neighbours.delays) == len(neighbours.sent), within=60)
            letters = await _wait_letters(server.url, len(doses))
    return _rows(neighbours, doses, letters, refused)


@asynccontextmanager
async def _consumed() -> AsyncIterator[tuple[NatsServer, Bus, JetStreamContext, Neighbours]]:
    neighbours = Neighbours()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        server = NatsServer(Path(folder), SERVER)
        server.start()
        try:
            bus = await bus_library.connect(server.url, name="chaos")
            client = await nats.connect(server.url)
            consuming = asyncio.create_task(bus.consume(SUBSCRIPTION, neighbours.handle))
            try:
                yield server, bus, client.jetstream(timeout=5.0), neighbours
            finally:
                await end(consuming)
                await client.close()
                await bus.close()
        finally:
            server.kill()


async def _is_refused(js: JetStreamContext, message: RawMessage) -> bool:
    try:
        await js.publish(message.subject, message.data, headers=dict(message.headers))
    except APIError:
        return True
    return False


async def _lift_limit(js: JetStreamContext) -> None:
    """As an operator might: from now on the stream itself takes messages of any size."""
    config = (await js.stream_info(JOBS.name)).config
    await js.update_stream(config.evolve(max_msg_size=-1))


async def _inject(js: JetStreamContext, doses: list[RawMessage]) -> None:
    for dose in doses:
        await js.publish(dose.subject, dose.data, headers=dict(dose.headers))
        await asyncio.sleep(SECONDS / len(doses))


async def _wait_letters(url: str, count: int) -> list[Stored]:
    """The parked messages; fewer than `count` when no more come."""
    deadline = time.monotonic() + PARKED_WITHIN
    while True:
        found = [s for s in await read_stream(url, DEAD_LETTERS.name) if s.subject == LETTERS]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def _rows(neighbours: Neighbours, doses: list[RawMessage], letters: list[Stored], refused: bool) -> list[Row]:
    parked = Counter(letter.data for letter in letters if "pw-dlq-reason" in letter.headers)
    lost = Counter(dose.data for dose in doses) - parked
    clean, poisoned = neighbours.worst("clean"), neighbours.worst("poisoned")
    reasons = Counter(letter.headers.get("pw-dlq-reason", "") for letter in letters)
    note(f"parked: {dict(reasons)}; a neighbour waited at most {clean * 1e3:.0f} ms without poison, "
         f"{poisoned * 1e3:.0f} ms with it")  # fmt: skip
    return [
        Row("chaos.poison.two_mb_refused_by_the_stream", float(refused), 1, at_least=True),
        Row("chaos.poison.not_parked_with_payload", lost.total(), 0),
        Row("chaos.poison.parked_twice", len(letters) - len(doses), 0),
        Row("chaos.poison.neighbours_extra_delay", poisoned - clean, GOAL, "s"),
    ]


def _make_poison(number: int) -> list[RawMessage]:
    """One of each kind, told apart by its data."""
    good = _encoded(_make_event(f"poison-{number}"))
    no_json = RawMessage(good.subject, b"{not json %d" % number, good.headers)
    old = RawMessage(good.subject, good.data + b" ", {**good.headers, "ce-specversion": "0.3"})
    unknown = RawMessage(
        good.subject, good.data + b"  ", {**good.headers, "ce-type": "paddlewheel.jobs.v1.JobEaten"}
    )
    later = RawMessage(
        good.subject, good.data + b"   ", {**good.headers, "ce-type": "paddlewheel.jobs.v9.JobGated"}
    )
    misplaced = RawMessage(good.subject.replace(".gated.", ".running."), good.data + b"    ", good.headers)
    doses = [no_json, old, unknown, later, misplaced, _too_large(f"poison-{number}")]
    return [
        RawMessage(dose.subject, dose.data, {**dose.headers, wire.MESSAGE_ID: f"poison-{number}-{kind}"})
        for kind, dose in enumerate(doses)
    ]


def _too_large(name: str) -> RawMessage:
    good = _encoded(_make_event(name))
    return RawMessage(good.subject, b'{"message": "%s' % name.encode() + b"x" * TWO_MB, good.headers)


def _encoded(event: Event) -> RawMessage:
    data, headers = wire.encode(event)
    return RawMessage(event.subject, data, headers)


def _make_event(name: str) -> Event:
    fact = JobGated(message=name)
    now = datetime.now(UTC)
    return make_event(fact, id=f"{name}/JobGated/0", source="chaos", namespace="chaos", uid=name, time=now)
