"""An agent has what it reads answered on the subject of another set's fact, at three servers."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from paddlewheel.bus.admin.accounts import HOME, WATCHERS
from paddlewheel.bus.admin.permissions import AGENT, OPERATOR, inbox_prefix, work_reads
from paddlewheel.bus.admin.rights import SetReference, agent_inbox
from paddlewheel.bus.nats import NatsBus
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.testkit.agents_bus import access, agents_access, configuration, writing
from paddlewheel.testkit.bare_client import BareClient, connect
from paddlewheel.testkit.nats import NatsCluster, NatsServer
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually, patiently

MINE, THEIRS = SetReference("team-a", "uid-a"), SetReference("team-b", "uid-b")
FACTS = (
    "pw.evt.cache.run.ended.v1.{0.namespace}.{0.uid}",
    "pw.evt.cacheprogress.run.progressed.v1.{0.namespace}.{0.uid}",
)
HEARD = "pw.evt.>"
CHUNK = work_subject(MINE.uid, "run", 0, 0)


def watched() -> dict[str, Any]:
    """The chart's accounts, and a watcher of all namespaces."""
    found = configuration(MINE)
    permissions = {"subscribe": {"allow": [HEARD]}, "publish": {"deny": [">"]}}
    found["accounts"][WATCHERS]["users"] = [{"user": WATCHERS, "password": "x", "permissions": permissions}]
    return found


async def connected(server: NatsServer, name: str, ends: AsyncExitStack) -> BareClient:
    client = await connect(server.url, user=name, password="x", inbox_prefix=agent_inbox(MINE.uid))
    ends.push_async_callback(client.close)
    return client


async def heard_at(server: NatsServer, ends: AsyncExitStack) -> list[tuple[str, bytes]]:
    """Subject and content of what a watcher hears there from now on."""
    client, heard = await connected(server, WATCHERS, ends), list[tuple[str, bytes]]()

    async def note(msg: Any) -> None:
        heard.append((msg.subject, msg.data))

    await client.subscribe(HEARD, cb=note)
    await client.flush()
    return heard


@pytest.mark.parametrize("fact", long_after(1, FACTS))
async def test_attack_watchers_hear_a_fact_that_nobody_published(fact: str, tmp_path: Path) -> None:
    cluster = NatsCluster(tmp_path, watched())
    first, second, third = cluster.servers.values()
    try:
        cluster.start()
        async with AsyncExitStack() as ends:
            makes = {"streams": "make", "replicas": 3, "inbox_prefix": inbox_prefix(OPERATOR)}
            operator, writer = NatsBus(access(third, HOME, **makes)), NatsBus(agents_access(first, MINE))
            for bus in (operator, writer):
                ends.push_async_callback(bus.close)
            await patiently(operator.install, within=60)
            await ends.enter_async_context(writing(second))
            agent = await connected(first, AGENT, ends)
            heard = [await heard_at(each, ends) for each in (first, second, third)]
            own, theirs = fact.format(MINE), fact.format(THEIRS)
            # Interest spreads among the servers: from now on all hear what is published.
            await eventually(partial(is_heard_by_all, agent, own, heard))

            await patiently(partial(writer.work.put, CHUNK, b"forged"))
            reads = [work_reads(CHUNK), f"{work_reads(CHUNK)}x", "$JS.API.INFO"]
            for subject in (*reads, own):
                await agent.publish(subject, b"", reply=theirs)
            answer = await agent.request(work_reads(CHUNK), b"", timeout=60)
            assert answer.data == b"forged", "the attacker cannot read its own work"
            await agent.request(own, b"last", timeout=60)
            await eventually(lambda: all((own, b"last") in each for each in heard))

            assert {subject for each in heard for subject, _ in each} == {own}
    finally:
        cluster.stop()


async def is_heard_by_all(agent: BareClient, own: str, heard: list[list[tuple[str, bytes]]]) -> bool:
    # A stream that was just made may have no leader yet.
    with suppress(nats.errors.Error):
        await agent.request(own, b"first", timeout=1)
    return all(heard)
