"""Reading a server's HTTP monitor, with and without an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddlewheel.bus.admin.durability import ServerFacts
from paddlewheel.bus.nats import monitor
from paddlewheel.bus.nats.monitor import ask_monitors

URL = "http://nats-0.nats-servers.paddle-system.svc:8222"


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ({"jetstream": {"config": {"sync_always": True}}}, ServerFacts(URL, True)),
        ({"jetstream": {"config": {"sync_interval": 120 * 10**9}}}, ServerFacts(URL, False, 120.0)),
        (
            {"jetstream": {"config": {"sync_always": True}}, "config_loaded": True},
            ServerFacts(URL, True, 0.0, True),
        ),
        ({"jetstream": {"config": {}}, "config_loaded": False}, ServerFacts(URL, None, 0.0, False)),
        # Its monitor answers before JetStream is up.
        ({"jetstream": {}}, ServerFacts(URL, None)),
        ({}, ServerFacts(URL, None)),
        # What answers there is no NATS server, or one of another release.
        ({"jetstream": None}, ServerFacts(URL, None)),
        ({"jetstream": {"config": "none"}}, ServerFacts(URL, None)),
        ([], ServerFacts(URL, None)),
    ],
)
async def test_a_server_that_is_not_up_yet_is_unknown(
    monkeypatch: pytest.MonkeyPatch, reply: object, facts: ServerFacts
) -> None:
    monkeypatch.setattr(monitor, "_get", lambda url: reply)
    assert await ask_monitors(URL) == (facts,)


async def test_a_name_that_is_not_resolved_in_time_is_an_unknown_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other calls wait for it, so until then no client can use the bus."""

    async def resolve(*_: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(monitor, "_ANSWER_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(asyncio, "to_thread", resolve)
    async with asyncio.timeout(10):
        assert await ask_monitors(f"{URL}, {URL}/") == (ServerFacts(URL, None),) * 2
