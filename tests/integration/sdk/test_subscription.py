"""`paddlewheel.events` on a real server: filters, history, faults, and bounded memory."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

import paddlewheel
from paddlewheel.bus import connect
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import DATASETS, JOBS
from paddlewheel.contracts import envelope
from paddlewheel.contracts.events import make_event
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.certs import Authority
from paddlewheel.sdk import (
    JobDeleted,
    JobGated,
    JobSucceeded,
    ObjectRef,
    RunEnded,
    SampleSetReady,
    ServiceReady,
)
from paddlewheel.testkit.chart_bus import ChartBus, install, running
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


def make_fact(data: BaseModel, id_: str, uid: str = "u1", namespace: str = "team-a") -> envelope.Event:
    now = datetime.now(UTC)
    return make_event(data, id=id_, source="test", namespace=namespace, uid=uid, time=now)


def make_gated(
    number: int, name: str = "resnet", uid: str = "u1", namespace: str = "team-a"
) -> envelope.Event:
    job = ObjectRef(namespace=namespace, name=name, uid=uid)
    return make_fact(JobGated(job=job, message=str(number)), f"{uid}/gated/{number}", uid, namespace)


async def stored_ids(url: str, **arguments: str) -> list[str]:
    async with aclosing(paddlewheel.events(url=url, follow=False, **arguments)) as events:  # type: ignore[arg-type]
        return [event.id async for event in events]


async def test_objects_are_found_by_name_though_no_subject_carries_it(bus: Bus, nats_url: str) -> None:
    run = RunEnded(set_namespace="team-a", set_name="images", set_uid="s1", operation="sync")
    images = ObjectRef(namespace="team-a", name="images", uid="s1")
    for event in (
        make_gated(1),
        make_gated(2, "other", "u2"),
        make_gated(3, namespace="team-b", uid="u3"),
        make_fact(run, "run", "s1"),
        make_fact(SampleSetReady(sample_set=images), "ready", "s1"),
        make_fact(ServiceReady(service=ObjectRef(namespace="team-a", name="digits", uid="p1")), "p1", "p1"),
        make_fact(ServiceReady(service=ObjectRef(namespace="team-a", name="other", uid="p2")), "p2", "p2"),
    ):
        await bus.publish(event)
    assert await stored_ids(nats_url, job="team-a/resnet") == ["u1/gated/1"]
    assert await stored_ids(nats_url, job="team-a/*") == ["u1/gated/1", "u2/gated/2"]
    assert await stored_ids(nats_url, job="*/resnet") == ["u1/gated/1", "u3/gated/3"]
    assert await stored_ids(nats_url, sample_set="team-a/images") == ["run", "ready"]
    assert await stored_ids(nats_url, paddle_service="team-a/digits") == ["p1"]
    assert await stored_ids(nats_url, service="cache-runtime") == ["run"]
    assert await stored_ids(nats_url, types="SampleSetReady") == ["ready"]
    assert await stored_ids(nats_url, job="team-a/resnet", durable="x") == ["u1/gated/1"]
    assert await stored_ids(nats_url, job="team-a/unheard-of") == []


async def test_a_deleted_jobs_story_and_that_of_its_successor_are_told_apart(bus: Bus, nats_url: str) -> None:
    for uid in ("u1", "u2"):
        job = ObjectRef(namespace="team-a", name="resnet", uid=uid)
        await bus.publish(make_gated(1, uid=uid))
        await bus.publish(make_fact(JobSucceeded(job=job), f"{uid}/succeeded", uid))
        await bus.publish(make_fact(JobDeleted(job=job), f"{uid}/deleted", uid))
    async with aclosing(paddlewheel.events(url=nats_url, job="team-a/resnet", follow=False)) as events:
        found = [(event.object.uid, type(event.data).__name__) async for event in events]
    story = ["JobGated", "JobSucceeded", "JobDeleted"]
    assert found == [(uid, fact) for uid in ("u1", "u2") for fact in story]


async def test_what_a_loop_waits_for_comes(bus: Bus, nats_url: str) -> None:
    await bus.publish(make_gated(1))
    async with aclosing(paddlewheel.events(url=nats_url, since="1h")) as events:
        assert (await anext(events)).id == "u1/gated/1"
        waiting = asyncio.ensure_future(anext(events))
        await bus.publish(make_gated(2))
        assert (await asyncio.wait_for(waiting, 90)).id == "u1/gated/2"


@pytest.mark.parametrize("durable", ["", "me"])
async def test_leaving_the_loop_by_break_ends_all_its_tasks(bus: Bus, nats_url: str, durable: str) -> None:
    await bus.publish(make_gated(1))
    before, inside = asyncio.all_tasks(), set()
    async for _ in paddlewheel.events(url=nats_url, since="all", durable=durable):
        inside = asyncio.all_tasks() - before
        break
    assert "in-progress marks" in {task.get_name() for task in inside}
    gc.collect()
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_one_durable_keeps_a_place_in_each_stream(bus: Bus, nats_url: str) -> None:
    images = ObjectRef(namespace="team-a", name="images", uid="s1")
    await bus.publish(make_gated(1))
    await bus.publish(make_fact(SampleSetReady(sample_set=images), "ready/1", "s1"))
    assert set(await stored_ids(nats_url, durable="me")) == {"u1/gated/1", "ready/1"}
    await bus.publish(make_fact(SampleSetReady(sample_set=images), "ready/2", "s1"))
    assert await stored_ids(nats_url, durable="me") == ["ready/2"]
    places = {d.stream for d in (await bus.inspect.status()).durables if d.name == "sub-me"}
    assert {JOBS.name, DATASETS.name} <= places


@pytest.mark.parametrize("durable", ["", "me"])
@pytest.mark.parametrize("fault", ["restart", "lose_data"])
async def test_a_loop_outlives_its_server(
    bus: Bus, nats_server: NatsServer, fault: str, durable: str
) -> None:
    seen: list[str] = []

    async def follow() -> None:
        source = paddlewheel.events(url=nats_server.url, job="team-a/resnet", since="all", durable=durable)
        async with aclosing(source) as events:
            async for event in events:
                seen.append(event.id)

    loop = asyncio.create_task(follow())
    for round_ in range(3):
        for number in range(10):
            await bus.publish(make_gated(round_ * 10 + number))
        await eventually(lambda want=round_ * 10 + 10: len(seen) == want)  # type: ignore[misc]
        if round_ < 2:
            await asyncio.to_thread(getattr(nats_server, fault))
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert seen == [f"u1/gated/{number}" for number in range(30)]


async def test_events_published_while_nobody_was_connected_are_not_missed(
    bus: Bus, nats_server: NatsServer
) -> None:
    await bus.publish(make_gated(0))
    async with aclosing(paddlewheel.events(url=nats_server.url, since="all", job="*/*")) as events:
        assert (await anext(events)).id == "u1/gated/0"
        await asyncio.to_thread(nats_server.restart)
        for number in range(1, 6):
            await bus.publish(make_gated(number))
        got = [(await asyncio.wait_for(anext(events), 90)).id for _ in range(5)]
    assert got == [f"u1/gated/{number}" for number in range(1, 6)]


async def test_ten_thousand_events_pass_through_little_memory(bus: Bus, nats_url: str) -> None:
    images = ObjectRef(namespace="team-a", name="images", uid="s1")
    for start in range(0, 5_000, 50):
        facts = [make_gated(number) for number in range(start, start + 50)]
        facts += [
            make_fact(SampleSetReady(sample_set=images, partitions=n), f"s/{n}", "s1")
            for n in range(start, start + 50)
        ]
        await asyncio.gather(*(bus.publish(fact) for fact in facts))
    del facts
    gc.collect()
    count, most = 0, 0
    async with aclosing(paddlewheel.events(url=nats_url, follow=False)) as events:
        async for _ in events:
            count += 1
            if count % 500 == 1:
                most = max(most, sum(isinstance(o, envelope.Event) for o in gc.get_objects()))
    assert count == 10_000
    assert 0 < most < 2_000


async def test_a_server_that_is_away_is_waited_for_as_long_as_asked(nats_server: NatsServer) -> None:
    nats_server.kill()
    with pytest.raises(Retry, match="BusUnreachable"):
        async with aclosing(paddlewheel.events(url=nats_server.url, open_within=0.5)) as events:
            await anext(events)
    events = paddlewheel.events(url=nats_server.url, since="all")
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.to_thread(nats_server.start)
    bus = await connect(nats_server.url, name="late")
    await bus.publish(make_gated(1))
    assert (await asyncio.wait_for(waiting, 90)).id == "u1/gated/1"
    await events.aclose()
    await bus.close()


async def test_a_bus_that_is_away_is_waited_for_no_longer_than_asked(nats_server: NatsServer) -> None:
    nats_server.kill()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Retry, match="BusUnreachable"):
        async with (
            asyncio.timeout(60),
            aclosing(paddlewheel.events(url=nats_server.url, open_within=1.0)) as events,
        ):
            await anext(events)
    assert loop.time() - began >= 0.5


@asynccontextmanager
async def forwarding(port: int, to: int) -> AsyncIterator[None]:
    """Until now nobody listens on `port`; from now on the server at `to` does."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError), closing(writer):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


@pytest.mark.parametrize("durable", ["", "me"])
async def test_a_loop_over_new_events_begins_when_it_is_started_not_when_the_bus_answers(
    bus: Bus, nats_server: NatsServer, durable: str
) -> None:
    [port] = free_ports(1)
    await bus.publish(make_gated(1))
    source = paddlewheel.events(url=f"nats://127.0.0.1:{port}", durable=durable)
    waiting = asyncio.ensure_future(anext(source))
    await asyncio.sleep(1.0)
    await bus.publish(make_gated(2))
    async with forwarding(port, nats_server.port), aclosing(source):
        assert (await asyncio.wait_for(waiting, 90)).id == "u1/gated/2"


@pytest.fixture
def chart_bus(tmp_path: Path) -> Iterator[ChartBus]:
    """A server as the chart configures it: TLS, and rights by role."""
    with running(tmp_path / "bus") as started:
        yield started


async def test_a_subscribers_password_is_enough_and_none_is_not(
    chart_bus: ChartBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_TLS_HOSTNAME", "nats")
    await install(chart_bus)
    service = await connect(chart_bus.access("job-controller"), name="job-controller")
    await service.publish(make_gated(1))
    await service.close()
    address, folder = chart_bus.url_of("subscriber"), chart_bus.authority

    async def told(durable: str) -> list[str]:
        source = paddlewheel.events(url=address, tls_dir=folder, since="all", follow=False, durable=durable)
        async with aclosing(source) as events:
            return [event.id async for event in events]

    # The team's mirror is a moment behind.
    assert await eventually(lambda: told("")) == ["u1/gated/1"]
    assert await told("me") == ["u1/gated/1"]
    async with aclosing(paddlewheel.events(url=chart_bus.url, open_within=0.5)) as events:
        with pytest.raises(PaddlewheelError):
            await anext(events)


async def test_a_wrong_certificate_ends_the_loop_with_the_setting_and_the_names(
    chart_bus: ChartBus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def problem(folder: Path) -> str:
        async with aclosing(paddlewheel.events(url=chart_bus.url, tls_dir=folder)) as events:
            with pytest.raises(Permanent) as ended:
                await anext(events)
        return ended.value.message

    monkeypatch.setenv("NATS_TLS_HOSTNAME", "bus.example")
    text = await problem(chart_bus.authority)
    assert re.search(
        r"certificate is for .*\bnats\b.*, not for bus\.example: .*NATS_URL.*NATS_TLS_HOSTNAME", text
    )
    monkeypatch.setenv("NATS_TLS_HOSTNAME", "nats")
    other = Authority(tmp_path / "other", "other").identity.certificate
    text = await problem(other.rename(other.with_name("ca.crt")).parent)
    assert re.search(r"ca\.crt is not the authority of the server's certificate .*NATS_TLS_DIR", text)
