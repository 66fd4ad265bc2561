"""Writes on their way through bus-auth: published once or not at all, and told apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.admin.set_quotas import FOUND, QUOTAS, Quotas
from paddlewheel.bus.admin.set_reads import is_busy
from paddlewheel.bus.admin.set_writes import MAX_HEADERS, is_unknown, write_prefix
from paddlewheel.bus.markers import DONE, EXPECTED
from paddlewheel.bus.nats.client import NOT_PERMITTED, Client
from paddlewheel.bus.nats.errors import MESSAGE_TOO_LARGE, STORE_FULL
from paddlewheel.bus.nats.set_requests import Desk
from paddlewheel.bus.nats.set_writer import LIMITS, WRITES, Publication
from paddlewheel.bus.streams import WORK
from paddlewheel.bus.turns import Limits, Turns
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.testkit.clock import ManualClock

ASKER = "_R_.a.b"
STATE = "$KV.pw_cache_runs.uid-a.run.state"
CHUNKS = [work_subject("uid-a", "run", 0, number) for number in range(5)]
STORED = b'{"stream": "KV_pw_cache_runs", "seq": 7}'
WRONG = b'{"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 3"}}'
QUOTA = 10_000


@dataclass
class OneClient:
    """A server that answers as told, and remembers what it was asked."""

    answer: Callable[[], bytes | None] = lambda: STORED
    there: list[str] = field(default_factory=list)
    published: list[tuple[str, bytes, Mapping[str, str] | None]] = field(default_factory=list)
    looked: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[bytes, Mapping[str, str]]] = field(default_factory=list)
    page: int = 2

    async def ask(
        self,
        subject: str,
        data: bytes,
        within: float,
        *,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
    ) -> Msg | None:
        await asyncio.sleep(0)
        if subject.startswith("$JS."):
            return msg("", self._info(subject, json.loads(data)))
        assert not repeat, "a write would be published twice"
        self.published.append((subject, data, headers))
        found = self.answer()
        return None if found is None else msg("", found)

    def _info(self, subject: str, wanted: dict[str, Any]) -> bytes:
        self.looked.append({"subject": subject, **wanted})
        page = self.there[wanted["offset"] :][: self.page]
        return json.dumps({"total": len(self.there), "state": {"subjects": dict.fromkeys(page, 1)}}).encode()

    async def publish(self, reply: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        assert reply == ASKER
        self.answers.append((data, headers or {}))


def msg(subject: str, data: bytes, headers: dict[str, str] | None = None) -> Msg:
    return Msg(cast("Client", None), subject=subject, reply=ASKER, data=data, headers=headers)


@dataclass
class Scene:
    """bus-auth's writer at one server."""

    client: OneClient
    clock: ManualClock = field(default_factory=ManualClock)
    outcomes: list[str] = field(default_factory=list)
    turns: Turns = field(default_factory=lambda: Turns(LIMITS))

    def __post_init__(self) -> None:
        quotas = Quotas({**QUOTAS, WORK.name: QUOTA})
        client = cast("Client", self.client)
        worker = Publication(client, quotas, self.clock)
        self.desk = Desk(client, WRITES, worker, self.turns, self.outcomes.append)

    async def write(
        self, subject: str, data: bytes = b"x", headers: dict[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """What is answered."""
        before = len(self.client.answers)
        await self.desk.take(msg(f"{write_prefix('uid-a')}.{subject}", data, headers))
        async with asyncio.timeout(10):
            while len(self.client.answers) == before:
                await asyncio.sleep(0)
        return self.client.answers[-1]


@pytest.mark.parametrize("answer", [STORED, WRONG])
async def test_what_the_stream_answers_is_handed_back(answer: bytes) -> None:
    scene = Scene(OneClient(lambda: answer))

    told = await scene.write(STATE, b"data", {EXPECTED: "3", "Nats-Request-Info": "{}"})

    assert told == (answer, {})
    assert scene.client.published == [(STATE, b"data", {EXPECTED: "3"})]
    assert scene.outcomes == ["answered"]


async def test_without_a_stream_the_agent_hears_so() -> None:
    told = await Scene(OneClient(lambda: None)).write(STATE)

    assert told == (b"", {"Status": "503"})


def raising(error: Exception) -> Callable[[], bytes]:
    def answer() -> bytes:
        raise error

    return answer


async def test_what_was_published_and_not_acknowledged_is_told_apart_from_what_was_not_published() -> None:
    lost = Scene(OneClient(raising(Unavailable("BusUnreachable"))))
    refused = Scene(OneClient(raising(Retry(NOT_PERMITTED))))

    (_, unknown), (_, busy) = await lost.write(STATE), await refused.write(STATE)

    assert (is_unknown(unknown), is_busy(unknown)) == (True, False)
    assert (is_unknown(busy), is_busy(busy)) == (False, True)
    assert (lost.outcomes, refused.outcomes) == (["unanswered"], ["busy"])
    assert len(lost.client.published) == 1


async def test_what_finds_no_turn_is_not_published() -> None:
    scene = Scene(OneClient(), turns=Turns(Limits(at_work=1, waiting=0)))

    async with scene.turns.taken("uid-a"):
        _, headers = await scene.write(STATE)

    assert is_busy(headers)
    assert scene.client.published == []


@pytest.mark.parametrize(
    ("data", "headers"),
    [(bytes(641 * 1024), None), (b"x", {"X": "x" * MAX_HEADERS})],
    ids=["body", "headers"],
)
async def test_what_is_too_large_is_refused_before_its_turn(
    data: bytes, headers: dict[str, str] | None
) -> None:
    scene = Scene(OneClient(), turns=Turns(Limits(at_work=1)))

    async with asyncio.timeout(5), scene.turns.taken("uid-a"):
        answer, _ = await scene.write(STATE, data, headers)

    assert json.loads(answer)["error"]["err_code"] == MESSAGE_TOO_LARGE
    assert (scene.client.published, scene.outcomes) == ([], ["refused"])


async def test_what_is_no_write_of_the_set_is_refused() -> None:
    scene = Scene(OneClient())

    answer, _ = await scene.write(STATE.replace("uid-a", "uid-b"))

    assert "no record or chunk" in json.loads(answer)["error"]["description"]
    assert (scene.client.published, scene.outcomes) == ([], ["refused"])


async def test_a_set_with_its_share_used_up_stores_no_more_and_ends_its_work() -> None:
    scene = Scene(OneClient(there=CHUNKS))
    for chunk in CHUNKS[:2]:
        await scene.write(chunk, bytes(QUOTA // 2 - 300))

    answer, _ = await scene.write(CHUNKS[2], bytes(1000))
    assert json.loads(answer)["error"]["err_code"] == STORE_FULL
    assert (await scene.write(CHUNKS[0], b"", dict(DONE)))[0] == STORED

    assert scene.outcomes == ["answered", "answered", "full", "answered"]
    assert (await scene.write(CHUNKS[2], bytes(1000)))[0] == STORED


async def test_the_stream_is_asked_what_it_has_of_the_set_once_a_second() -> None:
    scene = Scene(OneClient(there=CHUNKS))
    large = bytes(QUOTA - 5 * FOUND)
    await scene.write(CHUNKS[0], large)

    for _ in range(3):
        await scene.write(CHUNKS[1], large)
    pages = [{"offset": offset} for offset in (0, 2, 4)]
    asked = {"subject": f"$JS.API.STREAM.INFO.{WORK.name}", "subjects_filter": "pw.work.cache.uid-a.>"}
    assert scene.client.looked == [{**asked, **page} for page in pages]

    scene.client.there = []
    await scene.clock.advance(1.0)
    assert (await scene.write(CHUNKS[1], large))[0] == STORED
    assert len(scene.client.looked) == 4


async def test_what_waits_for_the_stream_to_tell_is_judged_by_it() -> None:
    """Eight at once, of which the first asks."""
    scene = Scene(OneClient())
    await scene.write(CHUNKS[0], bytes(QUOTA - 500))

    for chunk in CHUNKS[1:]:
        await scene.desk.take(msg(f"{write_prefix('uid-a')}.{chunk}", bytes(1000)))
    async with asyncio.timeout(10):
        while len(scene.outcomes) < 5:
            await asyncio.sleep(0)

    assert scene.outcomes == 5 * ["answered"]
    assert len(scene.client.looked) == 1


async def test_a_stream_that_does_not_tell_leaves_it_to_the_agent_to_ask_again() -> None:
    scene = Scene(OneClient(there=CHUNKS))
    await scene.write(CHUNKS[0], bytes(QUOTA - 500))

    async def silent(*_: object, **__: object) -> None:
        return None

    scene.client.ask = silent  # type: ignore[method-assign]
    _, headers = await scene.write(CHUNKS[1], bytes(1000))

    assert is_busy(headers)
    assert scene.outcomes[-1] == "busy"


async def test_records_and_work_have_shares_of_their_own() -> None:
    scene = Scene(OneClient())
    await scene.write(CHUNKS[0], bytes(QUOTA - 500))

    assert (await scene.write(STATE, bytes(1000)))[0] == STORED
