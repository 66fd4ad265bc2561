"""What every bus knows of its streams' past, and how commands go: over memory and over a real NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from paddlewheel.bus.commands import AT_ONCE, MAX_BYTES
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.ports import Answering, RawMessage
from paddlewheel.bus.streams import BUS_FULL, JOBS, RUNS_BUCKET, WORK
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import command_subject, work_subject
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

SUBJECT = command_subject("test-service", "rebuild")
CHUNKS = work_subject("set-1", "run-1", 0)


@dataclass
class Probe:
    """A bus under test, another client of the same one, and how to harm it."""

    bus: MemoryBus | NatsBus
    other: MemoryBus | NatsBus
    lose_facts: Callable[[], None]
    drop_first: Callable[[], Awaitable[None]]
    go_away: Callable[[], None]
    limit: Callable[[str, int], Awaitable[None]]


@pytest.fixture(params=["memory", "nats"])
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[Probe]:
    if request.param == "memory":
        yield memory_probe()
        return
    server: NatsServer = request.getfixturevalue("nats_server")
    bus, other = NatsBus(server.url), NatsBus(server.url)
    await asyncio.gather(bus.start(), other.start())
    yield nats_probe(bus, other, server)
    await asyncio.gather(bus.close(), other.close())


def memory_probe() -> Probe:
    bus = MemoryBus()

    async def drop_first() -> None:
        bus._streams[JOBS.name].drop(1)

    def go_away() -> None:
        bus.down = True

    async def limit(stream: str, max_bytes: int) -> None:
        bus.limit(stream, max_bytes)

    return Probe(bus, bus, lambda: bus.lose_facts(JOBS.name), drop_first, go_away, limit)


def nats_probe(bus: NatsBus, other: NatsBus, server: NatsServer) -> Probe:
    async def drop_first() -> None:
        await (await bus._connection.jetstream()).delete_msg(JOBS.name, 1)

    async def limit(stream: str, max_bytes: int) -> None:
        js = await bus._connection.jetstream()
        config = (await js.stream_info(stream)).config
        await js.update_stream(config.evolve(max_bytes=max_bytes))

    return Probe(bus, other, server.lose_data, drop_first, server.stop, limit)


def make_gated(number: int, uid: str = "uid-1") -> Event:
    job = ObjectRef(namespace="default", name="digits", uid=uid)
    return make_event(
        JobGated(job=job, reason="SampleSetNotReady", message=str(number)),
        id=f"{uid}/JobGated/{number}",
        source="test",
        namespace="default",
        uid=uid,
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


# --- history


async def test_the_last_message_of_a_subject_is_found_with_its_headers(probe: Probe) -> None:
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    await probe.bus.publish(make_gated(9, uid="uid-2"))
    last = await probe.bus.history.last(make_gated(0).subject)
    assert isinstance(last, RawMessage)
    assert last.headers["ce-id"] == "uid-1/JobGated/2"
    assert (last.subject, b'"message":"2"' in last.data) == (make_gated(0).subject, True)


async def test_a_subject_that_holds_nothing_has_no_last_message(probe: Probe) -> None:
    assert await probe.bus.history.last(make_gated(0).subject) is None


async def test_a_subject_of_no_stream_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="no stream"):
        await probe.bus.history.last("pw.elsewhere.a")


async def test_whatever_is_asked_of_a_bus_that_is_away_it_is_unavailable(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    probe.go_away()
    bus, records = probe.bus, probe.bus.key_value(RUNS_BUCKET)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bus.publish(make_gated(0)),
        lambda: bus.history.last(make_gated(0).subject),
        lambda: bus.history.whole_since(JOBS.name),
        lambda: records.get("a"),
        lambda: records.create("a", b"1"),
        lambda: records.put("a", b"1"),
        lambda: records.update("a", b"1", 1),
        lambda: records.delete("a"),
        lambda: records.entries(">"),
        lambda: bus.work.enqueue(CHUNKS, b"1", message_id="1"),
        lambda: bus.work.purge(CHUNKS),
        lambda: bus.dead_letters.get(1),
        lambda: bus.dead_letters.replay(1),
        lambda: bus.dead_letters.drop(1),
        lambda: bus.inspect.status(),
        lambda: bus.ask_all(SUBJECT, b""),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            await call()


async def test_a_refusal_for_now_is_an_answer(probe: Probe) -> None:
    await probe.limit(WORK.name, 2000)
    await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="1")
    for _ in range(2):
        with pytest.raises(Retry, match=BUS_FULL) as refusal:
            await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="2")
        assert not isinstance(refusal.value, Unavailable)
    await probe.bus.work.purge(CHUNKS)
    await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="2")


async def test_a_stream_is_whole_since_it_was_made_until_it_drops_something(probe: Probe) -> None:
    made = await probe.bus.history.whole_since(JOBS.name)
    assert made is not None
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)
    await probe.bus.publish(make_gated(1))
    assert await probe.bus.history.whole_since(JOBS.name) == made
    await probe.drop_first()
    assert await probe.bus.history.whole_since(JOBS.name) is None


async def test_a_stream_that_was_lost_is_another_one(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    made, epoch = await probe.bus.history.whole_since(JOBS.name), probe.bus.history.epoch
    assert made is not None
    probe.lose_facts()
    await eventually(lambda: probe.bus.history.epoch != epoch)

    async def is_another() -> bool:
        try:
            again = await probe.bus.history.whole_since(JOBS.name)
        except Retry:
            return False
        return again is not None and again > made

    await eventually(is_another)
    assert await probe.bus.history.last(make_gated(1).subject) is None


# --- commands


@asynccontextmanager
async def answering(bus: MemoryBus | NatsBus, *handlers: Answering) -> AsyncIterator[None]:
    """So many replicas; each is heard before the block begins."""
    heard: set[int] = set()

    def noticing(index: int, handler: Answering) -> Answering:
        async def handle(data: bytes) -> bytes:
            if data == b"are you there?":
                heard.add(index)
                return b""
            return await handler(data)

        return handle

    tasks = [
        asyncio.create_task(bus.answer(SUBJECT, noticing(index, handler)))
        for index, handler in enumerate(handlers)
    ]

    async def all_hear() -> bool:
        await bus.ask_all(SUBJECT, b"are you there?", within=0.05)
        return len(heard) == len(handlers)

    try:
        await eventually(all_hear)
        yield
    finally:
        await end(*tasks)


def saying(answer: bytes) -> Answering:
    async def handle(_: bytes) -> bytes:
        return answer

    return handle


async def test_every_replica_hears_a_command_and_answers(probe: Probe) -> None:
    async def echo(data: bytes) -> bytes:
        return b"two " + data

    async with answering(probe.bus, saying(b"one"), echo):
        answers = await probe.other.ask_all(SUBJECT, b"now", within=0.5)
    assert sorted(answers) == [b"one", b"two now"]


async def test_with_nobody_there_the_answer_is_none_at_once(probe: Probe) -> None:
    async with asyncio.timeout(20):
        assert await probe.bus.ask_all(SUBJECT, b"", within=3600) == []


async def test_a_replica_at_work_is_waited_for_beyond_the_time_to_come_forward(probe: Probe) -> None:
    async def slow(_: bytes) -> bytes:
        await asyncio.sleep(1.5)
        return b"done"

    async with answering(probe.bus, slow, saying(b"quick")):
        assert sorted(await probe.other.ask_all(SUBJECT, b"", within=0.8)) == [b"done", b"quick"]


async def test_an_error_is_answered_as_an_error_and_the_next_command_is_served(probe: Probe) -> None:
    errors: list[Exception] = [Permanent("Wrong", "field x: is wrong"), ValueError("a bug")]

    async def failing(_: bytes) -> bytes:
        if errors:
            raise errors.pop(0)
        return b"well"

    # Writing an error's traceback for people takes longer than a busy machine gives.
    with capture_logs() as logs:
        await check_errors(probe, failing)
    assert [entry["event"] for entry in logs] == ["command failed", "command failed by a bug"]


async def check_errors(probe: Probe, failing: Answering) -> None:
    async with answering(probe.bus, failing):
        with pytest.raises(Retry, match=r"1 of 1 replicas did not succeed: .*field x: is wrong"):
            await probe.other.ask_all(SUBJECT, b"", within=0.3)
        with pytest.raises(Retry, match="bug: ValueError: a bug"):
            await probe.other.ask_all(SUBJECT, b"", within=0.3)
        assert await probe.other.ask_all(SUBJECT, b"", within=0.3) == [b"well"]


async def test_what_is_too_large_is_refused_on_both_ways(probe: Probe) -> None:
    async with answering(probe.bus, saying(b"x" * (MAX_BYTES + 1))):
        with pytest.raises(Permanent, match="bytes, a command has"):
            await probe.other.ask_all(SUBJECT, b"x" * (MAX_BYTES + 1))
        with pytest.raises(Retry, match="the answer has"):
            await probe.other.ask_all(SUBJECT, b"", within=0.3)


async def test_more_commands_at_once_than_a_replica_takes_are_refused(probe: Probe) -> None:
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def blocked(_: bytes) -> bytes:
        begun.release()
        await go.wait()
        return b"ok"

    async with answering(probe.bus, blocked):
        asking = [asyncio.create_task(probe.other.ask_all(SUBJECT, b"", within=2)) for _ in range(AT_ONCE)]
        for _ in range(AT_ONCE):
            await begun.acquire()
        with pytest.raises(Retry, match="Busy"):
            await probe.other.ask_all(SUBJECT, b"", within=0.3)
        go.set()
        assert await asyncio.gather(*asking) == [[b"ok"]] * AT_ONCE


async def test_a_replica_that_dies_at_its_work_is_missed(probe: Probe) -> None:
    begun = asyncio.Event()

    async def never(_: bytes) -> bytes:
        begun.set()
        await asyncio.get_running_loop().create_future()
        return b""

    async with answering(probe.bus, never):
        asking = asyncio.create_task(probe.other.ask_all(SUBJECT, b"", within=1.0))
        await begun.wait()
    with pytest.raises(Retry, match="fell silent"):
        await asking


async def test_commands_are_heard_again_after_the_server_came_back(nats_server: NatsServer) -> None:
    bus = NatsBus(nats_server.url)
    await bus.start()
    async with answering(bus, saying(b"here")):
        nats_server.restart()

        async def answered() -> bool:
            try:
                return await bus.ask_all(SUBJECT, b"", within=0.2) == [b"here"]
            except Retry:
                return False

        await eventually(answered)
    await bus.close()
