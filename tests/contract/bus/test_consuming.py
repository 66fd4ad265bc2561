"""Consuming: delivery, order, retries, parking, resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from tests.contract.bus.suite import ALL_JOBS, Probe, Seen, consuming, make_gated, number_of, settled

from paddlewheel.bus.consume.dead_letters import ORIGINAL
from paddlewheel.bus.ports import Delivery, RawMessage, Subscription
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobRunning
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.wait import eventually


async def test_only_subscribed_subjects_are_delivered(probe: Probe) -> None:
    seen = Seen()
    job = ObjectRef(namespace="default", name="digits", uid="uid-1")
    running = make_event(
        JobRunning(job=job), id="r", source="t", namespace="default", uid="uid-1", time=datetime.now(UTC)
    )
    await probe.bus.publish(running)
    await probe.bus.publish(make_gated(1))
    only_gated = Subscription("gated", JOBS.name, (event_filter("jobs", "job", "gated"),))
    async with consuming(probe, seen, only_gated):
        await eventually(lambda: seen.deliveries)
    assert seen.numbers == [1]


async def test_messages_of_one_object_stay_in_order_and_others_run_concurrently(probe: Probe) -> None:
    gate, order = asyncio.Event(), []

    async def handle(delivery: Delivery) -> None:
        if delivery.subject.endswith(".slow") and number_of(delivery) == 0:
            await gate.wait()
        order.append((delivery.subject.rpartition(".")[2], number_of(delivery)))

    for number in range(5):
        await probe.bus.publish(make_gated(number, "slow"))
        await probe.bus.publish(make_gated(number, "fast"))
    async with consuming(probe, handle):
        await eventually(lambda: len(order) == 5)
        assert order == [("fast", n) for n in range(5)]
        gate.set()
        await eventually(lambda: len(order) == 10)
    assert [n for uid, n in order if uid == "slow"] == list(range(5))


async def test_no_more_than_max_in_flight_messages_are_taken(probe: Probe) -> None:
    gate, running = asyncio.Event(), set[str]()
    most = 0

    async def handle(delivery: Delivery) -> None:
        nonlocal most
        running.add(delivery.subject)
        most = max(most, len(running))
        await gate.wait()
        running.discard(delivery.subject)
        done.append(delivery)

    done: list[Delivery] = []
    for number in range(12):
        await probe.bus.publish(make_gated(number, f"uid-{number}"))
    narrow = Subscription("narrow", JOBS.name, (event_filter("jobs"),), max_in_flight=3)
    async with consuming(probe, handle, narrow):
        await eventually(lambda: len(running) == 3)
        gate.set()
        await eventually(lambda: len(done) == 12)
    assert most == 3


async def test_retry_redelivers_with_growing_attempt_and_keeps_the_order(probe: Probe) -> None:
    seen = Seen(trouble=lambda d: Retry("Busy", after=0.02) if number_of(d) == 0 and d.attempt < 3 else None)
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, seen):
        await eventually(lambda: len(seen.deliveries) == 5)
    assert [(number_of(d), d.attempt) for d in seen.deliveries] == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1)]
    after = Seen()
    await settled(probe, after)
    assert after.numbers == [999]


async def test_an_unexpected_error_is_retried(probe: Probe) -> None:
    seen = Seen(trouble=lambda d: ZeroDivisionError("bug") if d.attempt == 1 else None)
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: [d.attempt for d in seen.deliveries] == [1, 2])


async def test_permanent_parks_payload_headers_error_attempts_and_neighbours_go_on(probe: Probe) -> None:
    seen = Seen(trouble=lambda d: Permanent("NoSuchSet", "create\nit") if number_of(d) == 0 else None)
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0, 1, 2])
    after = Seen()
    await settled(probe, after)
    assert after.numbers == [999]
    [dead] = await probe.stored(DEAD_LETTERS.name)
    body, headers = wire.encode(make_gated(0))
    assert (dead.subject, dead.data) == ("pw.dlq.test-jobs", body)
    assert dead.headers[f"{ORIGINAL}Nats-Msg-Id"] == headers.pop("Nats-Msg-Id")
    assert headers.items() <= dead.headers.items()
    why = {k.removeprefix("pw-dlq-"): v for k, v in dead.headers.items() if k.startswith("pw-dlq-")}
    assert (why["reason"], why["message"], why["attempts"]) == ("NoSuchSet", "create it", "1")
    assert (why["durable"], why["stream"], why["sequence"]) == ("test-jobs", JOBS.name, "1")
    assert why["subject"] == make_gated(0).subject


async def test_the_last_attempt_parks(probe: Probe) -> None:
    seen = Seen(trouble=lambda d: Retry("Busy", "still", after=0.01) if number_of(d) == 0 else None)
    for number in range(2):
        await probe.bus.publish(make_gated(number))
    thrice = Subscription("thrice", JOBS.name, (event_filter("jobs"),), max_attempts=3)
    async with consuming(probe, seen, thrice):
        await eventually(lambda: 1 in seen.numbers)
    assert [d.attempt for d in seen.deliveries if number_of(d) == 0] == [1, 2, 3]
    [dead] = await probe.stored(DEAD_LETTERS.name)
    assert (dead.headers["pw-dlq-reason"], dead.headers["pw-dlq-attempts"]) == ("Busy", "3")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda m: RawMessage(m.subject, b"{nonsense", m.headers), "not JSON"),
        (lambda m: RawMessage(m.subject, b"[]", m.headers), "dictionary"),
        (lambda m: RawMessage(m.subject, m.data, {}), "header ce-specversion is missing"),
        (lambda m: RawMessage(m.subject, m.data, {**m.headers, "ce-type": "a.b.C"}), "ce-type"),
        (lambda m: RawMessage(m.subject, m.data, {**m.headers, "ce-specversion": "9"}), "ce-specversion"),
        (lambda m: RawMessage("pw.evt.jobs.nonsense", m.data, m.headers), "pw.evt."),
    ],
    ids=["not-json", "no-object", "no-headers", "unknown-type", "wrong-version", "wrong-subject"],
)
async def test_poison_is_parked_and_never_handled(
    probe: Probe, spoil: Callable[[RawMessage], RawMessage], complaint: str
) -> None:
    seen = Seen()
    body, headers = wire.encode(make_gated(0))
    poison = spoil(RawMessage(make_gated(0).subject, body, headers))
    await probe.bus.publish_raw(poison)
    await probe.bus.publish(make_gated(1))
    everything = Subscription("everything", JOBS.name, ("pw.evt.jobs.>",))
    async with consuming(probe, seen, everything):
        await eventually(lambda: seen.numbers == [1])
        [dead] = await eventually(lambda: probe.stored(DEAD_LETTERS.name))
    assert (dead.data, dead.headers["pw-dlq-reason"]) == (poison.data, "MalformedEvent")
    assert complaint in dead.headers["pw-dlq-message"]


async def test_facts_of_a_newer_release_are_skipped_and_unknown_fields_are_ignored(probe: Probe) -> None:
    seen = Seen()
    body, headers = wire.encode(make_gated(0))
    newer = {**headers, "ce-type": "paddlewheel.jobs.v1.JobDefragmented", wire.MESSAGE_ID: "newer"}
    subject = make_gated(0).subject.replace(".gated.", ".defragmented.")
    await probe.bus.publish_raw(RawMessage(subject, b'{"moved": 3}', newer))
    wider = body[:-1] + b', "colour": {"name": "red"}}'
    await probe.bus.publish_raw(RawMessage(make_gated(0).subject, wider, headers))
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0, 1])
    await settled(probe, seen)
    assert seen.numbers == [0, 1, 999]
    assert await probe.stored(DEAD_LETTERS.name) == []


async def test_messages_left_unsettled_by_a_stopped_consumer_go_to_the_next(probe: Probe) -> None:
    started = asyncio.Event()

    async def never_ends(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    for number in range(3):
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, never_ends):
        await started.wait()
    seen = Seen()
    async with consuming(probe, seen):
        await eventually(lambda: sorted(seen.numbers) == [0, 1, 2])


async def test_a_durable_resumes_where_it_stopped(probe: Probe) -> None:
    first, second = Seen(), Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, first):
        await eventually(lambda: first.numbers == [1])
    await probe.bus.publish(make_gated(2))
    async with consuming(probe, second):
        await eventually(lambda: second.numbers == [2])


async def test_a_deleted_consumer_is_recreated(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: 1 in seen.numbers)
        await probe.forget_consumer(JOBS.name, ALL_JOBS.durable)
        await probe.bus.publish(make_gated(2))
        await eventually(lambda: 2 in seen.numbers)
