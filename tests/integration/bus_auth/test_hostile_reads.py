"""What one agent stores or asks for keeps no other set from reading: a real server, the chart's accounts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nats.protocol import command
from tests.integration.bus_auth.test_reads_with_three_servers import MINE, access, configuration, reading

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.accounts import HOME
from paddlewheel.bus.admin.permissions import AGENT, OPERATOR, inbox_prefix
from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.bus.admin.set_reads import read_api
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.streams import MAX_MESSAGE, RUNS, RUNS_BUCKET
from paddlewheel.bus.turns import Turn, Turns
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import patiently

KEY = f"{MINE.uid}.run.state"
SUBJECT = f"$KV.{RUNS_BUCKET}.{KEY}"


@dataclass
class Scene:
    """A server with streams and bus-auth's reader, an agent, and a connection with the agent's rights."""

    server: NatsServer
    folder: Path
    agent: NatsBus
    client: Client

    @property
    def log(self) -> str:
        return (self.folder / "nats.log").read_text()

    async def ask(self, call: str, body: object, reply: str = "") -> None:
        """Not waiting for an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = f"{read_api(MINE.uid)}.{call}.{RUNS.name}"
        await self.client.publish(subject, data, reply=reply or self.client.new_inbox())

    async def store(self, headers: bytes, data: bytes) -> None:
        """Headers that nats-py would not send."""
        inbox = self.client.new_inbox()
        answers = await self.client.subscribe(inbox)
        await self.client._send_command(command.hpub_cmd(SUBJECT, inbox, headers, data))
        await self.client.flush()
        assert "error" not in json.loads((await answers.next_msg(5)).data)


def agents(server: NatsServer) -> Access:
    return access(server, AGENT, inbox_prefix=agent_inbox(MINE.uid), api_prefix=read_api(MINE.uid))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = NatsServer(tmp_path, configuration())
    server.start()
    try:
        async with scene_on(server, tmp_path) as found:
            yield found
    finally:
        server.stop()


@asynccontextmanager
async def scene_on(server: NatsServer, folder: Path) -> AsyncIterator[Scene]:
    makes: dict[str, Any] = {"streams": "make", "replicas": 1, "inbox_prefix": inbox_prefix(OPERATOR)}
    operator, agent = NatsBus(access(server, HOME, **makes)), NatsBus(agents(server))
    hostile = Connection(agents(server), "hostile")
    try:
        await patiently(operator.install, within=30)
        async with reading(server):
            yield Scene(server, folder, agent, await hostile.client())
    finally:
        await hostile.close()
        await agent.close()
        await operator.close()


@pytest.mark.parametrize("name", [b"X", b"KV-Operation"])
async def test_a_record_that_grows_on_its_way_costs_bus_auth_no_connection(scene: Scene, name: bytes) -> None:
    """A byte that is no text becomes three: what the server took is more than it takes back."""
    headers = b"NATS/1.0\r\n" + name + b": " + b"\xff" * 64_000 + b"\r\n\r\n"
    await scene.store(headers, b"x" * (MAX_MESSAGE - len(headers) - 100))

    await scene.ask("DIRECT.GET", {"batch": 1, "next_by_subj": SUBJECT, "seq": 1})

    # Answered behind it, over the same connection.
    await scene.agent.key_value(RUNS_BUCKET).put(f"{MINE.uid}.ok.state", b"1")
    assert (await scene.agent.key_value(RUNS_BUCKET).get(f"{MINE.uid}.ok.state")).value == b"1"
    with pytest.raises(Retry, match="too large"):
        await scene.agent.key_value(RUNS_BUCKET).get(KEY)
    assert "maximum payload" not in scene.log


class EveryOther(Turns):
    """Has no turn for every other request."""

    refuses = False

    @asynccontextmanager
    async def taken(self, name: str) -> AsyncIterator[Turn]:
        self.refuses = not self.refuses
        if self.refuses:
            raise Retry("Busy", "none")
        async with super().taken(name) as turn:
            yield turn


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddlewheel.bus.nats.set_reader.Turns", EveryOther)


@pytest.mark.usefixtures("busy")
async def test_what_bus_auth_is_too_busy_for_is_asked_again(scene: Scene) -> None:
    """A batch that is given up makes its reader list everything again: more work, not less."""
    await scene.agent.key_value(RUNS_BUCKET).put(KEY, b"1")

    assert (await scene.agent.key_value(RUNS_BUCKET).get(KEY)).value == b"1"
    [entry] = await scene.agent.key_value(RUNS_BUCKET).entries(f"{MINE.uid}.>")

    assert entry.value == b"1"
