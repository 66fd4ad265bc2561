"""The example subscriber in Go on a real NATS server: it loses nothing, repeats nothing, keeps the order."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.bus.ports import Bus
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.gen.protos import ROOT
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.wire import encode
from paddlewheel.devcluster.doctor import GO_REMEDY
from paddlewheel.devcluster.go import find_go
from paddlewheel.testkit import bare_client
from paddlewheel.testkit.chart_bus import PASSWORD, ChartBus, install, running
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.patient_bus import connect
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long
"""They share the built program."""

SOURCE = ROOT / "examples/subscribers/go"
OBJECTS = 5
FACTS, PART = 300, 60
"""All, and those that are published until the next kill."""
TORN = b'{"id":"uid-0/JobGated/99","ty'


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, from what is committed: `-mod=readonly` refuses a go.mod or go.sum that lacks something."""
    go = find_go()
    assert go, f"no Go of at least 1.26 is installed: {' '.join(GO_REMEDY)}"
    target = tmp_path_factory.mktemp("subscriber") / "subscriber"
    for argv in (["vet", "."], ["build", "-mod=readonly", "-o", str(target), "."]):
        done = subprocess.run([go, *argv], cwd=SOURCE, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await connect(nats_url, name="publisher")
    yield bus
    await bus.close()


class Subscriber:
    """One subscriber: its process, its file of facts, its log."""

    def __init__(self, program: Path, url: str, folder: Path, *more: str) -> None:
        self.facts = folder / "facts.jsonl"
        self.log = folder / "subscriber.log"
        self._command = [str(program), "-server", url, "-out", str(self.facts), "-ack-wait", "1s", *more]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=out, stderr=out)

    async def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(how)
        return await asyncio.wait_for(self._process.wait(), 90)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Started; whatever happens, it is gone afterwards."""
        await self.start()
        try:
            yield
        finally:
            await self.end(signal.SIGKILL)

    def lines(self) -> list[dict[str, Any]]:
        """What was written down whole."""
        if not self.facts.exists():
            return []
        text = self.facts.read_bytes()
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def ids(self) -> list[str]:
        return [line["id"] for line in self.lines()]


def make_fact(number: int, first: int = 0) -> Event:
    uid = f"uid-{number % OBJECTS}"
    return make_event(
        JobGated(message=str(first + number)),
        id=f"{uid}/JobGated/{first + number}",
        source="job-controller",
        namespace="team-a",
        uid=uid,
        time=datetime.now(UTC),
    )


async def publish(bus: Bus, facts: list[Event]) -> None:
    for fact in facts:
        await bus.publish(fact)


def is_told(subscriber: Subscriber, count: int) -> bool:
    return len(subscriber.ids()) >= count


def assert_told_in_order(subscriber: Subscriber, facts: list[Event]) -> None:
    """Each fact once, and those of one object in the order in which they were published."""
    ids = subscriber.ids()
    assert sorted(ids) == sorted(fact.id for fact in facts)
    for uid in {fact.subject.rpartition(".")[2] for fact in facts}:
        wanted = [fact.id for fact in facts if fact.id.startswith(f"{uid}/")]
        assert [i for i in ids if i.startswith(f"{uid}/")] == wanted


async def test_a_fact_becomes_a_line_that_says_all(
    program: Path, bus: Bus, nats_url: str, tmp_path: Path
) -> None:
    fact = make_fact(7)
    await bus.publish(fact)
    subscriber = Subscriber(program, nats_url, tmp_path)
    async with subscriber.running():
        await eventually(subscriber.lines)
        assert await subscriber.end() == 0
    assert subscriber.lines() == [
        {
            "id": fact.id,
            "type": "paddlewheel.jobs.v1.JobGated",
            "source": "job-controller",
            "time": encode(fact)[1]["ce-time"],
            "subject": fact.subject,
            "data": {"message": "7"},
        }
    ]


async def test_killed_midway_it_handles_every_fact_once_and_in_order(
    program: Path, bus: Bus, nats_url: str, tmp_path: Path
) -> None:
    facts = [make_fact(number) for number in range(FACTS)]
    subscriber = Subscriber(program, nats_url, tmp_path)
    for start in range(0, FACTS - PART, PART):
        publishing = asyncio.create_task(publish(bus, facts[start : start + PART]))
        enough = partial(is_told, subscriber, start + PART // 2)
        async with subscriber.running():
            await eventually(enough, every=0.002)
        # A crash may leave half a line behind; it must not become part of the next.
        with subscriber.facts.open("ab") as file:
            file.write(TORN)
        await publishing
    await publish(bus, facts[-PART:])
    async with subscriber.running():
        await eventually(lambda: len(subscriber.ids()) >= FACTS)
    assert_told_in_order(subscriber, facts)


async def test_what_could_not_be_written_down_was_not_acknowledged_and_comes_first(
    program: Path, bus: Bus, nats_url: str, tmp_path: Path
) -> None:
    facts = [make_fact(0, first) for first in range(10)]
    await publish(bus, facts)
    with Path("/dev/full").open("wb") as full:
        command = [str(program), "-server", nats_url, "-ack-wait", "1s"]
        failed = await asyncio.create_subprocess_exec(*command, stdout=full, stderr=subprocess.PIPE)
        _, said = await asyncio.wait_for(failed.communicate(), 90)
    assert failed.returncode == 1
    assert b"cannot write the fact" in said
    subscriber = Subscriber(program, nats_url, tmp_path)
    async with subscriber.running():
        await eventually(lambda: is_told(subscriber, len(facts)))
    assert_told_in_order(subscriber, facts)


async def test_a_fact_that_comes_again_under_its_id_is_told_once(
    program: Path, bus: Bus, nats_url: str, tmp_path: Path
) -> None:
    first, last = make_fact(1), make_fact(2)
    await bus.publish(first)
    body, headers = encode(first)
    client = await bare_client.connect(nats_url)
    try:
        # As after the duplicate window: the stream stores it once more.
        await client.jetstream().publish(first.subject, body, headers={**headers, "Nats-Msg-Id": "again"})
    finally:
        await client.close()
    await bus.publish(last)
    subscriber = Subscriber(program, nats_url, tmp_path)
    async with subscriber.running():
        await eventually(lambda: last.id in subscriber.ids())
    assert subscriber.ids() == [first.id, last.id]


@pytest.mark.parametrize(
    ("body", "headers", "complaint"),
    [
        (b"not JSON", encode(make_fact(3))[1], "not JSON"),
        (b"{}", {}, "ce-specversion"),
        (b"{}", {**encode(make_fact(3))[1], "ce-id": ""}, "ce-id"),
    ],
)
async def test_what_it_cannot_read_is_named_and_holds_nobody_up(
    body: bytes,
    headers: dict[str, str],
    complaint: str,
    program: Path,
    bus: Bus,
    nats_url: str,
    tmp_path: Path,
) -> None:
    last = make_fact(4)
    await bus.publish(make_fact(0))
    client = await bare_client.connect(nats_url)
    try:
        await client.jetstream().publish(last.subject, body, headers=headers or None)
    finally:
        await client.close()
    await bus.publish(last)
    subscriber = Subscriber(program, nats_url, tmp_path)
    async with subscriber.running():
        await eventually(lambda: last.id in subscriber.ids())
    assert subscriber.ids() == [make_fact(0).id, last.id]
    assert complaint in subscriber.log.read_text()


async def test_it_goes_on_when_the_bus_has_lost_everything(
    program: Path, bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    await bus.publish(make_fact(0))
    subscriber = Subscriber(program, nats_server.url, tmp_path)
    async with subscriber.running():
        await eventually(lambda: len(subscriber.ids()) == 1)
        nats_server.lose_data()
        after = make_fact(1)
        await eventually(lambda: published(bus, after))
        await eventually(lambda: after.id in subscriber.ids())


async def published(bus: Bus, fact: Event) -> bool:
    """True once the stream has it; an AssertionError says to try again."""
    try:
        await bus.publish(fact)
    except Exception as error:
        raise AssertionError(str(error)) from error
    return True


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[ChartBus]:
    """The chart's server, installed."""
    with running(tmp_path / "bus") as bus:
        await install(bus)
        yield bus


async def test_over_tls_it_needs_no_more_than_a_subscribers_rights(
    program: Path, secured: ChartBus, tmp_path: Path
) -> None:
    server = secured
    facts = [make_fact(number) for number in range(20)]
    bus = await connect(server.access("operator"), name="publisher")
    try:
        await publish(bus, facts)
    finally:
        await bus.close()
    (tmp_path / "token").write_text(PASSWORD)
    shown = ("-tls-dir", str(server.authority), "-token-file", str(tmp_path / "token"))
    subscriber = Subscriber(program, server.url, tmp_path, *shown)
    async with subscriber.running():
        await eventually(lambda: len(subscriber.ids()) == len(facts))
    assert_told_in_order(subscriber, facts)


async def test_without_the_authority_nothing_is_told(
    program: Path, secured: ChartBus, tmp_path: Path
) -> None:
    subscriber = Subscriber(program, secured.url, tmp_path)
    async with subscriber.running():
        await eventually(
            lambda: subscriber.log.exists() and "consumer on PW_JOBS" in subscriber.log.read_text()
        )
    assert not subscriber.ids()
