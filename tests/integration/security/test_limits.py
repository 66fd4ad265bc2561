"""What a team of subscribers can use up on the chart's server: its own share, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from paddlewheel.testkit.chart_bus import ChartBus, Guest, guest, install, running
from paddlewheel.testkit.wait import eventually

CONSUMERS, CONNECTIONS = 2, 3
TEAM, OTHER = "vision", "speech"
VALUES = (
    f"nats.subscribers[0].name={TEAM}",
    f"nats.subscribers[1].name={OTHER}",
    "nats.jetstream.maxFileStore=4Gi",
    f"nats.subscriberLimits.consumers={CONSUMERS}",
    f"nats.subscriberLimits.connections={CONNECTIONS}",
)
TOO_MANY_CONSUMERS = 10026


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[ChartBus]:
    with running(tmp_path / "bus", *VALUES) as started:
        yield started


def member(bus: ChartBus, team: str) -> AbstractAsyncContextManager[Guest]:
    return guest(bus, team, prefix="_INBOX_subscriber")


async def make_consumer(client: Guest, stream: str, name: str = "") -> dict[str, Any]:
    """The server's answer; without a name it is one for as long as somebody reads."""
    config = {"ack_policy": "explicit", **({"durable_name": name} if name else {})}
    subject = f"$JS.API.CONSUMER.CREATE.{stream}" + (f".{name}" if name else "")
    return await client.ask(subject, {"stream_name": stream, "config": config, "action": "create"})


def is_refused(answer: dict[str, Any]) -> bool:
    return bool(answer.get("error", {}).get("err_code") == TOO_MANY_CONSUMERS)


async def test_one_more_consumer_on_a_stream_is_refused_and_other_streams_and_teams_have_theirs(
    bus: ChartBus,
) -> None:
    """NATS counts the consumers of each stream, not those of the account, as the chart's values say."""
    await install(bus)
    async with member(bus, TEAM) as client, member(bus, OTHER) as other:
        for stream in ("PW_JOBS", "PW_DATASETS"):
            made = [await make_consumer(client, stream, f"c{n}") for n in range(CONSUMERS)]
            assert [answer["name"] for answer in made] == [f"c{n}" for n in range(CONSUMERS)]
            assert is_refused(await make_consumer(client, stream, "more"))
            assert is_refused(await make_consumer(client, stream))
        assert (await make_consumer(other, "PW_JOBS", "c0"))["name"] == "c0"

        await client.ask("$JS.API.CONSUMER.DELETE.PW_JOBS.c0")
        assert (await make_consumer(client, "PW_JOBS", "more"))["name"] == "more"


async def test_a_team_makes_no_streams_on_which_it_would_have_more(bus: ChartBus) -> None:
    await install(bus)
    async with member(bus, TEAM) as client:
        assert await client.refused_to_publish("$JS.API.STREAM.CREATE.MORE", b'{"name": "MORE"}')


async def test_one_more_connection_with_a_teams_certificate_is_refused_and_others_get_in(
    bus: ChartBus,
) -> None:
    async with AsyncExitStack() as open_ones:
        for _ in range(CONNECTIONS):
            await open_ones.enter_async_context(member(bus, TEAM))
        with pytest.raises(nats.errors.Error, match=r"maximum account active connections exceeded"):
            await open_ones.enter_async_context(member(bus, TEAM))
        await open_ones.enter_async_context(member(bus, OTHER))
        for who in ("job-controller", "cache-runtime"):
            await open_ones.enter_async_context(guest(bus, who))

    async def gets_in() -> bool:
        """The server sees the ends of connections a moment later."""
        with suppress(nats.errors.Error):
            async with member(bus, TEAM):
                return True
        return False

    await eventually(gets_in, what="a connection in the place of one that has ended")
