"""Rights that end again and again while facts are published: a real server, and a bus-auth that says yes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from paddlewheel.bus import connect
from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import inbox_prefix
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.callout.serve import CalloutServer
from paddlewheel.bus.nats.callout import NatsCallout
from paddlewheel.bus.streams import STREAMS
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.testkit.chart_bus import BUS_CA, ChartBus, entering, running
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually, patiently

LIFETIME = 2
LIVES = 3
"""Ends of rights that the publisher goes through."""


@asynccontextmanager
async def agreeable(bus: ChartBus, granted: list[str]) -> AsyncIterator[None]:
    """Lets everybody in as what he asks for."""
    key, clock = CalloutKey(bus.folder / "bus-auth-key" / "tls.key"), SystemClock()

    async def authorize(asking: Asking) -> Grant:
        granted.append(asking.role)
        now = int(clock.now().timestamp())
        return Grant("somebody", *rights(Identity(asking.role)), now + LIFETIME)

    access = Access(
        bus.url.replace("127.0.0.1", "localhost"),
        tls_dir=str(bus.folder / BUS_CA),
        nkey_seed=key.seed,
        inbox_prefix=inbox_prefix("bus-auth"),
    )
    server = CalloutServer(key, authorize, clock, lambda _: None)
    callout = NatsCallout(access, server, clock, name="bus-auth")
    answering = asyncio.create_task(callout.run())

    async def is_ready() -> bool:
        return await callout.is_ready() is True

    try:
        await eventually(is_ready, within=20)
        yield
    finally:
        await end(answering)


async def test_nothing_is_lost_or_stored_twice_when_rights_end_while_facts_are_published(
    tmp_path: Path,
) -> None:
    granted: list[str] = []
    token = tmp_path / "token"
    token.write_text("anything")
    with running(tmp_path / "bus", "nats.auth=tokens") as bus:
        async with agreeable(bus, granted):
            folder = bus.folder / BUS_CA
            async with entering(
                bus, folder, prefix="_INBOX_operator", user="operator", password="x"
            ) as operator:
                js = operator.client.jetstream(timeout=5)
                for spec in STREAMS:
                    await js.add_stream(name=spec.name, subjects=list(spec.subjects), allow_direct=True)
            access = bus.access("job-controller", tls_dir=str(folder), token_file=str(token))
            publisher = await connect(access, name="job-controller")
            published = 0
            try:
                while granted.count("job-controller") <= LIVES:
                    await patiently(partial(publisher.publish, make_gated(published)))
                    published += 1
            finally:
                await publisher.close()
            async with entering(
                bus, folder, prefix="_INBOX_operator", user="operator", password="x"
            ) as operator:
                info = await operator.client.jetstream(timeout=5).stream_info("PW_JOBS")

    assert published > LIVES
    assert info.state.messages == published
