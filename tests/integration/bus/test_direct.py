"""Reading without consumers, where replicas answer late and nobody writes what is watched."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, direct
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.ports import Reading
from paddlewheel.bus.streams import RUNS, RUNS_BUCKET
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.datasets_v1 import SampleSetDegraded, SampleSetDeleted, SampleSetReady
from paddlewheel.core.tasks import end
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually


def make_fact(event_id: str, data: WireModel) -> Event:
    now = datetime.now(UTC)
    return make_event(data, id=event_id, source="test", namespace="default", uid="uid", time=now)


DIRECT_GET = "$JS.API.DIRECT.GET."
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class Replicas:
    """What is asked of JetStream, by the call; while `late`, no replica but the leader has anything."""

    late: bool = False
    asked: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Replicas:
    found = Replicas()
    publish, ask = Client.publish, Client.ask

    async def publish_counted(
        self: Client, subject: str, payload: bytes = b"", reply: str = "", headers: Any = None
    ) -> None:
        if subject.startswith(DIRECT_GET):
            found.asked["DIRECT.GET"] += 1
        if found.late and subject.startswith(DIRECT_GET):
            await publish(self, reply, b"", headers={"Status": "404"})
        else:
            await publish(self, subject, payload, reply, headers)

    async def ask_counted(self: Client, subject: str, *args: Any, **how: Any) -> Any:
        found.asked[subject.removeprefix("$JS.API.").rpartition(".")[0]] += 1
        return await ask(self, subject, *args, **how)

    monkeypatch.setattr(Client, "publish", publish_counted)
    monkeypatch.setattr(Client, "ask", ask_counted)
    return found


@pytest.fixture
async def reader(bus: NatsBus, nats_url: str) -> AsyncIterator[NatsBus]:
    """A service's bus: it may make no consumer."""
    reader = NatsBus(Access(nats_url, streams="assume", reads="directly"))
    yield reader
    await reader.close()


@dataclass
class Watched:
    """By a task, whose failure is the test's."""

    seen: list[tuple[str, bytes | None]] = field(default_factory=list)
    listed: bool = False


@contextmanager
def watching(bus: NatsBus, pattern: str) -> Iterator[Watched]:
    watched = Watched()

    async def watch() -> None:
        async with aclosing(bus.key_value(RUNS_BUCKET).watch(pattern)) as entries:
            async for entry in entries:
                if entry is None:
                    watched.listed = True
                else:
                    watched.seen.append((entry.key, entry.value))

    task = asyncio.create_task(watch())
    try:
        yield watched
    finally:
        if task.done():
            task.result()
        task.cancel()


async def test_a_record_that_replicas_get_late_is_not_passed_over(
    bus: NatsBus, reader: NatsBus, replicas: Replicas
) -> None:
    records = bus.key_value(RUNS_BUCKET)
    with watching(reader, "set-a.>") as watched:
        await eventually(lambda: watched.listed, what="the empty listing")
        replicas.late = True
        await records.put("set-a.run.spec", b"1")
        await eventually(lambda: watched.seen == [("set-a.run.spec", b"1")], what="the leader's record")
        replicas.late = False
        await records.put("set-b.run.spec", b"no")
        await records.put("set-a.run.state", b"2")
        await eventually(lambda: len(watched.seen) == 2, what="the next record")
        assert watched.seen == [("set-a.run.spec", b"1"), ("set-a.run.state", b"2")]


async def test_a_listing_has_what_replicas_get_late(
    bus: NatsBus, reader: NatsBus, replicas: Replicas
) -> None:
    records = bus.key_value(RUNS_BUCKET)
    for number in range(3):
        await records.put(f"set-a.{number}.spec", b"%d" % number)
        await records.put(f"set-b.{number}.spec", b"no")
    replicas.late = True
    found = await reader.key_value(RUNS_BUCKET).entries("set-a.>")
    assert [(entry.key, entry.value) for entry in found] == [
        (f"set-a.{number}.spec", b"%d" % number) for number in range(3)
    ]


async def test_facts_of_several_kinds_are_read_from_replicas_that_are_late(
    bus: NatsBus, reader: NatsBus, replicas: Replicas
) -> None:
    kinds = ("pw.evt.datasets.sampleset.ready.>", "pw.evt.datasets.sampleset.deleted.>")
    seen: list[str] = []

    async def read() -> None:
        async with aclosing(reader.read(Reading(kinds, since=BEGINNING))) as facts:
            async for delivery in facts:
                seen.append(delivery.event.id)

    kind_of = (SampleSetReady, SampleSetDeleted, SampleSetDegraded, SampleSetReady)
    facts = [make_fact(str(number), kind()) for number, kind in enumerate(kind_of)]
    await bus.publish(facts[0])
    reading = asyncio.create_task(read())
    try:
        await eventually(lambda: seen == ["0"], what="what was stored")
        replicas.late = True
        for fact in facts[1:]:
            await bus.publish(fact)
        await eventually(lambda: seen == ["0", "1", "3"], what="those that were asked for, in order")
    finally:
        await end(reading)


async def test_a_reader_begins_at_its_time_though_replicas_are_late(
    bus: NatsBus, reader: NatsBus, replicas: Replicas
) -> None:
    await bus.publish(make_fact("old", SampleSetReady()))
    await asyncio.sleep(0.01)
    since = datetime.now(UTC)
    ready = ("pw.evt.datasets.sampleset.ready.>",)
    assert [each async for each in reader.read(Reading(ready, since=since, follow=False))] == []
    assert replicas.asked["DIRECT.GET"] <= 2
    replicas.late = True
    await bus.publish(make_fact("new", SampleSetReady()))

    async def first() -> str:
        async with aclosing(reader.read(Reading(ready, since=since))) as facts:
            return (await anext(facts)).event.id

    reading = asyncio.create_task(first())
    asked = replicas.asked["STREAM.MSG.GET"]
    await eventually(lambda: replicas.asked["STREAM.MSG.GET"] > asked, what="the leader is asked")
    replicas.late = False
    async with asyncio.timeout(90):
        assert await reading == "new"


async def test_a_quiet_watch_asks_the_leader_alone_however_much_others_write(
    bus: NatsBus, reader: NatsBus, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CHECK_MAX_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(direct, "_CHECK_FIRST_INTERVAL_SECONDS", 0.1)
    records = bus.key_value(RUNS_BUCKET)
    with watching(reader, "set-a.>") as watched:
        await eventually(lambda: watched.listed, what="the empty listing")
        await eventually(lambda: replicas.asked["STREAM.INFO"] > 2, what="looks")
        await records.put("set-b.run.spec", b"0")
        gets, looks = replicas.asked["DIRECT.GET"], replicas.asked["STREAM.INFO"]
        await eventually(lambda: replicas.asked["STREAM.INFO"] >= looks + 20, what="looks")
        assert replicas.asked["DIRECT.GET"] == gets
        # And one when the watch was opened.
        assert 20 <= replicas.asked["STREAM.MSG.GET"] <= replicas.asked["STREAM.INFO"] + 1
        await records.put("set-a.run.spec", b"1")
        await eventually(lambda: watched.seen == [("set-a.run.spec", b"1")], what="what is watched")


@pytest.mark.parametrize(
    "headers",
    long_after(1, [None, {"Nats-Sequence": "x"}, {"Nats-Sequence": "1"}, {"Nats-Sequence": "1000000"}]),
    ids=["no sequence", "no number", "an old one", "one that does not exist"],
)
async def test_forged_signals_interrupt_no_watch_and_have_the_leader_asked_once_a_second(
    bus: NatsBus, reader: NatsBus, replicas: Replicas, headers: dict[str, str] | None
) -> None:
    """An agent has the answers to its requests delivered to others as signals."""
    records, client, loop = (
        bus.key_value(RUNS_BUCKET),
        await bus._connection.client(),
        asyncio.get_running_loop(),
    )
    sent = 0

    async def forge() -> None:
        nonlocal sent
        while True:
            await client.publish(f"pw.live.{RUNS.name}.set-a.run.spec", b"", headers=headers)
            sent += 1
            await asyncio.sleep(0.001)

    async def flood() -> None:
        most = sent + 500
        await eventually(lambda: sent > most, what="a flood")

    await records.put("set-a.0.spec", b"0")
    with watching(reader, "set-a.>") as watched:

        async def hear(number: int) -> None:
            await records.put(f"set-a.{number}.spec", b"%d" % number)
            await eventually(lambda: len(watched.seen) > number, what="the next record")

        await eventually(lambda: watched.listed, what="the listing")
        began, asked = loop.time(), replicas.asked.copy()
        forging = asyncio.create_task(forge())
        try:
            for number in range(1, 4):
                await flood()
                await hear(number)
        finally:
            await end(forging)
        seconds = loop.time() - began
        assert watched.seen == [(f"set-a.{number}.spec", b"%d" % number) for number in range(4)]
        assert (replicas.asked - asked)["STREAM.INFO"] <= seconds + 2


async def test_a_stream_that_was_made_anew_is_noticed_by_its_signals(
    bus: NatsBus, reader: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHECK_MAX_INTERVAL_SECONDS", "_CHECK_FIRST_INTERVAL_SECONDS"):
        monkeypatch.setattr(direct, name, 1000.0)
    records, js = bus.key_value(RUNS_BUCKET), await bus._connection.jetstream()
    with watching(reader, "set-a.>") as watched:
        await eventually(lambda: watched.listed, what="the empty listing")
        for number in range(3):
            await records.put(f"set-a.{number}.spec", b"old")
        await eventually(lambda: len(watched.seen) == 3, what="the records")
        config = (await js.stream_info(RUNS.name)).config
        await js.delete_stream(RUNS.name)
        await js.add_stream(config)
        await records.put("set-a.new.spec", b"new")
        await eventually(lambda: ("set-a.new.spec", b"new") in watched.seen, what="the new record")
