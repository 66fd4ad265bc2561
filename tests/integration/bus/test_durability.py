"""Streams brought to their declaration on a real server; servers that may lose messages named or refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from nats.js.api import StreamConfig
from structlog.testing import capture_logs
from tests.integration.bus.suite import bus_of

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import OURS, ROLES, Declared
from paddlewheel.bus.nats import NatsBus, provision
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.streams import DECLARED_AS, JOBS, RUNS_BUCKET, STREAMS, WORK, StreamSpec
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import NotFound, Retry
from paddlewheel.core.settings import Profile
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually


async def config_of(bus: NatsBus, stream: str = JOBS.name) -> StreamConfig:
    config: StreamConfig = (await (await bus._connection.jetstream()).stream_info(stream)).config
    return config


async def provide_again(bus: NatsBus, access: Access | None = None) -> list[Any]:
    """What another start says about the streams."""
    with capture_logs() as logs:
        await Provision(bus._connection, OURS, access or Access("")).ready()
    return [entry for entry in logs if entry["event"].startswith("bus stream")]


async def test_new_streams_have_no_drift(bus: NatsBus) -> None:
    assert await provide_again(bus) == []
    assert {s.name: s.drift for s in (await bus.inspect.status()).streams} == {s.name: {} for s in STREAMS}


CHANGES: list[dict[str, Any]] = [
    {"max_age": 600.0},
    {"max_bytes": 1 << 20},
    {"duplicate_window": 30.0},
    {"max_msg_size": 1000},
    {"max_msgs_per_subject": 5},
    {"discard": "new"},
    {"subjects": ["pw.evt.jobs.job.>"]},
    {"allow_direct": False},
    {"allow_rollup_hdrs": True},
]


async def test_drift_is_corrected_and_logged(bus: NatsBus) -> None:
    found = await config_of(bus)
    for change in CHANGES:
        await (await bus._connection.jetstream()).update_stream(found.evolve(**change))
        [entry] = await provide_again(bus)
        logged = (entry["log_level"], entry["stream"], list(entry["drift"]))
        assert logged == ("warning", JOBS.name, list(change))
        assert await config_of(bus) == found
        assert await provide_again(bus) == []


async def test_fields_set_by_an_operator_are_kept(bus: NatsBus) -> None:
    js, found = await bus._connection.jetstream(), await config_of(bus)
    await js.update_stream(found.evolve(description="ours", max_age=600.0))
    await provide_again(bus)
    assert ((await config_of(bus)).description, (await config_of(bus)).max_age) == ("ours", JOBS.max_age)


async def make_anew(bus: NatsBus, **change: Any) -> None:
    js, config = await bus._connection.jetstream(), await config_of(bus)
    await js.delete_stream(JOBS.name)
    await js.add_stream(config.evolve(**change))


UNCHANGEABLE = [{"storage": "memory"}, {"retention": "workqueue"}]


@pytest.mark.parametrize("change", long_after(1, UNCHANGEABLE), ids=lambda change: next(iter(change)))
async def test_fixed_fields_are_logged_and_the_rest_is_corrected(
    bus: NatsBus, change: dict[str, Any]
) -> None:
    await make_anew(bus, max_age=600.0, **change)
    [field] = change
    error, warning = await provide_again(bus)
    assert (error["log_level"], list(error["drift"])) == ("error", [field])
    assert (warning["log_level"], list(warning["drift"])) == ("warning", ["max_age"])
    assert (await config_of(bus)).max_age == JOBS.max_age
    await bus.publish(make_gated(1))


async def test_a_field_the_server_refuses_to_reset_blocks_nothing(bus: NatsBus) -> None:
    await make_anew(bus, deny_delete=True)
    logs = await provide_again(bus)
    assert ("error", "bus stream could not be changed") in {(e["log_level"], e["event"]) for e in logs}
    await bus.publish(make_gated(1))


async def provide(bus: NatsBus, spec: StreamSpec) -> list[Any]:
    with capture_logs() as logs:
        await Provision(bus._connection, Declared(ROLES, (spec,)), Access("")).ready()
    return logs


NEWER = replace(JOBS, max_age=2 * JOBS.max_age, declaration=JOBS.declaration + 1)


async def test_two_releases_do_not_undo_each_others_streams(bus: NatsBus) -> None:
    await provide(bus, NEWER)
    config = await config_of(bus)
    assert (config.max_age, (config.metadata or {})[DECLARED_AS]) == (NEWER.max_age, str(NEWER.declaration))
    left = await provide(bus, JOBS)
    assert "bus stream was declared by a newer release and is left unchanged" in {e["event"] for e in left}
    assert (await config_of(bus)).max_age == NEWER.max_age


async def test_a_stream_of_a_newer_release_has_no_drift(bus: NatsBus) -> None:
    """No restart of this release would correct it, and it is nothing to refuse the bus for."""
    await (await bus._connection.jetstream()).delete_stream(JOBS.name)
    await provide(bus, replace(NEWER, storage="memory"))
    [found] = [stream for stream in (await bus.inspect.status()).streams if stream.name == JOBS.name]
    assert found.drift == {}
    assert {entry["log_level"] for entry in await provide_again(bus)} == {"info"}


async def test_two_releases_that_start_at_once_end_with_the_newer_declaration(bus: NatsBus) -> None:
    await (await bus._connection.jetstream()).delete_stream(JOBS.name)
    await asyncio.gather(*(provide(bus, spec) for spec in (JOBS, NEWER, JOBS, NEWER)))
    assert (await config_of(bus)).max_age == NEWER.max_age


async def test_services_that_start_at_once_agree(nats_url: str) -> None:
    buses = [NatsBus(nats_url) for _ in range(4)]
    try:
        await asyncio.gather(*(bus.start() for bus in buses))
        assert await asyncio.gather(*(bus.healthy() for bus in buses)) == [True] * 4
        await asyncio.gather(*(bus.publish(make_gated(n)) for n, bus in enumerate(buses)))
        assert await provide_again(buses[0]) == []
        assert [s.messages for s in (await buses[0].inspect.status()).streams if s.name == JOBS.name] == [4]
    finally:
        await asyncio.gather(*(bus.close() for bus in buses))


async def test_streams_deleted_at_run_time_are_recreated(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    await js.delete_stream(JOBS.name)
    await js.delete_stream(f"KV_{RUNS_BUCKET}")
    await bus.publish(make_gated(1))
    with pytest.raises(NotFound):
        await bus.key_value(RUNS_BUCKET).get("a")
    assert (await bus.inspect.status()).missing == ()


async def test_a_role_that_makes_no_streams_waits_for_one_that_does(nats_url: str) -> None:
    async with bus_of(Access(nats_url, streams="assume")) as agent, bus_of(Access(nats_url)) as owner:
        with pytest.raises(Retry, match="StreamMissing"):
            await agent.publish(make_gated(1))
        with pytest.raises(Retry, match="StreamMissing"):
            await agent.key_value(RUNS_BUCKET).get("a")
        assert JOBS.name in (await agent.inspect.status()).missing
        await owner.start()
        await agent.publish(make_gated(1))
        with pytest.raises(NotFound):
            await agent.key_value(RUNS_BUCKET).get("a")


PRODUCTION: Profile = "production"


def one_replica(server: NatsServer) -> Access:
    return Access(server.url, profile=PRODUCTION, monitor_url=server.monitor_url)


async def test_production_refuses_one_replica_and_a_server_that_syncs_late(nats_server: NatsServer) -> None:
    with capture_logs() as logs:
        async with bus_of(one_replica(nats_server)) as bus:
            await bus.start()
            assert not await bus.healthy()
            with pytest.raises(Retry, match="UnsafeBus") as refused:
                await bus.publish(make_gated(1))
            assert "set nats_replicas=3" in str(refused.value)
            assert "set jetstream.sync_interval to always" in str(refused.value)
            with pytest.raises(Retry, match="UnsafeBus"):
                await bus.key_value(RUNS_BUCKET).get("a")
            assert len((await bus.inspect.status()).warnings) == 2
    assert [e["event"] for e in logs if e["log_level"] == "error"] == [
        "bus refused: acknowledged messages may be lost"
    ]


async def test_production_rechecks_and_works_once_the_server_is_safe(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "_REFUSED_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr("paddlewheel.bus.admin.durability.SAFE_REPLICAS", 1)
    async with bus_of(one_replica(nats_server)) as bus:
        assert not await bus.healthy()
        nats_server.config["jetstream"] = {"sync_interval": "always"}
        await asyncio.to_thread(nats_server.restart)
        await eventually(bus.healthy)
        await bus.publish(make_gated(1))


async def test_development_warns_once_and_works(nats_server: NatsServer) -> None:
    with capture_logs() as logs:
        async with bus_of(replace(one_replica(nats_server), profile="development")) as bus:
            await bus.start()
            await asyncio.to_thread(nats_server.restart)
            await eventually(bus.healthy)
            await bus.publish(make_gated(1))
    [said] = [e for e in logs if e["event"].startswith("bus may lose")]
    assert (said["log_level"], len(said["why"])) == ("warning", 2)


async def test_production_without_a_monitor_warns_of_unknown_durability(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.bus.admin.durability.SAFE_REPLICAS", 1)
    with capture_logs() as logs:
        async with bus_of(Access(nats_server.url, profile=PRODUCTION)) as bus:
            await bus.start()
            assert await bus.healthy()
    [said] = [e for e in logs if e["event"].startswith("bus may lose")]
    assert "nats_monitor_url is not set" in said["why"][0]


async def test_more_replicas_than_servers_are_refused_with_the_setting(nats_url: str) -> None:
    async with bus_of(Access(nats_url, replicas=3)) as bus:
        with pytest.raises(Retry, match=r"TooFewServers.*nats_replicas=3"):
            await bus.publish(make_gated(1))


async def test_a_stream_with_too_few_replicas_is_used_and_reported(bus: NatsBus, nats_url: str) -> None:
    logs = await provide_again(bus, Access(nats_url, replicas=3))
    assert {e["event"] for e in logs if e["log_level"] == "error"} == {"bus stream could not be changed"}


def with_room(server: NatsServer, size: int) -> None:
    """Restart it with so many bytes for all its streams."""
    server.config["jetstream"] = {"max_file_store": size}
    server.restart()


async def test_a_stream_without_room_on_the_server_blocks_no_other_stream(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "_REFUSED_INTERVAL_SECONDS", 0.1)
    others = sum(stream.max_bytes for stream in STREAMS if stream is not WORK)
    await asyncio.to_thread(with_room, nats_server, others)
    async with bus_of(Access(nats_server.url)) as bus:
        with capture_logs() as logs:
            await bus.start()
        await bus.publish(make_gated(1))
        assert await bus.key_value(RUNS_BUCKET).create("a", b"") == 1
        with pytest.raises(Retry, match=r"PW_WORK.*insufficient storage.*nats\.jetstream\.maxFileStore"):
            await bus.work.put(work_subject("s", "r", 0, 0), b"")
        assert not await bus.healthy()
        assert WORK.name in (await bus.inspect.status()).missing
        [said] = [entry for entry in logs if entry["log_level"] == "error"]
        assert "nats.jetstream.maxFileStore" in said["why"][0]
        await asyncio.to_thread(with_room, nats_server, 4 << 30)
        await eventually(bus.healthy)
        await bus.work.put(work_subject("s", "r", 0, 0), b"")


async def test_a_stream_that_needs_more_storage_to_be_corrected_is_used_as_it_is(
    nats_server: NatsServer,
) -> None:
    async with bus_of(Access(nats_server.url)) as bus:
        await bus.start()
        found = await config_of(bus)
        await (await bus._connection.jetstream()).update_stream(found.evolve(max_age=600.0))
        await asyncio.to_thread(with_room, nats_server, 1 << 30)
        # The server was started again, so streams in memory are created again, too.
        [warning, error] = [entry for entry in await provide_again(bus) if entry["stream"] == JOBS.name]
        assert (warning["log_level"], error["log_level"]) == ("warning", "error")
        assert "nats.jetstream.maxFileStore" in error["why"]
        await bus.publish(make_gated(1))
