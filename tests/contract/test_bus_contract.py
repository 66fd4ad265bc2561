"""What every bus must do: one suite over the memory bus and over a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from paddlewheel.bus.consume import consumer
from paddlewheel.bus.consume.dead_letters import ORIGINAL
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.dead_letters import NatsDeadLetterBox
from paddlewheel.bus.ports import DeadLetter, Delivery, Handler, RawMessage, Reading, Subscription
from paddlewheel.bus.streams import DATASETS, DEAD_LETTERS, JOBS, REPLAYS, RUNS_BUCKET, WORK
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobGated, JobRunning
from paddlewheel.contracts.subjects import event_filter, work_filter, work_subject
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

ALL_JOBS = Subscription("test-jobs", JOBS.name, (event_filter("jobs"),))
CHUNKS = work_subject("set-1", "run-1", 0)


@dataclass
class Probe:
    """A bus under test, and what a test needs besides its ports."""

    bus: MemoryBus | NatsBus
    stored: Callable[[str], Awaitable[list[RawMessage]]]
    forget_consumer: Callable[[str, str], Awaitable[None]]


@pytest.fixture(params=["memory", "nats"])
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[Probe]:
    if request.param == "memory":
        yield memory_probe()
        return
    server: NatsServer = request.getfixturevalue("nats_server")
    bus = NatsBus(server.url)
    await bus.start()
    yield nats_probe(bus)
    await bus.close()


def memory_probe() -> Probe:
    bus = MemoryBus()

    async def stored(stream: str) -> list[RawMessage]:
        return bus.stored(stream)

    async def forget_consumer(stream: str, durable: str) -> None:
        bus.forget_consumer(stream, durable)

    return Probe(bus, stored, forget_consumer)


def nats_probe(bus: NatsBus) -> Probe:
    async def stored(stream: str) -> list[RawMessage]:
        js = await bus._connection.jetstream()
        state = (await js.stream_info(stream)).state
        numbers = range(state.first_seq, state.last_seq + 1) if state.messages else range(0)
        found = [await js.get_msg(stream, seq=n) for n in numbers]
        return [RawMessage(m.subject or "", m.data or b"", m.headers or {}) for m in found]

    async def forget_consumer(stream: str, durable: str) -> None:
        await (await bus._connection.jetstream()).delete_consumer(stream, durable)

    return Probe(bus, stored, forget_consumer)


def make_gated(number: int, uid: str = "uid-1", *, version: str = "", id_: str = "") -> Event:
    """Fact `number` of one job; the number is told apart by the message."""
    job = ObjectRef(namespace="default", name="digits", uid=uid, resource_version=version)
    data = JobGated(job=job, reason="SampleSetNotReady", message=str(number))
    return make_event(
        data,
        id=id_ or f"{uid}/gated/{number}",
        source="test",
        namespace="default",
        uid=uid,
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )


def number_of(delivery: Delivery) -> int:
    assert isinstance(delivery.event.data, JobGated)
    return int(delivery.event.data.message)


@dataclass
class Seen:
    """A handler that writes down what it got and then does as told."""

    deliveries: list[Delivery] = field(default_factory=list)
    trouble: Callable[[Delivery], Exception | None] = lambda _: None

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if error := self.trouble(delivery):
            raise error

    @property
    def numbers(self) -> list[int]:
        return [number_of(d) for d in self.deliveries]


@asynccontextmanager
async def consuming(
    probe: Probe, handler: Handler, subscription: Subscription = ALL_JOBS
) -> AsyncIterator[None]:
    task = asyncio.create_task(probe.bus.consume(subscription, handler))
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def settled(probe: Probe, handler: Seen, subscription: Subscription = ALL_JOBS) -> None:
    """A second consumer of the same name gets nothing but a new message: all before has ended."""
    await probe.bus.publish(make_gated(999, uid="last"))
    async with consuming(probe, handler, subscription):
        await eventually(lambda: 999 in handler.numbers)


# --- publishing


async def test_an_event_arrives_as_it_was_published(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: seen.deliveries)
    delivery = seen.deliveries[0]
    assert delivery.event == make_gated(1)
    assert (delivery.subject, delivery.attempt, delivery.sequence) == (make_gated(1).subject, 1, 1)
    assert delivery.published_at.tzinfo is not None


async def test_the_same_id_is_stored_once(probe: Probe) -> None:
    for _ in range(3):
        await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    assert len(await probe.stored(JOBS.name)) == 2


async def test_too_large_an_event_is_refused_for_good(probe: Probe) -> None:
    event = make_gated(1)
    huge = RawMessage(event.subject, b"x" * 2_000_000, wire.encode(event)[1])
    with pytest.raises(Permanent, match="TooLarge"):
        await probe.bus.publish_raw(huge)
    nearly = RawMessage(event.subject, b"x" * 1_000_000, wire.encode(event)[1])
    with pytest.raises(Permanent, match="TooLarge"):
        await probe.bus.publish_raw(nearly)
    await probe.bus.publish(event)


async def test_a_subject_of_no_stream_is_refused_for_good(probe: Probe) -> None:
    with pytest.raises(Permanent, match="NoStream"):
        await probe.bus.publish_raw(RawMessage("pw.elsewhere", b"{}"))


# --- consuming


async def test_only_the_asked_subjects_are_delivered(probe: Probe) -> None:
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


async def test_messages_of_one_object_stay_in_order_while_others_run_beside(probe: Probe) -> None:
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


async def test_no_more_messages_are_taken_than_allowed(probe: Probe) -> None:
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


async def test_an_unexpected_error_is_tried_again(probe: Probe) -> None:
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


async def test_what_was_unsettled_when_a_consumer_stopped_goes_to_the_next(probe: Probe) -> None:
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


async def test_a_durable_goes_on_where_it_stopped(probe: Probe) -> None:
    first, second = Seen(), Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, first):
        await eventually(lambda: first.numbers == [1])
    await probe.bus.publish(make_gated(2))
    async with consuming(probe, second):
        await eventually(lambda: second.numbers == [2])


async def test_only_new_messages_when_asked_for(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    new = Subscription("new-only", JOBS.name, (event_filter("jobs"),), deliver_new_only=True)

    async def publish_until_seen() -> bool:
        await probe.bus.publish(make_gated(len(seen.numbers) + 2, uid=uuid4().hex))
        return bool(seen.numbers)

    async with consuming(probe, seen, new):
        await eventually(publish_until_seen)
    assert 1 not in seen.numbers


async def test_a_deleted_consumer_is_made_again(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: 1 in seen.numbers)
        await probe.forget_consumer(JOBS.name, ALL_JOBS.durable)
        await probe.bus.publish(make_gated(2))
        await eventually(lambda: 2 in seen.numbers)


# --- tail


async def test_a_tail_shows_what_lies_there_since_a_time_and_then_follows(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    since = datetime(2020, 1, 1, tzinfo=UTC)
    async with aclosing(probe.bus.read(Reading((event_filter("jobs"),), since))) as tail:
        assert [number_of(await anext(tail)) for _ in range(2)] == [1, 2]
        await probe.bus.publish(make_gated(3))
        assert number_of(await anext(tail)) == 3


async def test_a_tail_begins_at_the_moment_asked_for(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    async with consuming(probe, seen):
        await eventually(lambda: len(seen.deliveries) == 2)
    async with aclosing(probe.bus.read(Reading(("pw.evt.>",), seen.deliveries[1].published_at))) as tail:
        assert number_of(await anext(tail)) == 2


async def test_a_tail_without_a_time_shows_only_what_comes(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    found: list[int] = []

    async def follow() -> None:
        async with aclosing(probe.bus.read(Reading((event_filter("jobs"),)))) as tail:
            async for delivery in tail:
                found.append(number_of(delivery))

    async def publish_until_found() -> bool:
        await probe.bus.publish(make_gated(2, uid=uuid4().hex))
        return bool(found)

    task = asyncio.create_task(follow())
    await eventually(publish_until_found)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert set(found) == {2}


async def test_a_tail_goes_over_several_streams_and_skips_what_it_cannot_read(probe: Probe) -> None:
    ready = make_event(
        SampleSetReady(partitions=2), id="s", source="t", namespace="default", uid="u", time=datetime.now(UTC)
    )
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish_raw(RawMessage(make_gated(2).subject, b"poison"))
    await probe.bus.publish(ready)
    async with aclosing(probe.bus.read(Reading(("pw.evt.>",), datetime(2020, 1, 1, tzinfo=UTC)))) as tail:
        types = {(await anext(tail)).event.type for _ in range(2)}
    assert types == {ready.type, make_gated(1).type}
    assert len(await probe.stored(DATASETS.name)) == 1


# --- reader

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STORED = Reading((event_filter("jobs"),), LONG_AGO, follow=False)
KEPT = Reading((event_filter("jobs"),), LONG_AGO, durable="sub-me")


async def numbers_read(probe: Probe, reading: Reading, most: int | None = None) -> list[int]:
    """The next `most` events, or those until the reading ends; the last one is not acknowledged then."""
    found: list[int] = []
    async with aclosing(probe.bus.read(reading)) as events:
        async for delivery in events:
            found.append(number_of(delivery))
            if len(found) == most:
                break
    return found


async def test_reading_without_following_ends_after_what_is_stored(probe: Probe) -> None:
    assert await numbers_read(probe, STORED) == []
    for number in range(600):
        await probe.bus.publish(make_gated(number))
    assert await numbers_read(probe, STORED) == list(range(600))


async def test_stored_events_of_several_streams_are_read_by_time(probe: Probe) -> None:
    def make_ready(number: int) -> Event:
        data = SampleSetReady(partitions=number)
        now = datetime.now(UTC)
        return make_event(data, id=f"s{number}", source="t", namespace="default", uid="u", time=now)

    for number in range(20):
        await probe.bus.publish(make_gated(number))
        await probe.bus.publish(make_ready(number))
    reading = Reading(("pw.evt.>",), LONG_AGO, follow=False)
    async with aclosing(probe.bus.read(reading)) as events:
        read = [delivery.event.id async for delivery in events]
    assert read == [id_ for n in range(20) for id_ in (make_gated(n).id, f"s{n}")]


async def test_a_reading_follows_from_a_moment_on(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    async with aclosing(probe.bus.read(STORED)) as events:
        at = [delivery.published_at async for delivery in events]
    async with aclosing(probe.bus.read(replace(STORED, since=at[1], follow=True))) as events:
        assert number_of(await anext(events)) == 2
        waiting = asyncio.ensure_future(anext(events))
        await probe.bus.publish(make_gated(3))
        assert number_of(await asyncio.wait_for(waiting, 10)) == 3


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_a_reading_without_a_moment_shows_only_what_comes(probe: Probe, durable: str) -> None:
    await probe.bus.publish(make_gated(1))
    async with aclosing(probe.bus.read(replace(KEPT, since=None, durable=durable))) as events:
        waiting = asyncio.ensure_future(anext(events))

        async def publish_until_found() -> bool:
            await probe.bus.publish(make_gated(2, uid=uuid4().hex))
            return waiting.done()

        await eventually(publish_until_found)
        assert number_of(await waiting) == 2


async def test_what_a_durable_reader_did_not_go_on_from_comes_again_first(probe: Probe) -> None:
    for number in range(5):
        await probe.bus.publish(make_gated(number))
    assert await numbers_read(probe, KEPT, most=3) == [0, 1, 2]
    assert await numbers_read(probe, KEPT, most=1) == [2]
    async with aclosing(probe.bus.read(replace(KEPT, follow=False))) as events:
        found = [(number_of(delivery), delivery.attempt) async for delivery in events]
    assert found == [(2, 3), (3, 1), (4, 1)]
    assert await numbers_read(probe, replace(KEPT, follow=False)) == []


async def test_the_moment_counts_for_a_durable_readers_first_time_only(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    assert await numbers_read(probe, replace(KEPT, follow=False)) == [1]
    await probe.bus.publish(make_gated(2))
    assert await numbers_read(probe, replace(KEPT, since=datetime.now(UTC), follow=False)) == [2]
    assert await numbers_read(probe, replace(KEPT, durable="sub-other", follow=False)) == [1, 2]


async def test_durable_readers_of_one_name_share_in_order(probe: Probe) -> None:
    for number in range(40):
        await probe.bus.publish(make_gated(number))
    found: list[int] = []

    async def share() -> None:
        async with aclosing(probe.bus.read(replace(KEPT, follow=False))) as events:
            async for delivery in events:
                found.append(number_of(delivery))
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(share(), share(), share()), 30)
    assert found == list(range(40))


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_a_reading_skips_what_it_cannot_read_and_parks_nothing(probe: Probe, durable: str) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish_raw(RawMessage(make_gated(2).subject, b"poison"))
    await probe.bus.publish(make_gated(3))
    assert await numbers_read(probe, replace(STORED, durable=durable)) == [1, 3]
    assert await probe.stored(DEAD_LETTERS.name) == []


# --- key-value


async def test_a_key_is_created_once_updated_by_revision_and_deleted(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    with pytest.raises(NotFound):
        await kv.get("set.run.state")
    first = await kv.create("set.run.state", b"1")
    with pytest.raises(AlreadyExists):
        await kv.create("set.run.state", b"other")
    second = await kv.update("set.run.state", b"2", first)
    assert second > first
    with pytest.raises(Conflict):
        await kv.update("set.run.state", b"late", first)
    entry = await kv.get("set.run.state")
    assert (entry.key, entry.value, entry.revision) == ("set.run.state", b"2", second)
    await kv.delete("set.run.state")
    await kv.delete("set.run.state")
    with pytest.raises(NotFound):
        await kv.get("set.run.state")
    with pytest.raises(Conflict):
        await kv.update("set.run.state", b"ghost", second)
    assert await kv.create("set.run.state", b"") > second
    assert (await kv.get("set.run.state")).value == b""


async def test_one_of_many_wins_a_create_and_an_update(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    made = await asyncio.gather(*(kv.create("a", b"%d" % n) for n in range(8)), return_exceptions=True)
    [revision] = [r for r in made if isinstance(r, int)]
    assert sum(isinstance(r, AlreadyExists) for r in made) == 7
    written = await asyncio.gather(
        *(kv.update("a", b"%d" % n, revision) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(r, Conflict) for r in written) == 7


async def test_entries_are_found_by_pattern(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    assert await kv.entries(">") == []
    for key in ("s.r1.state", "s.r2.state", "s.r2.part-0", "t.r1.state"):
        await kv.put(key, key.encode())
    await kv.delete("s.r1.state")
    assert [e.key for e in await kv.entries("s.*.state")] == ["s.r2.state"]
    assert {e.key for e in await kv.entries("s.>")} == {"s.r2.state", "s.r2.part-0"}
    assert {e.value for e in await kv.entries("*.*.state")} == {b"s.r2.state", b"t.r1.state"}


async def test_a_watch_lists_then_marks_the_end_then_follows(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    await kv.put("s.r1.state", b"1")
    await kv.put("s.r2.state", b"1")
    await kv.put("s.r2.state", b"2")
    await kv.put("s.gone.state", b"1")
    await kv.delete("s.gone.state")
    await kv.put("s.r1.part-0", b"1")
    async with aclosing(kv.watch("s.*.state")) as watch:
        listed = [await anext(watch), await anext(watch)]
        assert {(e.key, e.value) for e in listed if e} == {("s.r1.state", b"1"), ("s.r2.state", b"2")}
        assert await anext(watch) is None
        revision = await kv.put("s.r3.state", b"1")
        entry = await anext(watch)
        assert entry is not None
        assert (entry.key, entry.value, entry.revision) == ("s.r3.state", b"1", revision)
        await kv.delete("s.r3.state")
        entry = await anext(watch)
        assert entry is not None
        assert (entry.key, entry.value) == ("s.r3.state", None)


async def test_a_watch_of_nothing_marks_the_end_at_once(probe: Probe) -> None:
    async with aclosing(probe.bus.key_value(RUNS_BUCKET).watch(">")) as watch:
        assert await anext(watch) is None


@pytest.mark.parametrize("key", ["", "a..b", "a b", "a.*", ">", "a/b"])
async def test_nonsense_keys_are_refused(probe: Probe, key: str) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    for write in (kv.put(key, b""), kv.create(key, b""), kv.update(key, b"", 1), kv.delete(key), kv.get(key)):
        with pytest.raises(Permanent, match="MalformedKey"):
            await write


async def test_an_undeclared_bucket_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="UnknownBucket"):
        probe.bus.key_value("elsewhere")


# --- work queue


async def test_each_chunk_is_handed_out_until_acknowledged(probe: Probe) -> None:
    work = probe.bus.work
    for number in range(3):
        for _ in range(2):
            await work.enqueue(CHUNKS, b"%d" % number, message_id=f"run-1/{number}")
    await work.enqueue(work_subject("set-1", "run-1", 1), b"of another partition", message_id="p1")
    async with aclosing(work.pull(CHUNKS, consumer="run-1-0")) as items:
        for number in range(3):
            item = await anext(items)
            assert (item.data, item.attempt) == (b"%d" % number, 1)
            await item.ack()
    assert len(await probe.stored(WORK.name)) == 1


async def test_a_chunk_without_ack_comes_again(probe: Probe) -> None:
    work = probe.bus.work
    await work.enqueue(CHUNKS, b"1", message_id="1")
    async with aclosing(work.pull(CHUNKS, consumer="c", ack_wait=0.3)) as items:
        assert (await anext(items)).attempt == 1
        again = await anext(items)
        assert (again.data, again.attempt) == (b"1", 2)
        await again.ack()


async def test_a_refused_chunk_comes_again(probe: Probe) -> None:
    work = probe.bus.work
    await work.enqueue(CHUNKS, b"1", message_id="1")
    async with aclosing(work.pull(CHUNKS, consumer="c")) as items:
        await (await anext(items)).nak(0.05)
        assert (await anext(items)).attempt == 2


async def test_no_more_chunks_are_out_than_allowed(probe: Probe) -> None:
    work = probe.bus.work
    for number in range(4):
        await work.enqueue(CHUNKS, b"%d" % number, message_id=str(number))
    async with aclosing(work.pull(CHUNKS, consumer="c", max_in_flight=2)) as items:
        first, second = await anext(items), await anext(items)
        third = asyncio.ensure_future(anext(items))
        await second.ack()
        assert (await third).data == b"2"
        await first.ack()
        assert (await anext(items)).data == b"3"


async def test_purge_drops_one_run_and_spares_others(probe: Probe) -> None:
    work = probe.bus.work
    for run in ("run-1", "run-2"):
        for partition in range(2):
            await work.enqueue(work_subject("set-1", run, partition), b"x", message_id=f"{run}/{partition}")
    await work.purge(work_filter("set-1", "run-1"))
    await work.purge(work_filter("set-1", "run-1"))
    left = await probe.stored(WORK.name)
    assert [m.subject for m in left] == [work_subject("set-1", "run-2", p) for p in range(2)]


async def test_a_foreign_subject_is_no_work(probe: Probe) -> None:
    with pytest.raises(Permanent, match="NoStream"):
        await probe.bus.work.enqueue(make_gated(1).subject, b"x", message_id="1")


async def test_a_live_bus_is_healthy(probe: Probe) -> None:
    assert await probe.bus.healthy()


# --- dead letters


async def letters(probe: Probe, durable: str | None = None) -> list[DeadLetter]:
    async with aclosing(probe.bus.dead_letters.list(durable)) as found:
        return [letter async for letter in found]


def refusing(*numbers: int) -> Seen:
    return Seen(
        trouble=lambda d: Permanent("NoSuchSet", "Menge fehlt: größer") if number_of(d) in numbers else None
    )


async def park(probe: Probe, *numbers: int, subscription: Subscription = ALL_JOBS) -> list[DeadLetter]:
    """Facts of one object that its durable refused, and nothing else left to do."""
    for number in numbers:
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, refusing(*numbers), subscription):

        async def all_parked() -> list[DeadLetter] | None:
            found = await letters(probe, subscription.durable)
            return found if len(found) == len(numbers) else None

        found = await eventually(all_parked)
    after = Seen()
    await settled(probe, after, subscription)
    assert after.numbers == [999]
    return found


async def test_a_dead_letter_is_the_message_as_it_was_and_why_it_failed(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    body, headers = wire.encode(make_gated(0))
    assert (letter.data, letter.headers, letter.is_cut) == (body, headers, False)
    assert (letter.durable, letter.reason, letter.message) == (
        "test-jobs",
        "NoSuchSet",
        "Menge fehlt: größer",
    )
    assert (letter.attempts, letter.stream, letter.source_sequence) == (1, JOBS.name, 1)
    assert letter.subject == make_gated(0).subject
    assert letter.published_at <= letter.parked_at
    assert await probe.bus.dead_letters.get(letter.sequence) == letter


async def test_dead_letters_are_listed_by_durable_oldest_first(probe: Probe) -> None:
    other = Subscription("other-jobs", JOBS.name, (event_filter("jobs"),))
    assert await letters(probe) == []
    await park(probe, 0, 1)
    async with consuming(probe, refusing(1), other):
        await eventually(lambda: letters(probe, "other-jobs"))
    assert [number_in(letter) for letter in await letters(probe, "test-jobs")] == [0, 1]
    assert [number_in(letter) for letter in await letters(probe, "other-jobs")] == [1]
    assert [letter.durable for letter in await letters(probe)] == ["test-jobs", "test-jobs", "other-jobs"]
    assert await letters(probe, "nobody") == []


def number_in(letter: DeadLetter) -> int:
    event = wire.decode(letter.subject, letter.data, letter.headers)
    assert isinstance(event.data, JobGated)
    return int(event.data.message)


async def test_a_replay_goes_to_the_durable_that_failed_and_to_no_other(probe: Probe) -> None:
    other = Subscription("other-jobs", JOBS.name, (event_filter("jobs"),))
    [letter] = await park(probe, 0)
    seen, bystander = Seen(), Seen()
    async with consuming(probe, bystander, other):
        await eventually(lambda: bystander.numbers == [0, 999])
        await probe.bus.dead_letters.replay(letter.sequence)
        async with consuming(probe, seen):
            await eventually(lambda: seen.deliveries)
            await eventually(lambda: nothing_waits(probe))
        await probe.bus.publish(make_gated(1))
        await eventually(lambda: 1 in bystander.numbers)
    [again] = seen.deliveries
    assert (again.event, again.subject, again.attempt) == (make_gated(0), make_gated(0).subject, 1)
    assert (again.sequence, again.published_at) == (letter.source_sequence, letter.published_at)
    assert bystander.numbers == [0, 999, 1]
    assert await letters(probe) == []


async def nothing_waits(probe: Probe) -> bool:
    """Every replay has ended."""
    return not await probe.stored(REPLAYS.name)


async def test_a_replay_waits_its_turn_behind_its_object(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    started, gate, order = asyncio.Event(), asyncio.Event(), []

    async def handle(delivery: Delivery) -> None:
        if number_of(delivery) == 1:
            started.set()
            await gate.wait()
        order.append(number_of(delivery))

    await probe.bus.publish(make_gated(1))
    async with consuming(probe, handle):
        await started.wait()
        await probe.bus.dead_letters.replay(letter.sequence)
        await probe.bus.publish(make_gated(2, uid="neighbour"))
        await eventually(lambda: order == [2])
        gate.set()
        await eventually(lambda: len(order) == 3)
    assert order == [2, 1, 0]


async def test_a_replay_that_fails_again_is_parked_again_with_attempts_counted_anew(probe: Probe) -> None:
    thrice = Subscription("thrice", JOBS.name, (event_filter("jobs"),), max_attempts=3)
    busy = Seen(trouble=lambda d: Retry("Busy", "still", after=0.01))
    await probe.bus.publish(make_gated(0))
    async with consuming(probe, busy, thrice):
        [first] = await eventually(lambda: letters(probe))
        await probe.bus.dead_letters.replay(first.sequence)

        async def parked_again() -> DeadLetter | None:
            return next((a for a in await letters(probe) if a.sequence != first.sequence), None)

        second = await eventually(parked_again)
    assert [d.attempt for d in busy.deliveries] == [1, 2, 3, 1, 2, 3]
    assert second.attempts == first.attempts == 3
    assert (second.stream, second.source_sequence) == (first.stream, first.source_sequence)
    assert (second.data, second.headers, second.subject) == (first.data, first.headers, first.subject)
    assert second.published_at == first.published_at
    assert len(await letters(probe)) == 1


async def test_replaying_twice_or_cut_off_midway_is_one_replay(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    [letter] = await park(probe, 0)
    box = probe.bus.dead_letters
    with monkeypatch.context() as broken:
        cut_off_before_deleting(probe, broken)
        with pytest.raises(ZeroDivisionError):
            await probe.bus.dead_letters.replay(letter.sequence)
    assert [a.sequence for a in await letters(probe)] == [letter.sequence]
    await asyncio.gather(box.replay(letter.sequence), box.replay(letter.sequence), return_exceptions=True)
    with pytest.raises(NotFound):
        await box.replay(letter.sequence)
    assert len(await probe.stored(REPLAYS.name)) == 1
    seen = Seen()
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0])
        await eventually(lambda: nothing_waits(probe))
    assert seen.numbers == [0]


def cut_off_before_deleting(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise ZeroDivisionError

    if isinstance(probe.bus, MemoryBus):
        monkeypatch.setattr(probe.bus._streams[DEAD_LETTERS.name], "drop", die)
    else:
        monkeypatch.setattr(NatsDeadLetterBox, "_delete", die)


async def test_a_replay_outlives_a_consumer_that_stops_midway(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    started = asyncio.Event()

    async def never_ends(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    await probe.bus.dead_letters.replay(letter.sequence)
    async with consuming(probe, never_ends):
        await started.wait()
    seen = Seen()
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0])
    assert seen.deliveries[0].attempt == 2


async def test_a_replay_that_nobody_would_get_stays(probe: Probe) -> None:
    await probe.bus.publish_raw(RawMessage("pw.dlq.gone", b"{}"))
    [letter] = await letters(probe)
    with pytest.raises(Permanent, match="NoSuchDurable"):
        await probe.bus.dead_letters.replay(letter.sequence)
    assert (await letters(probe), letter.durable, letter.attempts) == ([letter], "gone", 0)


async def test_a_dropped_letter_is_gone(probe: Probe) -> None:
    first, second = await park(probe, 0, 1)
    await probe.bus.dead_letters.drop(first.sequence)
    assert await letters(probe) == [second]
    for gone in (first.sequence, 4711, 0):
        for call in (probe.bus.dead_letters.get, probe.bus.dead_letters.drop, probe.bus.dead_letters.replay):
            with pytest.raises(NotFound, match=str(gone)):
                await call(gone)


async def test_a_consumer_that_parks_too_much_stops_and_goes_on_when_that_was_dealt_with(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "LOOK_EVERY", 0.05)
    capped = Subscription("capped", JOBS.name, (event_filter("jobs"),), max_parked=2, max_in_flight=1)
    seen = refusing(0, 1, 2)
    for number in range(4):
        await probe.bus.publish(make_gated(number, f"uid-{number}"))
    with capture_logs() as logs:
        async with consuming(probe, seen, capped):
            await eventually(lambda: is_ill(probe))
            assert [number_in(letter) for letter in await letters(probe)] == [0, 1]
            handled = list(seen.numbers)
            for letter in await letters(probe):
                await probe.bus.dead_letters.drop(letter.sequence)
            await eventually(lambda: 3 in seen.numbers)
            await eventually(probe.bus.healthy)
            [last] = await letters(probe)
    assert handled == [0, 1, 2]
    assert number_in(last) == 2
    [told] = [entry for entry in logs if entry["log_level"] == "error"]
    assert told["durable"] == "capped"
    assert "paddlewheel dlq list" in told["remedy"]


async def is_ill(probe: Probe) -> bool:
    return not await probe.bus.healthy()


async def test_facts_older_than_what_was_handled_are_dropped_also_when_replayed(probe: Probe) -> None:
    wanted = Subscription("fresh", JOBS.name, (event_filter("jobs"),), drop_stale=True)
    seen = Seen(trouble=lambda d: Permanent("NotNow", "x") if number_of(d) == 5 else None)
    for version in (5, 10, 9, 10, 100):
        await probe.bus.publish(make_gated(version, version=str(version), id_=uuid4().hex))
    await probe.bus.publish(make_gated(7, uid="other", version="7"))
    async with consuming(probe, seen, wanted):
        await eventually(lambda: len(seen.deliveries) == 5)
        [letter] = await letters(probe)
        seen.trouble = lambda _: None
        await probe.bus.dead_letters.replay(letter.sequence)
        await probe.bus.publish(make_gated(101, version="101"))
        await eventually(lambda: 101 in seen.numbers)
        await eventually(lambda: nothing_waits(probe))
    assert [n for n in seen.numbers if n != 7] == [5, 10, 10, 100, 101]
    assert await letters(probe) == []


async def test_the_status_tells_what_lies_there_and_what_waits(probe: Probe) -> None:
    gate, handled = asyncio.Event(), asyncio.Event()

    async def handle(_: Delivery) -> None:
        handled.set()
        await gate.wait()

    narrow = replace(ALL_JOBS, max_in_flight=1)
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, handle, narrow):
        await asyncio.wait_for(handled.wait(), 10)
        status = await probe.bus.inspect.status()
        gate.set()
    assert status.missing == ()
    [jobs] = [s for s in status.streams if s.name == JOBS.name]
    assert (jobs.messages, jobs.max_bytes, jobs.replicas, jobs.drift) == (3, JOBS.max_bytes, 1, {})
    assert jobs.bytes > 0
    [durable] = [d for d in status.durables if d.name == ALL_JOBS.durable]
    assert (durable.stream, durable.ack_pending, durable.pending) == (JOBS.name, 1, 2)
    assert durable.redelivered == 0
