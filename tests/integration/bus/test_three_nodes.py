"""Three joined servers, the stream's leader killed with -9 again and again: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sized
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs
from tests.integration.bus.suite import bus_of, running

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, provision
from paddlewheel.bus.ports import Delivery, Reading, Subscription
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET, STREAMS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsCluster
from paddlewheel.testkit.wait import eventually, patiently

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ALL_JOBS = Subscription("three-nodes", JOBS.name, (event_filter("jobs"),), ack_wait=2.0)
OBJECTS = 8
KILLS = 3
PER_KILL = 40


def make_spread(number: int) -> Event:
    """Facts of `OBJECTS` objects in turn."""
    return make_gated(number, f"uid-{number % OBJECTS}")


@pytest.fixture
async def bus(nats_cluster: NatsCluster) -> AsyncIterator[NatsBus]:
    async with bus_of(Access(nats_cluster.url, replicas=3)) as bus:
        await eventually(bus.healthy)
        yield bus


@asynccontextmanager
async def provided(access: Access) -> AsyncIterator[None]:
    """With all streams on all servers."""
    async with bus_of(access) as bus:
        await eventually(bus.healthy)
        yield


class Telling:
    """Publishes facts one after the other until ended; each is tried until it is acknowledged."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self.acknowledged: list[str] = []

    async def run(self) -> None:
        number = 0
        while True:
            await self._tell(make_spread(number))
            number += 1
            await asyncio.sleep(0.005)

    async def _tell(self, event: Event) -> None:
        while True:
            try:
                await self._bus.publish(event)
            except Retry:
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.append(event.id)
                return


async def grown(collection: Sized, size: int) -> None:
    await eventually(lambda: len(collection) >= size)


async def kill_leader(cluster: NatsCluster, stream: str) -> None:
    server = await eventually(lambda: cluster.leader_of(stream))
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.launch)


async def stored(bus: NatsBus) -> int:
    """How many facts the stream holds; 0 while it has no leader."""
    try:
        return next(s.messages for s in (await bus.inspect.status()).streams if s.name == JOBS.name)
    except Retry:
        return 0


async def test_the_leader_is_killed_and_no_acknowledged_fact_is_lost(
    nats_cluster: NatsCluster, bus: NatsBus
) -> None:
    telling = Telling(bus)
    handled: Counter[str] = Counter()
    seen: list[str] = []

    async def handle(delivery: Delivery) -> None:
        handled[delivery.event.id] += 1

    async def follow() -> None:
        async with aclosing(bus.read(Reading(("pw.evt.jobs.>",), datetime(2020, 1, 1, tzinfo=UTC)))) as tail:
            async for delivery in tail:
                seen.append(delivery.event.id)

    async with running(bus.consume(ALL_JOBS, handle), follow()):
        async with running(telling.run()):
            for _ in range(KILLS):
                told = len(telling.acknowledged)
                await grown(telling.acknowledged, told + PER_KILL)
                await kill_leader(nats_cluster, JOBS.name)
            # No call hangs.
            await grown(telling.acknowledged, len(telling.acknowledged) + PER_KILL)
        await asyncio.to_thread(nats_cluster.wait_healthy)
        await eventually(lambda: set(telling.acknowledged) <= set(handled))
        await eventually(lambda: set(telling.acknowledged) <= set(seen))

        async def is_all_seen() -> bool:
            return await stored(bus) == len(seen)

        # The last one may be stored without having been acknowledged.
        await eventually(is_all_seen, what="all that is stored")
    assert Counter(seen) == Counter(set(seen)), "a fact is stored twice"


async def test_a_bucket_survives_its_leader(nats_cluster: NatsCluster, bus: NatsBus) -> None:
    kv = bus.key_value(RUNS_BUCKET)
    revision = await patiently(lambda: kv.put("s.a", b"1"))  # a second `create` would meet the first one's
    await kill_leader(nats_cluster, f"KV_{RUNS_BUCKET}")

    entry = await patiently(lambda: kv.get("s.a"))

    assert (entry.value, entry.revision) == (b"1", revision)


async def test_every_stream_has_three_replicas_and_is_safe_when_it_syncs(nats_cluster: NatsCluster) -> None:
    for server in nats_cluster.servers.values():
        server.config["jetstream"] = {"sync_interval": "always"}
    await asyncio.to_thread(nats_cluster.stop)
    await asyncio.to_thread(nats_cluster.start)
    access = Access(nats_cluster.url, replicas=3, profile="production", monitor_url=nats_cluster.monitor_url)
    async with bus_of(access) as bus:
        await eventually(bus.healthy)
        await patiently(lambda: bus.publish(make_spread(1)))

        async def is_safe() -> bool:
            status = await bus.inspect.status()
            assert {s.name: s.replicas for s in status.streams} == {s.name: 3 for s in STREAMS}
            assert status.warnings == ()
            return True

        await eventually(is_safe)


async def test_a_server_that_is_away_is_unknown_and_found_when_it_is_back_and_syncs_late(
    nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "_MONITOR_INTERVAL_SECONDS", 0.5)
    for server in nats_cluster.servers.values():
        server.config["jetstream"] = {"sync_interval": "always"}
    await asyncio.to_thread(nats_cluster.stop)
    await asyncio.to_thread(nats_cluster.start)
    *others, last = nats_cluster.servers.values()
    urls = ",".join(server.url for server in others)
    access = Access(urls, replicas=3, profile="production", monitor_url=nats_cluster.monitor_url)
    async with provided(access):
        await asyncio.to_thread(last.kill)
    bus = NatsBus(access)
    try:
        with capture_logs() as logs:
            await eventually(bus.healthy)
            await patiently(lambda: bus.publish(make_spread(1)))
            await eventually(bus.healthy)

            def doubts() -> list[str]:
                return [why for entry in logs if entry["event"].startswith("bus may") for why in entry["why"]]

            [doubt] = await eventually(doubts)
        assert doubt.startswith(f"{last.monitor_url}: no answer")

        last.config["jetstream"] = {"sync_interval": "2m"}
        await asyncio.to_thread(last.start)

        async def refused() -> str:
            await bus.healthy()
            try:
                await bus.publish(make_spread(2))
            except Retry as error:
                return str(error) if error.reason == "UnsafeBus" else ""
            return ""

        why = await eventually(refused, what="the lazy server is found")
        assert f"{last.monitor_url} (every 120 s)" in why
        assert all(server.monitor_url not in why for server in others)
    finally:
        await bus.close()


async def test_streams_grow_to_more_replicas_while_they_run(nats_cluster: NatsCluster) -> None:
    narrow = NatsBus(Access(nats_cluster.url))
    wide = NatsBus(replace(Access(nats_cluster.url), replicas=3))
    try:
        await eventually(narrow.healthy)
        await patiently(lambda: narrow.publish(make_spread(1)))
        await eventually(wide.healthy)

        async def are_wide() -> bool:
            return {s.replicas for s in (await wide.inspect.status()).streams} == {3}

        await eventually(are_wide)
        assert await eventually(lambda: stored(wide)) == 1
        narrow._provision.forget()
        await eventually(narrow.healthy)
        await eventually(are_wide)
    finally:
        await narrow.close()
        await wide.close()
