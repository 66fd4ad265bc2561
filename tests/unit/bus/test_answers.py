"""Requests end with their answer, in time, or with a reason, and leave nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.nats import answers as module
from paddlewheel.bus.nats.answers import Answers
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry, Unavailable

LONG = 60.0


def never() -> None:
    raise AssertionError("an answer is late")


def make_msg(data: bytes = b"", **headers: str) -> Msg:
    return Msg(_client=cast(Any, None), data=data, headers=headers or None)


ONE, TWO = make_msg(b"1"), make_msg(b"2")


async def test_each_request_gets_its_own_answer() -> None:
    answers = Answers(never)
    (first, one), (second, two) = answers.expect("a", LONG), answers.expect("a", LONG)
    answers.take(second, TWO)
    answers.take(first, ONE)
    assert (await one, await two) == (ONE, TWO)
    assert len(answers) == 0


@pytest.mark.parametrize(
    ("msg", "is_nobody"),
    [
        (make_msg(Status="503"), True),
        (make_msg(b"x", Status="503"), False),
        (make_msg(Status="404"), False),
    ],
)
async def test_only_the_servers_503_says_that_nobody_listens(msg: Msg, is_nobody: bool) -> None:
    answers = Answers(never)
    token, answer = answers.expect("a", LONG)
    answers.take(token, msg)
    assert await answer == (None if is_nobody else msg)


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    answers = Answers(never)
    token, answer = answers.expect("a", LONG)
    answer.cancel()
    answers.take(token, ONE)
    answers.take("unknown", ONE)
    assert len(answers) == 0


async def test_every_request_ends_in_its_time() -> None:
    answers = Answers(never)
    waits = [answers.expect(f"s{number}", 0.01 * (number + 1)) for number in range(3)]
    for number, (_, answer) in enumerate(waits):
        with pytest.raises(Unavailable, match=f"s{number}: no answer in time"):
            await asyncio.wait_for(answer, 10)
    _, answer = answers.expect("later", 0.01)
    with pytest.raises(Unavailable, match="later"):
        await asyncio.wait_for(answer, 10)
    assert len(answers) == 0


async def test_a_refused_subject_fails_its_requests_only() -> None:
    answers = Answers(never)
    (_, refused), (token, other) = answers.expect("pw.Evt.a", LONG), answers.expect("pw.evt.b", LONG)
    answers.fail(lambda subject: Retry("NotPermitted", subject), "pw.evt.A")
    with pytest.raises(Retry, match=r"NotPermitted: pw\.Evt\.a"):
        await refused
    answers.take(token, ONE)
    assert await other == ONE


async def test_a_loss_fails_all() -> None:
    answers = Answers(never)
    waits = [answers.expect("a", LONG)[1] for _ in range(2)]
    answers.fail(lambda subject: Unavailable("BusUnreachable", subject))
    errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(error) for error in errors] == [Unavailable, Unavailable]
    assert len(answers) == 0


@pytest.mark.parametrize("trouble", [None, Unavailable("BusUnreachable"), Permanent("NotStorable", "x")])
async def test_only_what_may_be_repeated_is_sent_again_until_its_answer_comes(
    monkeypatch: pytest.MonkeyPatch, trouble: PaddlewheelError | None
) -> None:
    monkeypatch.setattr(module, "RESEND_INTERVAL_SECONDS", 0.01)
    sent: asyncio.Queue[str] = asyncio.Queue()
    late: list[None] = []

    async def send() -> None:
        sent.put_nowait("a")
        if trouble:
            raise trouble

    answers = Answers(lambda: late.append(None))
    (again, answer), (_, once) = answers.expect("a", LONG), answers.expect("b", 0.1)
    answers.repeat(again, send)
    assert [await asyncio.wait_for(sent.get(), 10) for _ in range(2)] == ["a", "a"]
    answers.take(again, ONE)
    assert await answer == ONE
    with pytest.raises(Unavailable):
        await asyncio.wait_for(once, 10)
    assert len(late) >= 2


async def test_each_is_sent_again_a_second_after_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when another's second is over, which is up to a second later."""
    loop, sent = asyncio.get_running_loop(), list[tuple[str, float]]()
    began = now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    answers = Answers(lambda: None)

    def ask(name: str) -> None:
        async def send() -> None:
            sent.append((name, round(now - began, 1)))

        token, _ = answers.expect(name, LONG)
        answers.repeat(token, send)

    for tenth in range(31):
        if tenth in (0, 6):
            ask("a" if tenth == 0 else "b")
        now = began + tenth / 10 + 0.01
        for _ in range(5):
            await asyncio.sleep(0)

    assert sent == [("a", 1.0), ("b", 1.5), ("a", 2.0), ("b", 2.5), ("a", 3.0)]
