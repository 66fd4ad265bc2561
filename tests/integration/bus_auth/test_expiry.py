"""Rights that end again and again while facts are published: a real server, and a bus-auth that says yes."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from paddlewheel.bus import connect
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.bus_auth import letting_in
from paddlewheel.testkit.chart_bus import BUS_ANSWER_TIMEOUT_SECONDS, BUS_CA, entering, running
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import patiently

pytestmark = pytest.mark.long

PUBLISHER = "job-controller"
LIFETIME = 4
"""Seconds of the publisher's rights."""
LIVES = 3
"""Ends of rights that the publisher goes through."""


async def test_nothing_is_lost_or_stored_twice_when_rights_end_while_facts_are_published(
    tmp_path: Path,
) -> None:
    granted: list[str] = []

    async def authorize(login: Login) -> Grant:
        granted.append(login.role)
        seconds = LIFETIME if login.role == PUBLISHER else 600
        return Grant("somebody", *rights(Identity(login.role)), int(time.time()) + seconds)

    token = tmp_path / "token"
    token.write_text("anything")
    with running(tmp_path / "bus", passwords=False) as bus:
        async with letting_in(bus, authorize):
            folder = bus.folder / BUS_CA
            async with entering(
                bus, folder, prefix="_INBOX_operator", user="operator", password="x"
            ) as operator:
                js = operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
                for spec in STREAMS:
                    await js.add_stream(name=spec.name, subjects=list(spec.subjects), allow_direct=True)
            access = bus.access(PUBLISHER, tls_dir=str(folder), token_file=str(token))
            publisher = await connect(access, name=PUBLISHER)
            published = 0
            try:
                while min(granted.count(PUBLISHER), published) <= LIVES:
                    await patiently(partial(publisher.publish, make_gated(published)))
                    published += 1
            finally:
                await publisher.close()
            async with entering(
                bus, folder, prefix="_INBOX_operator", user="operator", password="x"
            ) as operator:
                info = await operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS).stream_info(
                    "PW_JOBS"
                )

    assert info.state.messages == published
