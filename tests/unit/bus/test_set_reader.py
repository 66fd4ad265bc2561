"""Answers on their way through bus-auth: none is taken for all that there is when one of them is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.admin.set_reads import BATCH_BYTES, MAX_BODY, Read, is_busy
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.set_reader import LIMITS, READS, Relay
from paddlewheel.bus.nats.set_requests import Desk
from paddlewheel.bus.turns import Limits, Turn, Turns
from paddlewheel.core.tasks import end

ASKER = "_R_.a.b"
ASKED = "pw.read.uid-a.DIRECT.GET.KV_pw_cache_runs"
BATCH = Read("uid-a", "DIRECT.GET", "KV_pw_cache_runs", b"")
SINGLE = Read("uid-a", "STREAM.MSG.GET", "KV_pw_cache_runs", b"")
INFO = Read("uid-a", "STREAM.INFO", "KV_pw_cache_runs", b"")


@dataclass
class Answers:
    """A subscription."""

    close: Callable[[], None]

    async def unsubscribe(self) -> None:
        self.close()


class OneClient:
    """Remembers what is published, and sends nothing larger than `most` bytes."""

    def __init__(self, most: int = 100) -> None:
        self.most = self.max_payload = most
        self.requests: list[tuple[str, str]] = []
        self.answers: list[tuple[bytes, dict[str, str]]] = []
        self._take: Any = None

    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def subscribe(self, subject: str, cb: Any) -> Answers:
        assert subject == "_INBOX.x.*"
        self._take = cb
        return Answers(lambda: None)

    async def publish(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        if len(data) > self.most:
            raise nats.errors.MaxPayloadError
        if subject == ASKER:
            self.answers.append((data, headers or {}))
        else:
            self.requests.append((subject, reply))

    async def answer(self, token: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        """One message, as JetStream sends it to the inbox."""
        await self._take(Msg(cast("Client", self), subject=f"_INBOX.x.{token}", data=data, headers=headers))


class Inboxes(OneClient):
    """Has a new inbox each time, and the server sends nothing to one that is closed."""

    def __init__(self) -> None:
        super().__init__(most=1000)
        self._numbers = count()
        self._open: set[str] = set()

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._numbers)}"

    async def subscribe(self, subject: str, cb: Any) -> Answers:
        self._take, inbox = cb, subject.removesuffix(".*")
        self._open.add(inbox)

        return Answers(lambda: self._open.discard(inbox))

    def _is_heard(self, reply: str) -> bool:
        return reply.rpartition(".")[0] in self._open

    @property
    def awaited(self) -> int:
        """Requests that are not answered, and whose answers would be sent."""
        return sum(1 for _, reply in self.requests if self._is_heard(reply))

    async def answer_at(self, reply: str, data: bytes) -> None:
        """One message, as JetStream sends it."""
        if self._is_heard(reply):
            await self._take(Msg(cast("Client", self), subject=reply, data=data))


class Clock:
    """Of the event loop: what is due is done when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now)

    async def advance(self, seconds: float) -> None:
        """By steps, each with time for its consequences."""
        for _ in range(round(seconds * 20)):
            self._now += 0.05
            for _ in range(20):
                await asyncio.sleep(0)


async def started(client: OneClient, *reads: Read) -> tuple[Relay, list[asyncio.Task[str]]]:
    """The requests are on their way; the first has token 1."""
    relay = Relay(cast("Client", client))
    await relay.open()
    turn = Turn(asyncio.Semaphore())
    tasks = [asyncio.create_task(relay.hand_on(read, ASKER, turn)) for read in reads]
    while len(client.requests) < len(reads):
        await asyncio.sleep(0)
    return relay, tasks


async def test_a_batch_is_handed_back_to_its_end() -> None:
    client = OneClient()
    _, [asked] = await started(client, BATCH)
    answers = [
        (b"a", {"Nats-Sequence": "1", "Nats-Num-Pending": "1"}),
        (b"b", {"Nats-Sequence": "2", "Nats-Num-Pending": "0"}),
        (b"", {"Status": "204", "Description": "EOB"}),
    ]

    for data, headers in answers:
        assert not asked.done()
        await client.answer(1, data, headers)

    assert await asked == "answered"
    assert client.requests == [("$JS.API.DIRECT.GET.KV_pw_cache_runs", "_INBOX.x.1")]
    assert client.answers == answers


async def test_nothing_follows_what_could_not_be_handed_back() -> None:
    """An end would say that all was there."""
    client = OneClient(most=40)
    _, [asked] = await started(client, BATCH)

    await client.answer(1, b"a", {"Nats-Sequence": "1"})
    await client.answer(1, b"much" * 9, {"Nats-Sequence": "2"})
    await client.answer(1, b"", {"Status": "204"})

    assert await asked == "refused"
    assert [headers.get("Status") for _, headers in client.answers] == [None, "408"]


async def test_a_single_message_that_is_too_large_is_refused() -> None:
    client = OneClient()
    _, [asked] = await started(client, SINGLE)

    await client.answer(1, b"x" * 101)

    assert await asked == "refused"
    [(data, _)] = client.answers
    assert "too large" in json.loads(data)["error"]["description"]


async def test_headers_that_are_too_large_are_refused() -> None:
    """The server counts them, nats-py does not: it would close the connection."""
    client = OneClient()
    _, [asked] = await started(client, BATCH)

    await client.answer(1, b"a", {"Nats-Sequence": "1", "KV-Operation": "\N{REPLACEMENT CHARACTER}" * 30})

    assert await asked == "refused"
    assert [headers.get("Status") for _, headers in client.answers] == ["408"]


async def test_headers_that_no_reader_needs_are_left_out() -> None:
    client = OneClient()
    _, [asked] = await started(client, BATCH)

    await client.answer(1, b"a", {"Nats-Sequence": "1", "a b": "c", "é": "d", "X": "e" * 200})
    await client.answer(1, b"", {"Status": "404"})

    assert await asked == "answered"
    assert client.answers[0] == (b"a", {"Nats-Sequence": "1"})


async def test_answers_go_to_whom_they_are_for() -> None:
    client = OneClient()
    _, asked = await started(client, SINGLE, INFO)

    await client.answer(2, json.dumps({"state": {"first_seq": 1, "last_seq": 2, "messages": 3}}).encode())
    await client.answer(1, b"one")
    await client.answer(1, b"again")
    await client.answer(3, b"nobody's")

    assert [await each for each in asked] == ["answered", "answered"]
    assert [data for data, _ in client.answers] == [b'{"state": {"first_seq": 1, "last_seq": 2}}', b"one"]


async def test_an_answer_that_cannot_be_read_is_not_handed_back() -> None:
    client = OneClient()
    _, [asked] = await started(client, INFO)

    await client.answer(1, b'{"state": {"last_seq": 2}}')

    assert await asked == "unanswered"
    assert client.answers == []


@pytest.mark.parametrize("read", [SINGLE, BATCH])
async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(read: Read) -> None:
    client = OneClient()
    _, [asked] = await started(client, read)
    await end(asked)

    await client.answer(1, b"late", {"Nats-Sequence": "1"})

    assert client.answers == []


async def test_what_has_waited_longer_than_its_asker_is_never_handed_on() -> None:
    """It would be work for nobody, and keep back what somebody still waits for."""
    client, reports = OneClient(most=1000), list[str]()
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, Turns(replace(LIMITS, at_work=1)), reports.append)

    for _ in range(3):
        await desk.take(asked(client, "uid-a"))
    await settled(lambda: len(reports) == 2)
    await client.answer(1, b"{}")
    await settled(lambda: len(reports) == 3)

    assert reports == ["busy", "busy", "answered"]
    assert [is_busy(headers) for _, headers in client.answers] == [True, True, False]
    assert len(client.requests) == 1


async def test_reads_that_the_server_is_silent_about_hold_up_no_others() -> None:
    """The leader of one stream is being elected."""
    client, reports = OneClient(), list[str]()
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, Turns(replace(LIMITS, patience=None)), reports.append)
    for number in range(LIMITS.all_at_work):
        await desk.take(asked(client, f"uid-{number}"))
    await settled(lambda: len(client.requests) == LIMITS.all_at_work)

    await desk.take(asked(client, "uid-other"))
    await settled(lambda: len(client.requests) > LIMITS.all_at_work)

    assert reports == []
    await desk.close()


async def test_a_read_that_the_server_is_silent_about_keeps_its_sets_turn_until_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster without a leader drops what it is asked: the next leader never receives it."""
    client, reports, clock = OneClient(most=1000), list[str](), Clock(monkeypatch)
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, Turns(replace(LIMITS, at_work=1)), reports.append)

    await desk.take(asked(client, "uid-a"))
    await clock.advance(0.9)
    await desk.take(asked(client, "uid-a"))
    await clock.advance(0.2)
    await client.answer(2, b"{}")
    await clock.advance(0.1)

    assert reports == ["unanswered", "answered"]
    assert [is_busy(headers) for _, headers in client.answers] == [True, False]


async def test_a_batch_that_has_begun_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    client, clock = OneClient(), Clock(monkeypatch)
    _, [asked] = await started(client, BATCH)

    await client.answer(1, b"a", {"Nats-Sequence": "1"})
    await clock.advance(3)
    await client.answer(1, b"", {"Status": "204"})

    assert await asked == "answered"
    assert [data for data, _ in client.answers] == [b"a", b""]


async def test_what_a_silent_server_may_still_answer_with_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it wakes it would send everything at once, to bus-auth, for agents that have asked again."""
    client, reports, clock, most = Inboxes(), list[str](), Clock(monkeypatch), 0
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, Turns(LIMITS), reports.append)

    for tick in range(50):
        for number in range(tick % 10 * 30, tick % 10 * 30 + 30):
            await desk.take(asked(client, f"uid-{number}"))
        await clock.advance(0.1)
        most = max(most, client.awaited)
    for _, reply in list(client.requests):
        await client.answer_at(reply, b"{}")

    assert len(client.requests) > 200
    assert most <= 5 * LIMITS.all_at_work
    assert most * BATCH_BYTES <= 40 << 20
    assert reports.count("answered") <= most
    await desk.close()


async def test_a_set_asks_beside_sixteen_that_ask_for_all_they_may() -> None:
    turns = Turns(replace(LIMITS, patience=None))

    async def ask(name: str) -> None:
        async with turns.taken(name):
            await asyncio.Event().wait()

    most = LIMITS.at_work + LIMITS.waiting
    flood = [asyncio.create_task(ask(f"uid-{number}")) for number in range(16) for _ in range(most)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(ask("uid-other")) for _ in range(100)]
    await asyncio.sleep(0)

    assert not any(each.done() for each in others)
    await end(*flood, *others)


async def test_what_comes_in_before_the_end_is_answered() -> None:
    client, reports = OneClient(), list[str]()
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, Turns(LIMITS), reports.append)
    await desk.take(asked(client, "uid-a"))
    await settled(lambda: len(client.requests) == 1)

    draining = asyncio.create_task(desk.drain())
    await asyncio.sleep(0)
    await client.answer(1, b"{}")
    await draining

    assert reports == ["answered"]


@pytest.mark.parametrize(
    ("body", "headers"), [(MAX_BODY + 1, None), (0, {"X": "x" * MAX_BODY})], ids=["body", "headers"]
)
async def test_a_request_that_is_too_large_is_refused_before_its_turn(
    body: int, headers: dict[str, str] | None
) -> None:
    """While it waited, its bytes and those of thousands of others would be kept."""
    client, reports = OneClient(most=1000), list[str]()
    turns = Turns(Limits(at_work=1))
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, turns, reports.append)

    async with asyncio.timeout(5), turns.taken("uid-a"):
        await desk.take(Msg(cast("Client", client), ASKED, ASKER, data=b" " * body, headers=headers))
        while not client.answers:
            await asyncio.sleep(0)

    [(_, answer)] = client.answers
    assert answer["Status"] == "408"
    assert reports == ["refused"]
    assert client.requests == []


@pytest.mark.parametrize(("call", "told"), [("DIRECT.GET", b""), ("STREAM.MSG.GET", b"too much to do")])
async def test_who_asks_for_too_much_is_told_so(call: str, told: bytes) -> None:
    """The server remembers a request until it is answered."""
    client, reports = OneClient(most=1000), list[str]()
    turns = Turns(Limits(at_work=1, waiting=0))
    relay, _ = await started(client)
    desk = Desk(cast("Client", client), READS, relay, turns, reports.append)
    subject = f"pw.read.uid-a.{call}.KV_pw_cache_runs"

    async with asyncio.timeout(5), turns.taken("uid-a"):
        await desk.take(Msg(cast("Client", client), subject, ASKER, data=b"{}"))
        while not client.answers:
            await asyncio.sleep(0)

    [(data, headers)] = client.answers
    assert is_busy(headers)
    assert told in data
    assert reports == ["busy"]


def asked(client: OneClient, uid: str) -> Msg:
    """A look at a stream."""
    return Msg(cast("Client", client), f"pw.read.{uid}.STREAM.INFO.KV_pw_cache_runs", ASKER)


async def settled(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)
