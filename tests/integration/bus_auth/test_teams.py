"""Everything installed by token, and stored facts read by token: the chart's server, bus-auth agrees."""

from __future__ import annotations

import time
from pathlib import Path

from paddlewheel.bus import connect
from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.testkit.bus_auth import letting_in
from paddlewheel.testkit.chart_bus import BUS_ANSWER_TIMEOUT_SECONDS, BUS_CA, entering, install, running
from paddlewheel.testkit.facts import make_gated


async def agree(login: Login) -> Grant:
    """A subscriber may watch everything."""
    identity = Identity(login.role, team=login.role if login.role == SUBSCRIBER else "")
    return Grant(login.role, *rights(identity), int(time.time()) + 600)


async def test_a_subscriber_with_a_token_reads_what_was_stored_before_it_came(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("anything")
    with running(tmp_path / "bus", passwords=False) as bus:
        async with letting_in(bus, agree):
            shown = {"tls_dir": str(bus.folder / BUS_CA), "token_file": str(token)}
            await install(bus, **shown)
            publisher = await connect(bus.access("job-controller", **shown), name="job-controller")
            fact = make_gated(1)
            try:
                await publisher.publish(fact)
            finally:
                await publisher.close()
            folder = bus.folder / BUS_CA
            async with entering(
                bus, folder, prefix="_INBOX_subscriber", user=SUBSCRIBER, password="x"
            ) as reader:
                js = reader.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
                consumer = await js.pull_subscribe("pw.evt.jobs.>", durable="mine", stream="PW_JOBS")
                [read] = await consumer.fetch(1, BUS_ANSWER_TIMEOUT_SECONDS)

    assert read.subject == fact.subject
