"""Consumers on a real server: how many there are, how much they hold, and that they keep the order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from nats.js.errors import NotFoundError
from tests.integration.bus.suite import running

from paddlewheel.bus.consume.dead_letters import REPLAYS_IN_FLIGHT
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import DATASETS, JOBS, REPLAYS, STREAMS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.wait import eventually
from trigger_controller.watch import SUBSCRIPTIONS as SERVICES

ALL_JOBS = Subscription("jobs", JOBS.name, (event_filter("jobs"),), max_in_flight=8)


def make_fact(data: SampleSetReady | JobGated | ObjectCreated, number: int, uid: str) -> Event:
    return make_event(
        data, id=f"{uid}/{number}", source="test", namespace="ns", uid=uid, time=datetime.now(UTC)
    )


def make_gated(number: int, uid: str) -> Event:
    return make_fact(JobGated(job=ObjectRef(uid=uid), message=str(number)), number, uid)


def number_of(delivery: Delivery) -> int:
    assert isinstance(delivery.event.data, JobGated)
    return int(delivery.event.data.message)


async def durables(bus: NatsBus) -> set[str]:
    """Every consumer the server has, of whatever kind."""
    js = await bus._connection.jetstream()
    return {f"{s.name}/{c.name}" for s in STREAMS for c in await js.consumers_info(s.name)}


async def counts(bus: NatsBus, stream: str, durable: str) -> tuple[int, int]:
    """Messages handed out and not ended, and those never handed out."""
    try:
        info = await (await bus._connection.jetstream()).consumer_info(stream, durable)
    except NotFoundError as error:
        raise LookupError(durable) from error
    return info.num_ack_pending or 0, info.num_pending or 0


@pytest.mark.long
async def test_a_thousand_objects_have_as_many_consumers_as_one(bus: NatsBus) -> None:
    heard: dict[str, set[str]] = {s.durable: set() for s in SERVICES}

    def listen(subscription: Subscription) -> Awaitable[None]:
        async def handle(delivery: Delivery) -> None:
            heard[subscription.durable].add(delivery.subject.rpartition(".")[2])

        return bus.consume(subscription, handle)

    async def publish(numbers: range) -> None:
        for number in numbers:
            uid = f"object-{number}"
            await asyncio.gather(
                bus.publish(make_fact(SampleSetReady(sample_set=ObjectRef(uid=uid)), 0, uid)),
                bus.publish(make_fact(ObjectCreated(), 0, uid)),
                bus.publish(make_gated(0, uid)),
            )

    async with running(*(listen(subscription) for subscription in SERVICES)):
        await publish(range(1))
        await eventually(lambda: all(len(uids) == 1 for uids in heard.values()))
        before = await durables(bus)
        await publish(range(1, 1000))
        await eventually(lambda: all(len(uids) == 1000 for uids in heard.values()))
        assert await durables(bus) == before
    fresh = {f"{s.stream}/{s.durable}" for s in SERVICES}
    again = {f"{REPLAYS.name}/{s.durable}-again" for s in SERVICES}
    assert before == fresh | again
    assert f"{DATASETS.name}/trigger-controller-datasets" in before


async def test_a_slow_handler_leaves_the_backlog_on_the_server(bus: NatsBus) -> None:
    gate, done = asyncio.Event(), set[int]()
    most = 0

    async def handle(delivery: Delivery) -> None:
        nonlocal most
        out, _ = await counts(bus, JOBS.name, ALL_JOBS.durable)
        most = max(most, out)
        await gate.wait()
        done.add(number_of(delivery))

    for number in range(200):
        await bus.publish(make_gated(number, f"uid-{number % 50}"))
    async with running(bus.consume(ALL_JOBS, handle)):
        await eventually(lambda: are(bus, ALL_JOBS.durable, 8, 192))
        gate.set()
        await eventually(lambda: len(done) == 200)
        await eventually(lambda: are(bus, ALL_JOBS.durable, 0, 0))
    assert most == 8


async def are(bus: NatsBus, durable: str, out: int, waiting: int, stream: str = JOBS.name) -> bool:
    return await counts(bus, stream, durable) == (out, waiting)


async def test_a_flood_of_replays_is_bounded_and_leaves_room_for_new_messages(bus: NatsBus) -> None:
    gate, fresh = asyncio.Event(), list[int]()
    lenient = replace(ALL_JOBS, max_parked=1000)

    async def refuse(_: Delivery) -> None:
        raise Permanent("Bad", "x")

    async def handle(delivery: Delivery) -> None:
        if number_of(delivery) < 50:
            await gate.wait()
        else:
            fresh.append(number_of(delivery))

    for number in range(50):
        await bus.publish(make_gated(number, f"uid-{number}"))
    async with running(bus.consume(lenient, refuse)):
        await eventually(lambda: are(bus, ALL_JOBS.durable, 0, 0))
    sequences = [letter.sequence async for letter in bus.dead_letters.list()]
    assert len(sequences) == 50
    async with running(bus.consume(lenient, handle)):
        for sequence in sequences:
            await bus.dead_letters.replay(sequence)
        again = f"{ALL_JOBS.durable}-again"
        await eventually(lambda: are(bus, again, REPLAYS_IN_FLIGHT, 50 - REPLAYS_IN_FLIGHT, REPLAYS.name))
        await bus.publish(make_gated(50, "new"))
        await eventually(lambda: fresh == [50])
        gate.set()
        await eventually(lambda: are(bus, again, 0, 0, REPLAYS.name))
    assert [letter async for letter in bus.dead_letters.list()] == []


async def test_order_is_kept_when_one_consumer_replaces_another(bus: NatsBus) -> None:
    """What was held and what had come behind it is given back in order, and at once."""
    effects: list[tuple[str, int]] = []

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0.002)
        effect = (delivery.subject.rpartition(".")[2], number_of(delivery))
        if effect not in effects:
            effects.append(effect)

    patient = replace(ALL_JOBS, max_in_flight=32, ack_wait=600.0)
    for number in range(400):
        await bus.publish(make_gated(number, f"uid-{number % 7}"))
    for threshold in (20, 100, 180, 260, 340, 400):
        async with running(bus.consume(patient, handle)):
            await eventually(lambda n=threshold: len(effects) >= n, every=0.001)  # type: ignore[misc]
    for uid in {uid for uid, _ in effects}:
        numbers = [number for u, number in effects if u == uid]
        assert numbers == sorted(numbers)


async def test_messages_released_during_a_pull_reach_the_next_consumer_in_order(bus: NatsBus) -> None:
    patient = replace(ALL_JOBS, max_in_flight=64, ack_wait=600.0)
    for number in range(20):
        await bus.publish(make_gated(number, "one"))
    for _ in range(10):
        started = asyncio.Event()

        async def never_ends(_: Delivery, started: asyncio.Event = started) -> None:
            started.set()
            await asyncio.Event().wait()

        async with running(bus.consume(patient, never_ends)):
            await started.wait()
    effects: list[int] = []

    async def handle(delivery: Delivery) -> None:
        effects.append(number_of(delivery))

    async with running(bus.consume(patient, handle)):
        await eventually(lambda: len(effects) == 20)
    assert effects == list(range(20))
