"""What one agent stores or asks for keeps no other set from reading: a real server, the chart's accounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.protocol import command

from paddlewheel.bus.admin.accounts import HOME, READER
from paddlewheel.bus.admin.permissions import OPERATOR, inbox_prefix
from paddlewheel.bus.admin.rights import SetReference
from paddlewheel.bus.admin.set_reads import LARGEST_BATCH, read_api, read_subjects
from paddlewheel.bus.admin.set_writes import write_prefix
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.set_reader import SetReader
from paddlewheel.bus.streams import MAX_MESSAGE, NODES_BUCKET, RUNS, RUNS_BUCKET
from paddlewheel.bus.turns import Turn, Turns
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.agents_bus import access, agents_access, configuration, reading, writing
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually, patiently

MINE = SetReference("team-a", "uid-a")
ASKERS = 100
"""Agents of one set, with more to read than bus-auth hands back before they ask again."""
KEY = f"{MINE.uid}.run.state"
SUBJECT = f"$KV.{RUNS_BUCKET}.{KEY}"


@dataclass
class Scene:
    """A server with streams, bus-auth's reader and its writer; an agent, and connections with the agent's
    rights and an operator's."""

    server: NatsServer
    folder: Path
    agent: NatsBus
    client: Client
    operator: Client

    @property
    def log(self) -> str:
        return (self.folder / "nats.log").read_text()

    async def ask(self, call: str, body: object, reply: str = "") -> None:
        """Not waiting for an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.client.publish(asked(call), data, reply=reply or self.client.new_inbox())

    async def store(self, headers: bytes, data: bytes) -> None:
        """Headers that nats-py would not send, and bus-auth not take."""
        inbox = self.operator.new_inbox()
        answers = await self.operator.subscribe(inbox)
        await self.operator._send_command(command.hpub_cmd(SUBJECT, inbox, headers, data))
        await self.operator.flush()
        assert "error" not in json.loads((await answers.next_msg(60)).data)


def asked(call: str) -> str:
    """Where it is asked about the bucket of runs."""
    return f"{read_api(MINE.uid)}.{call}.{RUNS.name}"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = NatsServer(tmp_path, configuration(MINE))
    server.start()
    try:
        async with scene_on(server, tmp_path) as found:
            yield found
    finally:
        server.stop()


@asynccontextmanager
async def scene_on(server: NatsServer, folder: Path) -> AsyncIterator[Scene]:
    makes: dict[str, Any] = {"streams": "make", "replicas": 1, "inbox_prefix": inbox_prefix(OPERATOR)}
    operator, agent = NatsBus(access(server, HOME, **makes)), NatsBus(agents_access(server, MINE))
    hostile, trusted = (
        Connection(agents_access(server, MINE), "hostile"),
        Connection(access(server, HOME, **makes), ""),
    )
    try:
        await patiently(operator.install)
        async with reading(server), writing(server):
            yield Scene(server, folder, agent, await hostile.client(), await trusted.client())
    finally:
        await hostile.close()
        await trusted.close()
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
    async def taken(self, name: str, size: int = 0) -> AsyncIterator[Turn]:
        self.refuses = not self.refuses
        if self.refuses:
            raise Retry("Busy", "none")
        async with super().taken(name, size) as turn:
            yield turn


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddlewheel.bus.nats.set_requests.Turns", EveryOther)


@pytest.mark.usefixtures("busy")
async def test_what_bus_auth_is_too_busy_for_is_asked_again(scene: Scene) -> None:
    """A batch that is given up makes its reader list everything again: more work, not less. What was not
    written is written, once."""
    await scene.agent.key_value(RUNS_BUCKET).put(KEY, b"1")

    assert (await scene.agent.key_value(RUNS_BUCKET).get(KEY)).value == b"1"
    [entry] = await scene.agent.key_value(RUNS_BUCKET).entries(f"{MINE.uid}.>")

    assert entry.value == b"1"


@pytest.mark.long
async def test_many_agents_of_a_set_that_list_together_all_read(scene: Scene) -> None:
    """As after a power cut."""
    nodes = scene.agent.key_value(NODES_BUCKET)
    await asyncio.gather(*(nodes.put(f"{MINE.uid}.{n}", b"x" * 600) for n in range(LARGEST_BATCH)))

    lists = partial(nodes.entries, f"{MINE.uid}.>")
    found = await asyncio.gather(*(patiently(lists, within=600) for _ in range(ASKERS)))

    assert {len(each) for each in found} == {LARGEST_BATCH}


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (asked("STREAM.INFO"), "more than 1024 bytes"),
        (f"{write_prefix(MINE.uid)}.{SUBJECT}", "size exceeds"),
    ],
    ids=["read", "write"],
)
async def test_a_request_with_large_headers_is_refused_unread(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, subject: str, said: str
) -> None:
    """Thousands of lines of one name take a tenth of a second, and become one header."""
    read, parse = list[int](), Client._process_headers

    async def process(client: Client, headers: bytes) -> Any:
        read.append(len(headers or b""))
        return await parse(client, headers)

    monkeypatch.setattr(Client, "_process_headers", process)
    headers, inbox = b"NATS/1.0\r\n" + b"a:b\r\n" * 200_000 + b"\r\n", scene.client.new_inbox()
    answers = await scene.client.subscribe(inbox)

    await scene.client._send_command(command.hpub_cmd(subject, inbox, headers, b""))
    answer = json.loads((await answers.next_msg(60)).data)

    assert said in answer["error"]["description"]
    assert max(read) < 10_000


async def test_a_replica_that_ends_answers_all_that_it_was_asked(scene: Scene) -> None:
    many, inbox = 200, scene.client.new_inbox()
    answers = await scene.client.subscribe(f"{inbox}.*")

    async with reading(scene.server):
        for number in range(many):
            await scene.ask("STREAM.INFO", b"", reply=f"{inbox}.{number}")
        await scene.client.flush()

    await eventually(lambda: answers.pending_msgs == many)


async def test_a_reader_that_may_not_listen_is_not_ready(tmp_path: Path) -> None:
    config = configuration(MINE)
    [user] = config["accounts"][READER]["users"]
    user["permissions"] = {"subscribe": ["_INBOX.>"]}
    server = NatsServer(tmp_path, config)
    server.start()
    reader = SetReader(access(server, READER), SystemClock(), lambda _: None, name="reader")
    task = asyncio.create_task(reader.run())

    async def is_refused() -> bool:
        said = await reader.is_ready()
        assert said is not True
        return "ermissions" in str(said)

    try:
        await eventually(is_refused)
    finally:
        await end(task)
        server.stop()


async def test_a_reader_whose_server_was_slow_listens_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, slow = Client.flush, iter([True])

    async def flush_slowly(client: Client, timeout: int = 10) -> None:
        if next(slow, False):
            raise nats.errors.FlushTimeoutError
        await flush(client, timeout)

    monkeypatch.setattr(Client, "flush", flush_slowly)
    async with reading(scene.server):
        listening = await eventually(lambda: subjects_of_readers(scene.server))

    # Two readers.
    assert sorted(listening) == sorted(2 * [*read_subjects()])


def subjects_of_readers(server: NatsServer) -> list[str]:
    """Where requests for reads are listened for."""
    connections = server.ask_monitor("/connz?subs=1")["connections"]
    subjects = [subject for each in connections for subject in each.get("subscriptions_list", [])]
    return [subject for subject in subjects if subject.startswith("pw.read.")]


async def test_attack_requests_that_nobody_answers_use_up_the_servers_memory(tmp_path: Path) -> None:
    """It remembers each request that crosses accounts, in memory. Here after a second, in place of ten."""
    server = NatsServer(tmp_path, json.loads(json.dumps(configuration(MINE)).replace('"10s"', '"1s"')))
    server.start()
    reader, agent = (
        Connection(access(server, READER), "silent"),
        Connection(agents_access(server, MINE), "agent"),
    )
    try:
        client, silent = await agent.client(), await reader.client()
        heard = await silent.subscribe("pw.read.>")
        await silent.flush()

        async def are_remembered() -> bool:
            """The server is asked within the second."""
            await eventually(lambda: remembered(server) == 0, what="nothing of a former try")
            for call in ("STREAM.INFO", "DIRECT.GET"):
                await client.publish(asked(call), b"", reply=client.new_inbox())
                await heard.next_msg(60)
            return remembered(server) == 2

        await eventually(are_remembered, what="both requests are remembered")
        await eventually(lambda: remembered(server) == 0)
    finally:
        await agent.close()
        await reader.close()
        server.stop()


def remembered(server: NatsServer) -> int:
    """Requests for reads whose answers the server waits for."""
    account = server.ask_monitor(f"/accountz?acc={READER}")["account_detail"]
    return len(account.get("responses") or {})
