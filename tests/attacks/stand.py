"""What an attack is tried on: the chart's server with everything installed, and how harm shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from paddlewheel.bus.admin.teams import Team
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    ChartBus,
    Guest,
    guest,
    installing,
    sweep,
)

API = "$JS.API"
Harm = bool | Mapping[str, bool]
"""Whether an attack did harm; of one that has parts, each part by name."""
EFFECT_WITHIN = 1.0
"""Seconds that an attack has for its effect after everything it asked for was answered."""
FACT = "pw.evt.datasets.sampleset.ready.v1.ns.uid"
REBUILD = "pw.cmd.job-controller.rebuild.v1"
SERVICES = (
    "nats.services[0].name=notebooks",
    "nats.services[0].publishes[0].context=notebooks",
    "nats.services[0].follows={jobs,datasets}",
    "nats.services[1].name=reports",
    "nats.services[1].publishes[0].context=reports",
    "nats.services[1].follows={notebooks}",
)
"""Services of others."""
VICTIM = ("PW_DATASETS", "trigger-controller-datasets")
"""A durable of trigger-controller."""


@dataclass
class Stand:
    """A server with everything installed, for one attack."""

    bus: ChartBus
    operator: Guest
    js: JetStreamContext
    ends: AsyncExitStack = field(repr=False)

    async def enter(self, role: str) -> Guest:
        """A client of a role, until the attack is over."""
        return await self.ends.enter_async_context(guest(self.bus, role))

    async def publish(self, role: str, subject: str, data: bytes = b"{}") -> None:
        """As the role that owns the subject does, acknowledged."""
        client = await self.enter(role)
        await client.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS).publish(subject, data)

    async def hear(self, role: str, subject: str) -> list[str]:
        """Subjects that arrive at a role from now on."""
        client, heard = await self.enter(role), []

        async def note(msg: Any) -> None:
            heard.append(msg.subject)

        await client.client.subscribe(subject, cb=note)
        await client.client.flush()
        return heard

    async def delivered(self, stream: str, durable: str) -> int:
        """Messages that a durable has handed out."""
        return int((await self.js.consumer_info(stream, durable)).delivered.consumer_seq)

    async def stored(self, stream: str) -> int:
        """Messages of a stream; -1 when it is gone."""
        streams = {info.config.name: info.state.messages for info in await self.js.streams_info()}
        return streams.get(stream, -1)

    async def holds(self, stream: str, subject: str) -> bool:
        """Whether the stream has a message on the subject."""
        try:
            await self.js.get_last_msg(stream, subject)
        except NotFoundError:
            return False
        return True

    async def consumers(self, stream: str) -> set[str]:
        """Names."""
        return {info.name for info in await self.js.consumers_info(stream)}


async def happened(effect: Callable[[], Awaitable[Harm]]) -> Harm:
    """Whether an effect shows within `EFFECT_WITHIN`, in all its parts."""
    end = asyncio.get_running_loop().time() + EFFECT_WITHIN
    while asyncio.get_running_loop().time() < end:
        if not unharmed(harm := await effect()):
            return harm
        await asyncio.sleep(0.05)
    return await effect()


def is_harmed(harm: Harm) -> bool:
    """Whether any part of it is."""
    return harm if isinstance(harm, bool) else any(harm.values())


def unharmed(harm: Harm) -> list[str]:
    """The parts of it that an attack did nothing to."""
    parts = {"all": harm} if isinstance(harm, bool) else harm
    return [name for name, is_done in parts.items() if not is_done]


@asynccontextmanager
async def installed(bus: ChartBus) -> AsyncIterator[Stand]:
    """Streams and durables as the installation makes them, without messages."""
    async with _installed(bus, bus.teams) as stand:
        yield stand


@asynccontextmanager
async def unguarded(bus: ChartBus) -> AsyncIterator[Stand]:
    """The same on a server that guards nothing: everybody is in one account, so that teams have no copies."""
    async with _installed(bus, ()) as stand:
        yield stand


@asynccontextmanager
async def _installed(bus: ChartBus, teams: tuple[Team, ...]) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as ends:
        operator = await ends.enter_async_context(guest(bus, "operator"))
        await sweep(operator.client, teams)
        await ends.enter_async_context(installing(bus, teams=teams))
        yield Stand(bus, operator, operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS), ends)
