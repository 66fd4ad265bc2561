"""Acknowledged publishing when answers stay out, rights lack or the connection breaks: it ends in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, connection
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import JOBS, RUNS_BUCKET
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


async def stored(bus: NatsBus) -> int:
    return next(s.messages for s in (await bus.inspect.status()).streams if s.name == JOBS.name)


async def waiting(bus: NatsBus) -> int:
    return (await bus._connection.client()).waiting


@pytest.fixture
def freezer(nats_server: NatsServer) -> Iterator[NatsServer]:
    """A server to be frozen; it is thawed when the test ends."""
    yield nats_server
    nats_server.thaw()


async def test_concurrent_publishes_are_all_stored_and_leave_nothing_behind(bus: NatsBus) -> None:
    await asyncio.gather(*(bus.publish(make_gated(n)) for n in range(1000)))

    async def is_all_stored() -> bool:
        return (await stored(bus), await waiting(bus)) == (1000, 0)

    await eventually(is_all_stored)


async def test_headers_arrive_unchanged(bus: NatsBus) -> None:
    headers = {"ce-id": "ä/1", "odd": " a\r\nb ", "empty": ""}
    heard = await (await bus._connection.client()).subscribe("pw.evt.jobs.x")
    await bus.publish_raw(RawMessage("pw.evt.jobs.x", b"body", headers))
    found = await heard.next_msg(timeout=60)
    assert (found.data, found.headers) == (b"body", {"ce-id": "ä/1", "odd": "a  b", "empty": ""})


async def test_a_header_name_that_is_no_token_is_refused(bus: NatsBus) -> None:
    for name in ("a b", "a:b", "ä", "a\r\nb"):
        with pytest.raises(Permanent, match="NotStorable"):
            await bus.publish_raw(RawMessage("pw.evt.jobs.x", b"", {name: "x"}))


async def test_a_subject_that_would_break_the_protocol_is_refused(bus: NatsBus) -> None:
    for subject in ("pw.evt.jobs.a b", "pw.evt.jobs.a\r\nPUB x 0", "pw.evt.jobs.a\t"):
        with pytest.raises(Permanent, match="NotStorable"):
            await bus.publish_raw(RawMessage(subject, b""))


async def test_a_missing_answer_becomes_a_retry_in_time(
    bus: NatsBus, freezer: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 2.0)
    client = await bus._connection.client()
    freezer.freeze()
    # One after the other they would take longer.
    outcomes = await asyncio.wait_for(
        asyncio.gather(*(bus.publish(make_gated(n)) for n in range(50)), return_exceptions=True), 60
    )
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert client.waiting == 0


async def test_streams_that_cannot_be_ensured_delay_callers_by_one_timeout_at_most(
    bus: NatsBus, freezer: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 2.0)
    bus._provision.forget()
    freezer.freeze()
    outcomes = await asyncio.wait_for(
        asyncio.gather(*(bus.publish(make_gated(n)) for n in range(50)), return_exceptions=True), 60
    )
    assert {type(outcome) for outcome in outcomes} == {Unavailable}


async def test_a_broken_connection_ends_the_wait_at_once(
    bus: NatsBus, freezer: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 3600.0)
    freezer.freeze()
    waits = asyncio.gather(*(bus.publish(make_gated(n)) for n in range(3)), return_exceptions=True)
    await eventually(lambda: waiting_for(bus, 3))
    await asyncio.to_thread(freezer.kill)
    assert {type(outcome) for outcome in await asyncio.wait_for(waits, 90)} == {Unavailable}
    await asyncio.to_thread(freezer.start)


async def waiting_for(bus: NatsBus, count: int) -> bool:
    return await waiting(bus) == count


@pytest.mark.usefixtures("patient")
async def test_a_cancelled_publish_leaves_nothing_behind(bus: NatsBus, freezer: NatsServer) -> None:
    freezer.freeze()
    task = asyncio.create_task(bus.publish(make_gated(1)))
    await eventually(lambda: waiting_for(bus, 1))
    await end(task)
    assert (task.cancelled(), await waiting(bus)) == (True, 0)
    freezer.thaw()
    await bus.publish(make_gated(2))


async def test_an_oversized_message_does_not_close_the_connection(nats_server: NatsServer) -> None:
    nats_server.config["max_payload"] = 2000
    await asyncio.to_thread(nats_server.restart)
    bus = NatsBus(nats_server.url)
    try:
        await bus.start()
        generation = bus._connection.generation
        with pytest.raises(Permanent, match=r"TooLarge.*2000"):
            await bus.publish_raw(RawMessage("pw.evt.jobs.x", b"x", {"long": "y" * 2000}))
        await bus.publish(make_gated(1))
        assert bus._connection.generation == generation
    finally:
        await bus.close()


# --- rights


def rights(**publish: list[str]) -> dict[str, Any]:
    """A server where `owner` may do all and `guest` only what is given."""
    guest = {"publish": publish, "subscribe": ["_INBOX_guest.>"]}
    return {
        "authorization": {
            "users": [
                {"user": "owner", "password": "o"},
                {"user": "guest", "password": "g", "permissions": guest},
            ]
        }
    }


def access_of(server: NatsServer, user: str, **more: Any) -> Access:
    url = server.url.replace("nats://", f"nats://{user}:{user[0]}@")
    return Access(
        url, streams="make" if user == "owner" else "assume", role=user, inbox_prefix=f"_INBOX_{user}", **more
    )


@pytest.fixture
async def guarded(nats_server: NatsServer) -> AsyncIterator[NatsServer]:
    """A server with its streams, where a guest may publish dataset facts and read one bucket's messages."""
    nats_server.config.update(rights(allow=["pw.evt.datasets.>", "$JS.API.STREAM.INFO.>"]))
    await asyncio.to_thread(nats_server.restart)
    owner = NatsBus(access_of(nats_server, "owner"))
    await eventually(owner.healthy)
    yield nats_server
    await owner.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out would hang the test: only a told refusal ends a call."""
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 3600.0)


@pytest.mark.usefixtures("patient")
async def test_missing_permissions_fail_at_once_naming_role_and_subject(guarded: NatsServer) -> None:
    guest = NatsBus(access_of(guarded, "guest"))
    try:
        with pytest.raises(Retry, match=r"NotPermitted: role guest may not publish to pw\.evt\.jobs\."):
            await asyncio.wait_for(guest.publish(make_gated(1)), 90)
        with pytest.raises(Retry, match=r"NotPermitted: role guest may not publish to \$KV\."):
            await asyncio.wait_for(guest.key_value(RUNS_BUCKET).put("Key", b"1"), 90)
        with pytest.raises(
            Retry, match=r"NotPermitted: role guest may not publish to \$JS\.API\.STREAM\.MSG\.GET"
        ):
            await asyncio.wait_for(guest.key_value(RUNS_BUCKET).get("a"), 90)
        await guest.publish_raw(RawMessage("pw.evt.datasets.x", b""))
    finally:
        await guest.close()


@pytest.mark.usefixtures("patient")
async def test_a_denied_inbox_subscription_fails_requests_at_once(guarded: NatsServer) -> None:
    deaf = NatsBus(Access(access_of(guarded, "guest").url, streams="assume", role="guest"))
    try:
        with pytest.raises(Retry, match=r"NotPermitted: .*role guest may not subscribe to its inbox"):
            await asyncio.wait_for(deaf.publish_raw(RawMessage("pw.evt.datasets.x", b"")), 90)
    finally:
        await deaf.close()


async def test_rejected_credentials_are_reported_to_every_caller(
    guarded: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 1.0)
    stranger = NatsBus(Access(guarded.url, streams="assume"))

    async def is_told() -> bool:
        with pytest.raises(Retry, match="BusUnreachable") as refused:
            await stranger.publish(make_gated(1))
        return "Authorization Violation" in str(refused.value)

    try:
        for _ in range(2):
            await eventually(is_told, what="the server's word")
    finally:
        await stranger.close()
