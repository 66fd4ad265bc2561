"""Effects of settling: the text of a dead letter, the pace of parking, memory use, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from paddlewheel.bus.consume import settle
from paddlewheel.bus.consume.settle import backoff
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Delivery
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.fakes import AT, ConsumerFakes, FakeMessage, ScriptedHandler
from paddlewheel.testkit.wait import eventually


class RecordedInstruments(Instruments):
    """Records how messages were settled, and the spans of their handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.settlements: list[tuple[str, str]] = []
        self.spans: list[tuple[str, str]] = []

    def settled(self, durable: str, ending: str) -> None:
        self.settlements.append((durable, ending))

    @contextmanager
    def handling(self, durable: str, traceparent: str) -> Iterator[None]:
        self.spans.append((durable, traceparent))
        yield


@pytest.fixture
def fakes() -> ConsumerFakes:
    return ConsumerFakes(instruments=RecordedInstruments())


def settlements(fakes: ConsumerFakes) -> list[tuple[str, str]]:
    assert isinstance(fakes.instruments, RecordedInstruments)
    return fakes.instruments.settlements


@pytest.mark.parametrize(
    ("message", "troubles", "text"),
    [
        (FakeMessage(attempt=7), [], "the process died during every attempt"),
        (FakeMessage(), [Permanent("NoSuchSet", "create it")], "create it"),
        (FakeMessage(), [Retry("Busy", "try later")] * 3, "Busy: try later"),
        (FakeMessage(), [ZeroDivisionError("by zero")] * 3, "ZeroDivisionError: by zero"),
    ],
    ids=["poison", "permanent", "retries used up", "bug"],
)
async def test_a_dead_letter_says_why(
    fakes: ConsumerFakes, message: FakeMessage, troubles: list[Exception], text: str
) -> None:
    await fakes.settle(fakes.settler(ScriptedHandler(list(troubles))), message)
    assert fakes.dead.messages == [text]


async def test_parking_is_retried_at_growing_intervals(fakes: ConsumerFakes) -> None:
    message = FakeMessage()
    fakes.dead.unreachable = 3
    task = asyncio.create_task(fakes.settler(ScriptedHandler([Permanent("Bad", "x")])).settle(message))
    await eventually(lambda: fakes.dead.unreachable == 2)
    for attempt in (1, 2, 3):
        assert fakes.dead.unreachable == 3 - attempt
        await fakes.clock.advance(backoff(attempt) * 0.9)
        assert (fakes.dead.unreachable, fakes.dead.parked) == (3 - attempt, [])
        await fakes.clock.advance(backoff(attempt) * 0.2)
    await task
    assert fakes.dead.parked == [(1, "Bad", 1)]


async def test_only_the_latest_ended_messages_are_remembered(
    fakes: ConsumerFakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_REMEMBERED", 2)
    script = ScriptedHandler([])
    settler = fakes.settler(script)
    for number in (1, 2, 3):
        await fakes.settle(settler, FakeMessage(number, unreachable=1))
    for number in (3, 2):
        await fakes.settle(settler, FakeMessage(number, attempt=2))
    assert len(script.attempts) == 3
    await fakes.settle(settler, FakeMessage(1, attempt=2))
    assert len(script.attempts) == 4


async def test_a_handler_gets_the_message_as_it_was_stored(fakes: ConsumerFakes) -> None:
    taken: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        taken.append(delivery)

    message = FakeMessage(5, attempt=2)
    await fakes.settle(fakes.settler(handle), message)
    (delivery,) = taken
    assert (delivery.subject, delivery.sequence, delivery.attempt) == (message.subject, 5, 2)
    assert (delivery.published_at, delivery.event.id) == (AT, "5")


async def test_every_attempt_is_counted_with_its_ending(fakes: ConsumerFakes) -> None:
    await fakes.settle(fakes.settler(ScriptedHandler([Retry("Busy")])), FakeMessage(1))
    await fakes.settle(fakes.settler(ScriptedHandler([Permanent("Bad", "x")])), FakeMessage(2))
    assert settlements(fakes) == [("d", "retried"), ("d", "acked"), ("d", "parked")]


async def test_a_handler_runs_in_a_span_of_its_consumer(fakes: ConsumerFakes) -> None:
    await fakes.settle(fakes.settler(ScriptedHandler([])), FakeMessage())
    assert isinstance(fakes.instruments, RecordedInstruments)
    assert [durable for durable, _ in fakes.instruments.spans] == ["d"]


async def test_facts_of_a_newer_release_are_acknowledged_counted_and_told_once(
    fakes: ConsumerFakes,
) -> None:
    script = ScriptedHandler([])
    settler = fakes.settler(script)
    messages = [make_newer(n, name) for n, name in enumerate(("Paused", "Paused", "Resized"), 1)]
    with capture_logs() as logs:
        for message in messages:
            await fakes.settle(settler, message)
    assert [message.ends for message in messages] == [["ack"]] * 3
    assert (script.attempts, fakes.dead.parked) == ([], [])
    assert settlements(fakes) == [("d", "unknown")] * 3
    told = [entry["type"] for entry in logs if "does not know" in entry["event"]]
    assert told == ["paddlewheel.jobs.v1.JobPaused", "paddlewheel.jobs.v1.JobResized"]


async def test_a_publisher_that_invents_types_fills_no_log(fakes: ConsumerFakes) -> None:
    settler = fakes.settler(ScriptedHandler([]))
    with capture_logs() as logs:
        for number in range(200):
            await fakes.settle(settler, make_newer(number, "Paused" + "x" * number))
    assert len([entry for entry in logs if "does not know" in entry["event"]]) == 64
    assert len(settlements(fakes)) == 200


def make_newer(sequence: int, fact: str) -> FakeMessage:
    """A fact about a job whose type this release has not."""
    message = FakeMessage(sequence)
    message.headers["ce-type"] = f"paddlewheel.jobs.v1.Job{fact}"
    message.subject = f"pw.evt.jobs.job.{fact.lower()}.v1.default.uid"
    return message
