"""Agents, bus-auth's replicas and the stream's leader are at different servers, one of which dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from paddlewheel.bus.admin.accounts import HOME
from paddlewheel.bus.admin.permissions import OPERATOR, inbox_prefix
from paddlewheel.bus.admin.rights import SetReference
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.core.tasks import end
from paddlewheel.testkit.agents_bus import access, agents_access, configuration, reading, writing
from paddlewheel.testkit.nats import NatsCluster, NatsServer
from paddlewheel.testkit.wait import eventually, patiently

pytestmark = pytest.mark.long

MINE = SetReference("team-a", "uid-a")
RECORDS = 40


@asynccontextmanager
async def following(server: NatsServer) -> AsyncIterator[dict[str, bytes | None]]:
    """What an agent at that server has heard of its set's states."""
    bus, known = NatsBus(agents_access(server, MINE)), dict[str, bytes | None]()

    async def follow() -> None:
        async with aclosing(bus.key_value(RUNS_BUCKET).watch(f"{MINE.uid}.*.state")) as entries:
            async for entry in entries:
                if entry is not None:
                    known[entry.key] = entry.value

    task = asyncio.create_task(follow())
    try:
        yield known
    finally:
        await end(task)
        await bus.close()


async def test_agents_of_every_server_write_and_follow_their_records_while_servers_die(
    tmp_path: Path,
) -> None:
    cluster = NatsCluster(tmp_path, configuration(MINE))
    first, second, third = cluster.servers.values()
    try:
        cluster.start()
        async with AsyncExitStack() as ends:
            makes = {"streams": "make", "replicas": 3, "inbox_prefix": inbox_prefix(OPERATOR)}
            operator, writer = NatsBus(access(third, HOME, **makes)), NatsBus(agents_access(third, MINE))
            for bus in (operator, writer):
                ends.push_async_callback(bus.close)
            await patiently(operator.install, within=60)
            for server in (first, second):
                await ends.enter_async_context(reading(server))
                await ends.enter_async_context(writing(server))
            heard = [await ends.enter_async_context(following(each)) for each in (first, second, third)]
            expected: dict[str, bytes | None] = {}
            for number in range(RECORDS):
                key, value = f"{MINE.uid}.run-{number}.state", str(number).encode()
                await patiently(partial(writer.key_value(RUNS_BUCKET).put, key, value))
                expected[key] = value
                if number == RECORDS // 2:
                    await eventually(lambda: all(known == expected for known in heard))
                    first.kill()

            await eventually(lambda: heard[1] == heard[2] == expected)
            first.start()
            await eventually(lambda: heard[0] == expected)
    finally:
        cluster.stop()
