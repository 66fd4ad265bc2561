"""Requests end with their answer, in time, or with a reason, and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from paddlewheel.bus.nats import answers as module
from paddlewheel.bus.nats.answers import Answer, Answers
from paddlewheel.core.errors import Retry

LONG = 60.0


def never(frame: bytes) -> None:
    raise AssertionError(f"{frame!r} was sent again")


async def test_each_request_gets_its_own_answer() -> None:
    answers = Answers(never)
    (first, one), (second, two) = answers.expect("a", LONG), answers.expect("a", LONG)
    answers.take(second, b"", b"2")
    answers.take(first, b"", b"1")
    assert (await one, await two) == (Answer(b"", b"1"), Answer(b"", b"2"))
    assert len(answers) == 0


async def test_nobody_listening_is_no_answer() -> None:
    answers = Answers(never)
    token, answer = answers.expect("a", LONG)
    answers.take(token, b"NATS/1.0 503\r\n\r\n", b"")
    assert await answer is None


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    answers = Answers(never)
    token, answer = answers.expect("a", LONG)
    answer.cancel()
    answers.take(token, b"", b"late")
    answers.take(b"unknown", b"", b"")
    assert len(answers) == 0


async def test_every_request_ends_in_its_time() -> None:
    answers = Answers(never)
    waits = [answers.expect(f"s{number}", 0.01 * (number + 1)) for number in range(3)]
    for number, (_, answer) in enumerate(waits):
        with pytest.raises(Retry, match=f"s{number}: no answer in time"):
            await asyncio.wait_for(answer, 10)
    _, answer = answers.expect("later", 0.01)
    with pytest.raises(Retry, match="later"):
        await asyncio.wait_for(answer, 10)
    assert len(answers) == 0


async def test_a_refused_subject_fails_its_requests_only() -> None:
    answers = Answers(never)
    (_, refused), (token, other) = answers.expect("pw.Evt.a", LONG), answers.expect("pw.evt.b", LONG)
    answers.fail(lambda subject: Retry("NotPermitted", subject), "pw.evt.A")
    with pytest.raises(Retry, match=r"NotPermitted: pw\.Evt\.a"):
        await refused
    answers.take(token, b"", b"yes")
    assert await other == Answer(b"", b"yes")


async def test_a_loss_fails_all() -> None:
    answers = Answers(never)
    waits = [answers.expect("a", LONG)[1] for _ in range(2)]
    answers.fail(lambda subject: Retry("BusUnreachable", subject))
    assert [type(e) for e in await asyncio.gather(*waits, return_exceptions=True)] == [Retry, Retry]
    assert len(answers) == 0


async def test_only_what_may_be_repeated_is_sent_again_until_its_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESEND", 0.01)
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    answers = Answers(sent.put_nowait)
    (again, answer), (_, once) = answers.expect("a", LONG), answers.expect("b", 0.1)
    answers.repeat(again, b"frame")
    assert [await asyncio.wait_for(sent.get(), 10) for _ in range(2)] == [b"frame", b"frame"]
    answers.take(again, b"", b"done")
    assert await answer == Answer(b"", b"done")
    with pytest.raises(Retry):
        await asyncio.wait_for(once, 10)
    assert set(sent._queue) <= {b"frame"}  # type: ignore[attr-defined]
