"""What a set has used up of its share, and what becomes free again: a real server, the chart's accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from paddlewheel.bus.admin.accounts import HOME
from paddlewheel.bus.admin.permissions import OPERATOR, inbox_prefix
from paddlewheel.bus.admin.rights import SetReference
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.streams import BUS_FULL, NODES, NODES_BUCKET, RUNS, RUNS_BUCKET, WORK
from paddlewheel.contracts.subjects import work_filter, work_subject
from paddlewheel.core.errors import Conflict, Permanent, Retry, Unavailable
from paddlewheel.testkit.agents_bus import access, agents_access, configuration, reading, writing
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import patiently

MINE = SetReference("team-a", "uid-a")
CHUNKS = [work_subject(MINE.uid, "run", 0, number) for number in range(12)]
LARGE = bytes(9_500)
QUOTAS = {RUNS.name: 100_000, NODES.name: 100_000, WORK.name: 100_000}
"""Room for ten chunks that are `LARGE`."""


@dataclass
class Scene:
    """A server, an agent, and whoever may do everything."""

    server: NatsServer
    agent: NatsBus
    operator: NatsBus
    js: JetStreamContext


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = NatsServer(tmp_path, configuration(MINE))
    server.start()
    may = access(server, HOME, streams="make", replicas=1, inbox_prefix=inbox_prefix(OPERATOR))
    operator, agent, trusted = NatsBus(may), NatsBus(agents_access(server, MINE)), Connection(may, "trusted")
    try:
        await patiently(operator.install)
        async with reading(server):
            yield Scene(server, agent, operator, await trusted.jetstream())
    finally:
        for each in (trusted, agent, operator):
            await each.close()
        server.stop()


async def fill(scene: Scene) -> None:
    """Until nothing is taken any more."""
    for chunk in CHUNKS[:10]:
        await scene.agent.work.put(chunk, LARGE)
    with pytest.raises(Retry, match=BUS_FULL):
        await scene.agent.work.put(CHUNKS[10], LARGE)


async def test_a_chunk_that_is_done_makes_room_for_the_next(scene: Scene) -> None:
    async with writing(scene.server, QUOTAS):
        await fill(scene)

        await scene.agent.work.drop(CHUNKS[0])
        await scene.agent.work.put(CHUNKS[10], LARGE)
        with pytest.raises(Retry, match="one data set"):
            await scene.agent.work.put(CHUNKS[11], LARGE)
        # What is published again takes the place of what is there.
        await scene.agent.work.put(CHUNKS[10], LARGE)


async def test_what_the_installer_removes_makes_room_as_well(scene: Scene) -> None:
    async with writing(scene.server, QUOTAS):
        await fill(scene)

        await scene.agent.work.purge(work_filter(MINE.uid, "run"))
        await patiently(lambda: scene.agent.work.put(CHUNKS[10], LARGE))


async def test_what_another_replica_has_stored_counts_once_the_stream_is_asked(scene: Scene) -> None:
    async with writing(scene.server, QUOTAS):
        await fill(scene)
    async with writing(scene.server, QUOTAS):
        # A share of the one that has ended: the bound is a share for each replica, and each start.
        other, third = ([work_subject(MINE.uid, run, 0, n) for n in range(12)] for run in ("other", "third"))
        for chunk in other[:10]:
            await scene.agent.work.put(chunk, LARGE)
        with pytest.raises(Retry, match=BUS_FULL):
            await scene.agent.work.put(other[10], LARGE)

        await scene.agent.work.purge(work_filter(MINE.uid, "other"))
        await patiently(lambda: scene.agent.work.put(third[0], LARGE))
        for chunk in third[1:9]:
            await scene.agent.work.put(chunk, LARGE)
        with pytest.raises(Retry, match=BUS_FULL):
            await scene.agent.work.put(third[9], LARGE)


async def test_a_stream_that_is_full_says_so_itself(scene: Scene) -> None:
    config = (await scene.js.stream_info(NODES.name)).config
    await scene.js.update_stream(config.evolve(max_bytes=2_000))
    async with writing(scene.server):
        with pytest.raises(Retry, match=BUS_FULL) as refused:
            await scene.agent.key_value(NODES_BUCKET).put(f"{MINE.uid}.0", bytes(4_000))

    assert "one data set" not in refused.value.message


async def test_what_is_too_large_is_refused_for_good(scene: Scene) -> None:
    async with writing(scene.server):
        with pytest.raises(Permanent, match="TooLarge"):
            await scene.agent.key_value(NODES_BUCKET).put(f"{MINE.uid}.0", bytes(17 * 1024))
        with pytest.raises(Permanent, match="TooLarge"):
            await scene.agent.key_value(RUNS_BUCKET).put(f"{MINE.uid}.run.state", bytes(641 * 1024))


async def test_without_bus_auth_nothing_is_stored(scene: Scene) -> None:
    with pytest.raises(Retry, match="bus-auth does not run") as refused:
        await scene.agent.work.put(CHUNKS[0], b"x")

    assert not isinstance(refused.value, Unavailable)


async def test_without_their_stream_records_are_missing_it(scene: Scene) -> None:
    await scene.js.delete_stream(RUNS.name)
    async with writing(scene.server):
        with pytest.raises(Retry, match="no stream takes it now"):
            await scene.agent.key_value(RUNS_BUCKET).put(f"{MINE.uid}.run.state", b"x")


async def test_what_is_not_acknowledged_is_written_once_and_nobody_knows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream has stored it: to believe it was not would be wrong."""
    ask, asked = Client.ask, list[str]()

    async def unheard(client: Client, subject: str, *args: object, **options: object) -> object:
        found = await ask(client, subject, *args, **options)  # type: ignore[arg-type]
        if subject.startswith("$KV."):
            asked.append(subject)
            raise Unavailable("BusUnreachable", "no answer in time")
        return found

    records, key = scene.agent.key_value(RUNS_BUCKET), f"{MINE.uid}.run.state"
    async with writing(scene.server):
        with monkeypatch.context() as patched:
            patched.setattr(Client, "ask", unheard)
            with pytest.raises(Unavailable, match="not known to be stored"):
                await records.create(key, b"1")

        assert asked == [f"$KV.{RUNS_BUCKET}.{key}"]
        assert (await records.get(key)).value == b"1"


async def test_one_of_many_agents_wins_a_record(scene: Scene) -> None:
    records, key = scene.agent.key_value(RUNS_BUCKET), f"{MINE.uid}.run.state"
    async with writing(scene.server), writing(scene.server):
        first = await records.create(key, b"0")
        written = await asyncio.gather(
            *(records.update(key, b"%d" % number, first) for number in range(20)), return_exceptions=True
        )

    assert sum(isinstance(each, Conflict) for each in written) == 19
