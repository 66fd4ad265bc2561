"""Agents with tokens read their records through bus-auth, whatever ends meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

import pytest

from paddlewheel.bus import connect
from paddlewheel.bus.admin.set_reads import BATCH_BYTES, LARGEST_BATCH
from paddlewheel.bus.ports import Bus, Entry
from paddlewheel.bus.streams import MAX_MESSAGE, NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import NodeMounted
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.bus_auth import BusAuthStand
from paddlewheel.testkit.wait import eventually, patiently

FLOOD = 3000
"""Batches of one agent at once, more than bus-auth keeps, and more work than another's read waits for."""


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


@asynccontextmanager
async def agent(stand: BusAuthStand, namespace: str = "") -> AsyncIterator[tuple[Bus, str]]:
    """An agent of a data set, and the set's uid."""
    owner, _, token = await stand.agent(namespace or stand.home)
    bus = await connect(stand.access("cache-runtime", token).for_set(uid_of(owner)), name="agent")
    try:
        yield bus, uid_of(owner)
    finally:
        await bus.close()


@asynccontextmanager
async def operating(stand: BusAuthStand) -> AsyncIterator[Bus]:
    """Whoever may write everything; it was let in before the block runs."""
    bus = await connect(stand.access("operator", await stand.allow_role("operator")), name="operator")
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def following(bus: Bus, pattern: str) -> AsyncIterator[dict[str, bytes | None]]:
    """The records of runs as a watch has told of them, for as long as the block runs."""
    known: dict[str, bytes | None] = {}

    async def follow() -> None:
        async with aclosing(bus.key_value(RUNS_BUCKET).watch(pattern)) as entries:
            async for entry in entries:
                if entry is not None:
                    known[entry.key] = entry.value

    task = asyncio.create_task(follow())
    try:
        yield known
    finally:
        await end(task)


def make_mounted(namespace: str, uid: str) -> Event:
    """A fact with the id that all of them have."""
    fact = NodeMounted(set_namespace=namespace, set_name="digits", set_uid=uid, partition=0, node="node")
    return make_event(
        fact, id="0/mounted", source="test", namespace=namespace, uid=uid, time=datetime.now(UTC)
    )


def make_progressed(namespace: str, uid: str) -> Event:
    """A fact that may be lost."""
    fact = RunProgressed(set_namespace=namespace, set_name="digits", set_uid=uid)
    return make_event(
        fact, id=f"{uid}/run/1", source="test", namespace=namespace, uid=uid, time=datetime.now(UTC)
    )


async def test_an_agent_creates_changes_and_finds_its_records(stand: BusAuthStand) -> None:
    async with stand.installed(), agent(stand) as (bus, uid):
        records, key = bus.key_value(RUNS_BUCKET), f"{uid}.run.state"
        with pytest.raises(NotFound):
            await records.get(key)
        first = await records.create(key, b"1")
        with pytest.raises(AlreadyExists):
            await records.create(key, b"1")
        second = await records.update(key, b"2", first)
        with pytest.raises(Conflict):
            await records.update(key, b"3", first)

        assert (await records.get(key)) == Entry(key, b"2", second)
        await records.delete(key)
        with pytest.raises(NotFound):
            await records.get(key)
        assert await records.entries(f"{uid}.>") == []
        assert await records.create(key, b"4") > second


async def test_more_records_than_one_answer_holds_are_all_found(stand: BusAuthStand) -> None:
    many, size = LARGEST_BATCH + 44, 9000
    assert many * size > 4 * BATCH_BYTES
    async with stand.installed(), agent(stand) as (bus, uid):
        nodes = bus.key_value(NODES_BUCKET)
        await asyncio.gather(*(nodes.put(f"{uid}.{n}", b"x" * size) for n in range(many)))

        found = await nodes.entries(f"{uid}.>")

        assert sorted(entry.key for entry in found) == sorted(f"{uid}.{n}" for n in range(many))
        assert {len(entry.value or b"") for entry in found} == {size}


async def test_records_larger_than_any_answer_are_found_and_one_that_cannot_be_told_is_refused(
    stand: BusAuthStand,
) -> None:
    large, largest = b"x" * (MAX_MESSAGE * 3 // 4), b"x" * (MAX_MESSAGE - 200)
    assert len(large) > BATCH_BYTES
    async with stand.installed(), agent(stand) as (bus, uid), operating(stand) as operator:
        records = bus.key_value(RUNS_BUCKET)
        written = {f"{uid}.a.state": large, f"{uid}.b.state": largest, f"{uid}.c.state": b"c"}
        for key, value in written.items():
            await operator.key_value(RUNS_BUCKET).put(key, value)

        assert {entry.key: entry.value for entry in await records.entries(f"{uid}.>")} == written
        assert (await records.get(f"{uid}.a.state")).value == large
        with pytest.raises(Retry, match="too large"):
            await records.get(f"{uid}.b.state")


async def test_an_agent_follows_its_records_while_bus_auth_is_killed(own_stand: BusAuthStand) -> None:
    async with own_stand.installed(), agent(own_stand) as (bus, uid):
        records = bus.key_value(RUNS_BUCKET)
        async with following(bus, f"{uid}.*.state") as known:
            await records.put(f"{uid}.a.state", b"1")
            await eventually(lambda: known == {f"{uid}.a.state": b"1"})
            await own_stand.stop()

            async def is_noticed() -> bool:
                """The server has not seen the end of its connection at once."""
                with pytest.raises(Retry) as refused:
                    await records.put(f"{uid}.b.state", b"2")
                return "bus-auth does not run" in str(refused.value)

            await eventually(is_noticed)
            with pytest.raises(Retry):
                await records.get(f"{uid}.b.state")
            await own_stand.start()
            await patiently(lambda: records.create(f"{uid}.b.state", b"2"))

            await eventually(lambda: known == {f"{uid}.a.state": b"1", f"{uid}.b.state": b"2"})
            assert (await records.get(f"{uid}.b.state")).value == b"2"


# A server that does not answer leaves nats-py's half-open connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_agent_follows_its_records_while_the_server_is_killed(own_stand: BusAuthStand) -> None:
    async with own_stand.installed(), agent(own_stand) as (bus, uid):
        records = bus.key_value(RUNS_BUCKET)
        async with following(bus, f"{uid}.*.state") as known:
            await records.put(f"{uid}.a.state", b"1")
            await eventually(lambda: known == {f"{uid}.a.state": b"1"})
            assert own_stand.bus.process is not None
            own_stand.bus.process.kill()
            own_stand.bus.process.wait(60)
            own_stand.bus.start()
            await patiently(lambda: records.put(f"{uid}.b.state", b"2"))

            await eventually(lambda: known == {f"{uid}.a.state": b"1", f"{uid}.b.state": b"2"})


@pytest.mark.long
async def test_a_bus_auth_that_does_not_answer_makes_agents_try_again(own_stand: BusAuthStand) -> None:
    async with own_stand.installed(), agent(own_stand) as (bus, uid), operating(own_stand) as operator:
        records = bus.key_value(RUNS_BUCKET)
        async with following(bus, f"{uid}.*.state") as known:
            await records.put(f"{uid}.a.state", b"1")
            await eventually(lambda: known == {f"{uid}.a.state": b"1"})
            assert own_stand.service is not None
            os.kill(own_stand.service.pid, signal.SIGSTOP)
            try:
                await operator.key_value(RUNS_BUCKET).put(f"{uid}.a.state", b"2")
                with pytest.raises(Retry):
                    await records.get(f"{uid}.a.state")
                with pytest.raises(Unavailable):
                    await records.create(f"{uid}.a.state", b"3")
            finally:
                os.kill(own_stand.service.pid, signal.SIGCONT)

            await eventually(lambda: known == {f"{uid}.a.state": b"2"})


async def test_a_repeated_fact_is_known_and_one_with_the_id_of_another_sets_waits(
    stand: BusAuthStand,
) -> None:
    other = await stand.namespace()
    async with stand.installed(), agent(stand) as (mine, me), agent(stand, other) as (theirs, they):
        for _ in range(2):
            await mine.publish(make_mounted(stand.home, me))
            # Of which nothing can be looked up, and nothing has to be.
            await mine.publish(make_progressed(stand.home, me))

        with pytest.raises(Retry, match="IdTaken"):
            await theirs.publish(make_mounted(other, they))


async def test_attack_one_sets_flood_of_reads_keeps_another_from_entering_or_reading(
    own_stand: BusAuthStand,
) -> None:
    owner, _, token = await own_stand.agent(own_stand.home)
    access = own_stand.access("cache-runtime", token).for_set(uid_of(owner))
    subject = f"{access.api_prefix}.DIRECT.GET.KV_{RUNS_BUCKET}"
    wanted = {"batch": LARGEST_BATCH, "next_by_subj": f"$KV.{RUNS_BUCKET}.{uid_of(owner)}.>", "seq": 1}
    body = json.dumps(wanted).encode()
    third = await own_stand.namespace()
    async with own_stand.installed(), agent(own_stand, await own_stand.namespace()) as (bus, uid):
        records = bus.key_value(RUNS_BUCKET)
        await records.put(f"{uid}.run.state", b"1")
        async with own_stand.enter("cache-runtime", token, prefix=access.inbox_prefix) as flooding:
            for number in range(LARGEST_BATCH):
                key = f"$KV.{RUNS_BUCKET}.{uid_of(owner)}.{number}.state"
                await flooding.client.request(f"{access.write_prefix}.{key}", b"x", timeout=60)
            for _ in range(FLOOD):
                await flooding.client.publish(subject, body, reply=flooding.client.new_inbox())

            assert (await records.get(f"{uid}.run.state")).value == b"1"
            async with agent(own_stand, third) as (newcomer, own):
                with pytest.raises(NotFound):
                    await newcomer.key_value(RUNS_BUCKET).get(f"{own}.run.state")
