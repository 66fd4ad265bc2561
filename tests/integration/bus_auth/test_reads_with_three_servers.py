"""Agents, bus-auth's replicas and the stream's leader are at different servers, one of which dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.accounts import HOME, READER, server_accounts
from paddlewheel.bus.admin.permissions import AGENT, OPERATOR, inbox_prefix, permissions_of, role_named
from paddlewheel.bus.admin.rights import SetReference, agent_inbox, within_set
from paddlewheel.bus.admin.set_reads import read_api
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.set_reader import SetReader
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsCluster, NatsServer
from paddlewheel.testkit.wait import eventually, patiently

MINE = SetReference("team-a", "uid-a")
RECORDS = 40


def configuration() -> dict[str, Any]:
    """The chart's accounts, with passwords in place of what bus-auth grants."""
    accounts = {name: {**account, "users": []} for name, account in server_accounts().items()}
    may = {
        AGENT: within_set(permissions_of(role_named(AGENT)), MINE),
        HOME: permissions_of(role_named(OPERATOR)),
    }
    for name in (AGENT, HOME, READER):
        user: dict[str, Any] = {"user": name, "password": "x"}
        accounts[name]["users"] = [user]
        if name in may:
            user["permissions"] = may[name].as_config()
    return {"accounts": accounts, "system_account": "SYS"}


def access(server: NatsServer, name: str, **changes: Any) -> Access:
    url = server.url.replace("nats://", f"nats://{name}:x@")
    return Access(url, **{"streams": "assume", "reads": "directly", **changes})


@asynccontextmanager
async def reading(server: NatsServer) -> AsyncIterator[None]:
    """A replica of bus-auth's reader."""
    reader = SetReader(access(server, READER), SystemClock(), lambda _: None, name="reader")
    task = asyncio.create_task(reader.run())

    async def is_ready() -> bool:
        return await reader.is_ready() is True

    try:
        await eventually(is_ready)
        yield
    finally:
        await end(task)


@asynccontextmanager
async def following(server: NatsServer) -> AsyncIterator[dict[str, bytes | None]]:
    """What an agent at that server has heard of its set's states."""
    narrowed = {"inbox_prefix": agent_inbox(MINE.uid), "api_prefix": read_api(MINE.uid)}
    bus, known = NatsBus(access(server, AGENT, **narrowed)), dict[str, bytes | None]()

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


async def test_agents_of_every_server_follow_their_records_while_servers_die(tmp_path: Path) -> None:
    cluster = NatsCluster(tmp_path, configuration())
    first, second, third = cluster.servers.values()
    try:
        cluster.start()
        async with AsyncExitStack() as ends:
            makes = {"streams": "make", "replicas": 3, "inbox_prefix": inbox_prefix(OPERATOR)}
            writer = NatsBus(access(third, HOME, **makes))
            ends.push_async_callback(writer.close)
            await patiently(writer.install, within=60)
            for server in (first, second):
                await ends.enter_async_context(reading(server))
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
