"""bus-installer: what it makes returns after a loss, and it removes the work that is named alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
from tests.integration.bus.suite import bus_of

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.services import declared_with
from paddlewheel.bus.installer import Settings, serve
from paddlewheel.bus.nats import NatsBus, direct
from paddlewheel.bus.nats.durable import durable_config
from paddlewheel.bus.ports import Subscription
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET, SERVING, WORK
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.contracts.subjects import event_filter, work_filter, work_subject
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually, patiently

AS_SERVICE = partial(Access, streams="check", reads="directly")


@asynccontextmanager
async def installer(server: NatsServer) -> AsyncIterator[None]:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(Settings(nats_url=server.url, http_port=0, every=0.2), stop))
    try:
        yield
    finally:
        stop.set()
        await serving


@pytest.fixture
async def service(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    """A bus as services and agents have it."""
    async with bus_of(AS_SERVICE(nats_server.url)) as bus:
        yield bus


async def test_a_service_is_ready_once_it_has_installed_and_again_after_a_loss(
    nats_server: NatsServer, service: NatsBus
) -> None:
    assert not await service.healthy()
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        await asyncio.to_thread(nats_server.lose_data)
        await eventually(service.healthy, what="installed again")

        async def is_whole() -> bool:
            return (await service.inspect.status()).missing == ()

        await eventually(is_whole, what="no stream is missing")


async def test_streams_have_the_limits_that_are_asked_for_and_services_see_no_drift(
    nats_server: NatsServer, service: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUS_INSTALLER_STREAMS", '{"PW_JOBS": {"maxBytes": "1Gi", "maxAge": "30d"}}')
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        config = (await (await service._connection.jetstream()).stream_info(JOBS.name)).config
        assert (config.max_bytes, config.max_age) == (1 << 30, 30 * 86400.0)
        assert [s.drift for s in (await service.inspect.status()).streams if s.name == JOBS.name] == [{}]


async def test_services_of_others_get_their_streams_and_durables_again_after_a_loss(
    nats_server: NatsServer, service: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishes = '[{"context": "notebooks", "maxBytes": "16Mi", "maxAge": "7d"}]'
    declared = f'[{{"name": "notebooks", "publishes": {publishes}, "follows": ["jobs", "notebooks"]}}]'
    monkeypatch.setenv("BUS_INSTALLER_SERVICES", declared)

    async def whole() -> bool:
        js = await service._connection.jetstream()
        names = {info.config.name for info in await js.streams_info()}
        if "PW_NOTEBOOKS" not in names or JOBS.name not in names:
            return False
        found = {c.name for stream in (JOBS.name, "PW_NOTEBOOKS") for c in await js.consumers_info(stream)}
        return {"notebooks-jobs", "notebooks-notebooks"} <= found

    async with installer(nats_server):
        await eventually(whole, what="installed")
        await (await service._connection.jetstream()).delete_stream("PW_NOTEBOOKS")
        await eventually(whole, what="installed again")
        # A durable without replays needs no consumer of replays.
        status = await service.inspect.status()
        assert "notebooks-jobs-again" not in {durable.name for durable in status.durables}


async def test_a_stream_lost_alone_returns_with_its_durables(
    nats_server: NatsServer, service: NatsBus
) -> None:
    async with installer(nats_server):
        wanted = {durable.durable for durable in declared_with(()).durables}

        async def whole() -> bool:
            return {d.name for d in (await service.inspect.status()).durables} == wanted

        # It makes them after the streams.
        await eventually(whole, what="installed")
        await (await service._connection.jetstream()).delete_stream("PW_DATASETS")
        await eventually(whole, what="all durables are back")


async def test_a_durable_that_nobody_declared_is_not_made_by_a_service(
    nats_server: NatsServer, service: NatsBus
) -> None:
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        unknown = Subscription("mine", JOBS.name, (event_filter("jobs"),))
        with pytest.raises(Retry, match="no consumer mine of PW_JOBS: bus-installer makes it"):
            await service._provision.durable(JOBS.name, durable_config(unknown))


async def test_the_work_of_the_run_that_is_named_is_removed(
    nats_server: NatsServer, service: NatsBus
) -> None:
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        subjects = [
            work_subject(*place, 0) for place in (("s", "r", 0), ("s", "r", 1), ("s", "q", 0), ("t", "r", 0))
        ]
        for subject in subjects:
            await service.work.put(subject, b"chunk")
        await service.work.purge(work_filter("s", "r"))
        assert await left(service, subjects) == subjects[2:]


async def left(bus: NatsBus, subjects: list[str]) -> list[str]:
    info = await (await bus._connection.jetstream()).stream_info(WORK.name, subjects_filter=">")
    return [subject for subject in subjects if subject in (info.state.subjects or {})]


async def test_a_watch_without_a_consumer_sees_every_change(
    nats_server: NatsServer, service: NatsBus
) -> None:
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        bucket = service.key_value(RUNS_BUCKET)
        await bucket.put("s.r.state", b"0")
        seen: list[bytes] = []

        async def watch() -> None:
            async for entry in bucket.watch("s.>"):
                if entry is not None and entry.value is not None:
                    seen.append(entry.value)

        watching = asyncio.create_task(watch())
        try:
            await eventually(lambda: seen == [b"0"], what="what was there")
            for number in range(1, 20):
                await bucket.put("s.r.state", b"%d" % number)
                await bucket.put("other.r.state", b"no")
            await eventually(lambda: seen[-1] == b"19", what="the last change")
            assert b"no" not in seen
            js = await service._connection.jetstream()
            assert await js.consumers_info(f"KV_{RUNS_BUCKET}") == []
        finally:
            await end(watching)


async def test_a_watch_without_a_consumer_notices_a_stream_that_was_made_anew(
    nats_server: NatsServer, service: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.bus.nats.direct.CHECK_MAX_INTERVAL_SECONDS", 0.2)
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        bucket = service.key_value(RUNS_BUCKET)
        await bucket.put("s.a.state", b"1")
        await bucket.put("s.b.state", b"1")
        seen: dict[str, bytes | None] = {}

        async def watch() -> None:
            async for entry in bucket.watch("s.>"):
                if entry is not None:
                    seen[entry.key] = entry.value

        watching = asyncio.create_task(watch())
        try:
            await eventually(lambda: len(seen) == 2, what="what was there")
            await (await service._connection.jetstream()).delete_stream(f"KV_{RUNS_BUCKET}")
            await eventually(lambda: seen == {"s.a.state": None, "s.b.state": None}, what="they are gone")
            await bucket.put("s.c.state", b"1")
            await eventually(lambda: seen.get("s.c.state") == b"1", what="what came after")
        finally:
            await end(watching)


async def test_a_watch_notices_a_bucket_that_was_made_anew_and_has_more_than_it_had(
    nats_server: NatsServer, service: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CHECK_MAX_INTERVAL_SECONDS", 0.5)
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
        bucket = service.key_value(RUNS_BUCKET)
        await bucket.put("s.r.spec", b"old")
        await bucket.put("s.r.state", b"old")
        seen: dict[str, bytes | None] = {}

        async def watch() -> None:
            async for entry in bucket.watch("s.>"):
                if entry is not None:
                    seen[entry.key] = entry.value

        watching = asyncio.create_task(watch())
        try:
            await eventually(lambda: len(seen) == 2, what="what was there")
            js = await service._connection.jetstream()
            await js.delete_stream(f"KV_{RUNS_BUCKET}")
            async with bus_of(Access(nats_server.url)) as maker:
                await maker.key_value(RUNS_BUCKET).put("s.next.spec", b"new")
                for number in range(5):
                    await maker.key_value(RUNS_BUCKET).put(f"other.{number}.spec", b"x")
            await eventually(lambda: seen.get("s.next.spec") == b"new", what="the record of the new bucket")
        finally:
            await end(watching)


async def test_a_stream_that_is_missing_holds_up_no_other(nats_server: NatsServer, service: NatsBus) -> None:
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
    await (await service._connection.jetstream()).delete_stream(SERVING.name)
    async with bus_of(AS_SERVICE(nats_server.url)) as late:
        await patiently(lambda: late.key_value(RUNS_BUCKET).put("s.r.state", b"0"))
        assert not await late.healthy()
        with pytest.raises(Retry, match=r"no stream PW_SERVING: .*bus-installer"):
            await late._provision.check()


async def test_a_service_is_ready_without_the_streams_that_a_restarted_server_has_lost(
    nats_server: NatsServer, service: NatsBus
) -> None:
    """Its clients reach it while bus-installer is away, too."""
    async with installer(nats_server):
        await eventually(service.healthy, what="installed")
    await asyncio.to_thread(nats_server.restart)
    await eventually(service.healthy, what="ready again")
    assert (await service.inspect.status()).missing == ("PW_PROGRESS", "PW_CACHEPROGRESS")
    at = datetime(2026, 1, 2, tzinfo=UTC)
    fact = make_event(JobProgressed(), id="1", source="test", namespace="default", uid="uid", time=at)
    with pytest.raises(Retry, match=r"StreamMissing: .*: bus-installer makes it"):
        await service.publish(fact)
    async with installer(nats_server):
        await patiently(lambda: service.publish(fact))
