"""What an agent tries on other tenants' data sets, where it shows a token: it has the rights of one set."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import nats.errors
from nats.js.errors import Error as JetStreamError

from paddlewheel.bus.admin.permissions import AGENT
from paddlewheel.bus.admin.rights import Identity, SetReference, agent_inbox, rights
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET, STREAMS
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.testkit.bus_auth import VALUES, answering
from paddlewheel.testkit.chart_bus import BUS_CA, PATIENCE, ChartBus, Guest, entering, running

SETS = {"mine": SetReference("team-a", "uid-a"), "theirs": SetReference("team-b", "uid-b")}
"""Data set of each token. Whose a token really is, the API server says in tests/integration/bus_auth."""
THEIRS = SETS["theirs"]


@dataclass
class Tenants:
    """A server with tokens, and two tenants on it."""

    bus: ChartBus
    ends: AsyncExitStack

    async def enter(self, role: str, token: str, inbox: str) -> Guest:
        """A client that shows a token, until the attack is over."""
        folder = self.bus.folder / BUS_CA
        client = entering(self.bus, folder, prefix=inbox, user=role, password=token)
        return await self.ends.enter_async_context(client)

    async def agent(self, of: str) -> Guest:
        """Of one of `SETS`."""
        return await self.enter(AGENT, of, agent_inbox(SETS[of].uid))

    async def operator(self) -> Guest:
        """Sees everything."""
        return await self.enter("operator", "", "_INBOX_operator")

    async def stored(self, subject: str) -> bool:
        """Whether some stream holds a message on the subject."""
        js = (await self.operator()).client.jetstream(timeout=PATIENCE)
        for stream in await js.streams_info():
            with suppress(JetStreamError):
                await js.get_last_msg(stream.config.name or "", subject)
                return True
        return False


Run = Callable[[Tenants, Guest], Awaitable[bool]]


def storing(subject: str) -> Run:
    """Publish on a subject of the other set, in the ways there are."""

    async def run(tenants: Tenants, mine: Guest) -> bool:
        for headers in (None, {"Nats-Rollup": "sub"}):
            with suppress(nats.errors.Error):
                await mine.client.publish(subject, b"forged", headers=headers)
        # By a request whose answer goes there.
        with suppress(nats.errors.Error):
            await mine.client.publish("$JS.API.INFO", b"", reply=subject)
        await mine.client.flush()
        return await tenants.stored(subject)

    return run


async def listening(tenants: Tenants, mine: Guest) -> bool:
    """Hear what another set's agent is answered."""
    heard: list[str] = []

    async def note(msg: object) -> None:
        heard.append(str(msg))

    for subject in (f"{agent_inbox(THEIRS.uid)}.>", "_INBOX_cache-runtime.>", "_INBOX.>", ">"):
        await mine.client.subscribe(subject, cb=note)
    await mine.client.flush()
    theirs = await tenants.agent("theirs")
    assert await theirs.ask("$JS.API.INFO"), "the other agent has no working connection"
    await mine.client.flush()
    return bool(heard)


ATTACKS: dict[str, Run] = {
    "agent ends a run of another tenant's set": storing(f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.state"),
    "agent reports progress of another tenant's set": storing(f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.part-0"),
    "agent starts a run of its own set": storing(f"$KV.{RUNS_BUCKET}.{SETS['mine'].uid}.run.spec"),
    "agent reports a node of another tenant's set": storing(f"$KV.{NODES_BUCKET}.{THEIRS.uid}.0"),
    "agent puts a chunk into a removal of another tenant's set": storing(work_subject(THEIRS.uid, "run", 0)),
    "agent tells the end of a run of another tenant's set": storing(
        f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{THEIRS.uid}"
    ),
    "agent tells facts of its own uid in another namespace": storing(
        f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{SETS['mine'].uid}"
    ),
    "agent hears what another tenant's agent is answered": listening,
}


async def authorize(asking: Asking) -> Grant:
    """Agents by their token, everybody else as what he asks for."""
    own = SETS[asking.token] if asking.role == AGENT else None
    return Grant(asking.role, *rights(Identity(asking.role, set=own)), int(time.time()) + 600)


@asynccontextmanager
async def tenants(folder: Path) -> AsyncIterator[Tenants]:
    """The chart's server with tokens, and every stream."""
    with running(folder / "bus", *VALUES) as bus:
        async with answering(bus, authorize), AsyncExitStack() as ends:
            made = Tenants(bus, ends)
            js = (await made.operator()).client.jetstream(timeout=PATIENCE)
            for spec in STREAMS:
                await js.add_stream(name=spec.name, subjects=list(spec.subjects), allow_direct=True)
            yield made


async def attempt(run: Run, made: Tenants) -> bool:
    """Whether it did harm. Raises AssertionError when the attacker cannot even do its own work."""
    mine = await made.agent("mine")
    harmed = await run(made, mine)
    own = f"$KV.{NODES_BUCKET}.{SETS['mine'].uid}.0"
    await mine.client.publish(own, b"own")
    await mine.client.flush()
    assert await made.stored(own), "the attacker has no working connection"
    return harmed
