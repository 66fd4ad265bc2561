"""How a message ends, by hand and clock: every road through the settle point and the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.dead_letters import dead_letter
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.lanes import lane_of, run_consumer
from paddlewheel.bus.ports import Delivery, Handler, Subscription
from paddlewheel.bus.settle import BACKOFF_CAP, Message, Settler, backoff
from paddlewheel.contracts import wire
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.wait import eventually

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class HandMessage:
    """A message that writes down what is done to it."""

    sequence: int = 1
    uid: str = "uid-1"
    attempt: int = 1
    stream: str = "PW_JOBS"
    published_at: datetime = AT
    ends: list[str] = field(default_factory=list)
    unreachable: int = 0

    def __post_init__(self) -> None:
        event = make_event(
            JobGated(), id=str(self.sequence), source="t", namespace="ns", uid=self.uid, time=AT
        )
        self.subject = event.subject
        self.data, self.headers = wire.encode(event)

    async def ack(self) -> None:
        self._end("ack")

    async def term(self) -> None:
        self._end("term")

    async def release(self) -> None:
        self.ends.append("release")

    async def in_progress(self) -> None:
        self.ends.append("in_progress")

    def _end(self, how: str) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise Retry("BusUnreachable")
        self.ends.append(how)


@dataclass
class HandDead:
    """Dead letters that may be out of order for a while."""

    parked: list[tuple[int, str, int]] = field(default_factory=list)
    unreachable: int = 0

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise Retry("BusUnreachable")
        self.parked.append((message.sequence, error.reason, attempts))


@dataclass
class Script:
    """A handler that fails as told, once per entry, and then succeeds."""

    troubles: list[Exception]
    attempts: list[int] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        self.attempts.append(delivery.attempt)
        if self.troubles:
            raise self.troubles.pop(0)


@dataclass
class Bench:
    dead: HandDead = field(default_factory=HandDead)
    clock: ManualClock = field(default_factory=ManualClock)
    instruments: Instruments = field(default_factory=Instruments)

    def settler(self, handle: Handler, max_attempts: int = 3) -> Settler:
        wanted = Subscription("d", "PW_JOBS", (">",), max_attempts=max_attempts)
        return Settler(wanted, handle, self.dead, self.clock, self.instruments)

    async def settle(self, settler: Settler, message: HandMessage) -> None:
        """Let it end, moving the clock as far as it asks."""
        task = asyncio.create_task(settler.settle(message))
        while not task.done():
            await self.clock.advance(BACKOFF_CAP)
        await task


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_success_acks(bench: Bench) -> None:
    message, script = HandMessage(), Script([])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts, bench.dead.parked) == (["ack"], [1], [])


async def test_retry_waits_and_counts(bench: Bench) -> None:
    message, script = HandMessage(), Script([Retry("Busy"), Retry("Busy", after=7)])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["ack"], [1, 2, 3])


async def test_retry_waits_as_long_as_it_says(bench: Bench) -> None:
    script = Script([Retry("Busy", after=7)])
    task = asyncio.create_task(bench.settler(script).settle(HandMessage()))
    await eventually(lambda: script.attempts == [1])
    await bench.clock.advance(6.9)
    assert script.attempts == [1]
    await bench.clock.advance(0.2)
    await task
    assert script.attempts == [1, 2]


async def test_permanent_parks_at_once(bench: Bench) -> None:
    message, script = HandMessage(), Script([Permanent("NoSuchSet", "make it")])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [1])
    assert bench.dead.parked == [(1, "NoSuchSet", 1)]


@pytest.mark.parametrize(
    ("trouble", "reason"), [(Retry("Busy"), "Busy"), (ZeroDivisionError(), "Bug")], ids=["retry", "bug"]
)
async def test_the_last_attempt_parks(bench: Bench, trouble: Exception, reason: str) -> None:
    message, script = HandMessage(), Script([trouble] * 9)
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [1, 2, 3])
    assert bench.dead.parked == [(1, reason, 3)]


async def test_a_message_that_kills_its_process_is_parked_unhandled(bench: Bench) -> None:
    message, script = HandMessage(attempt=4), Script([])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [])
    assert bench.dead.parked == [(1, "TooManyAttempts", 3)]


async def test_attempts_of_the_server_count(bench: Bench) -> None:
    message, script = HandMessage(attempt=2), Script([Retry("Busy")])
    await bench.settle(bench.settler(script), message)
    assert script.attempts == [2, 3]


async def test_nothing_ends_before_it_is_parked(bench: Bench) -> None:
    message, script = HandMessage(), Script([Permanent("Bad", "x")])
    bench.dead.unreachable = 3
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts, bench.dead.parked) == (["term"], [1], [(1, "Bad", 1)])


@pytest.mark.parametrize("trouble", [[], [Permanent("Bad", "x")]], ids=["acked", "parked"])
async def test_a_redelivery_after_a_lost_ack_has_no_second_effect(
    bench: Bench, trouble: list[Exception]
) -> None:
    script = Script(list(trouble))
    settler = bench.settler(script)
    await bench.settle(settler, HandMessage(unreachable=1))
    again = HandMessage(attempt=2)
    await bench.settle(settler, again)
    assert (again.ends, script.attempts, len(bench.dead.parked)) == (["ack"], [1], len(trouble))


async def test_the_same_number_in_a_stream_made_anew_is_another_message(bench: Bench) -> None:
    script = Script([])
    settler = bench.settler(script)
    await bench.settle(settler, HandMessage())
    await bench.settle(settler, HandMessage(published_at=datetime(2026, 1, 2, tzinfo=UTC)))
    assert script.attempts == [1, 1]


async def test_what_can_never_be_parked_is_never_let_go(bench: Bench) -> None:
    async def refuse(*_: object) -> None:
        raise Permanent("TooLarge", "for the dead-letter stream")

    message, script = HandMessage(), Script([Permanent("Bad", "x")])
    bench.dead.park = refuse  # type: ignore[assignment]
    task = asyncio.create_task(bench.settler(script).settle(message))
    for _ in range(5):
        await bench.clock.advance(BACKOFF_CAP)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (message.ends, script.attempts) == ([], [1])


async def test_poison_is_parked_with_its_reason(bench: Bench) -> None:
    message, script = HandMessage(), Script([])
    message.data = b"nonsense"
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [])
    assert bench.dead.parked == [(1, "MalformedEvent", 1)]


async def test_cancellation_leaves_the_message_unsettled(bench: Bench) -> None:
    message = HandMessage()
    task = asyncio.create_task(bench.settler(Script([Retry("Busy")])).settle(message))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert message.ends == []


def test_backoff_doubles_to_a_cap() -> None:
    assert [backoff(n) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert backoff(1000) == BACKOFF_CAP


# --- lanes


@dataclass
class HandSource:
    """Hands out prepared messages, then waits for ever."""

    messages: list[HandMessage]
    rooms: list[int] = field(default_factory=list)

    async def fetch(self, room: int) -> list[Message]:
        self.rooms.append(room)
        if not self.messages:
            await asyncio.Event().wait()
        taken, self.messages = self.messages[:room], self.messages[room:]
        return list(taken)


@asynccontextmanager
async def consuming(bench: Bench, source: HandSource, handle: Handler, bound: int = 8) -> AsyncIterator[None]:
    wanted = Subscription("d", "PW_JOBS", (">",), max_in_flight=bound, ack_wait=30.0)
    task = asyncio.create_task(
        run_consumer(source, wanted, handle, bench.dead, bench.clock, bench.instruments)
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_retried_message_holds_back_its_own_object_only(bench: Bench) -> None:
    order: list[int] = []

    async def handle(delivery: Delivery) -> None:
        if delivery.sequence == 1 and delivery.attempt == 1:
            raise Retry("Busy", after=5)
        order.append(delivery.sequence)

    source = HandSource([HandMessage(1, "a"), HandMessage(2, "a"), HandMessage(3, "b")])
    async with consuming(bench, source, handle):
        await eventually(lambda: order == [3])
        await bench.clock.advance(5)
        await eventually(lambda: order == [3, 1, 2])


async def test_held_messages_are_marked_in_progress(bench: Bench) -> None:
    gate = asyncio.Event()
    first, second = HandMessage(1, "a"), HandMessage(2, "a")

    async def handle(_: Delivery) -> None:
        await gate.wait()

    async with consuming(bench, HandSource([first, second]), handle):

        async def marked_thrice() -> bool:
            await bench.clock.advance(10)
            return first.ends == second.ends == ["in_progress"] * 3

        await eventually(marked_thrice)
        gate.set()
        await eventually(lambda: first.ends[-1] == second.ends[-1] == "ack")


async def test_a_message_delivered_again_while_held_is_handled_once(bench: Bench) -> None:
    gate, handled = asyncio.Event(), []

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.attempt)
        await gate.wait()

    source = HandSource([HandMessage(1), HandMessage(1, attempt=2), HandMessage(2)])
    async with consuming(bench, source, handle):
        await eventually(lambda: handled == [1])
        gate.set()
        await eventually(lambda: handled == [1, 1])


async def test_what_is_unsettled_at_the_end_is_given_back_unhandled(bench: Bench) -> None:
    gate, started = asyncio.Event(), asyncio.Event()
    messages = [HandMessage(1, "a"), HandMessage(2, "a"), HandMessage(3, "b")]

    async def handle(delivery: Delivery) -> None:
        if delivery.subject.endswith(".b"):
            return
        started.set()
        await gate.wait()

    async with consuming(bench, HandSource(list(messages)), handle):
        await started.wait()
        await eventually(lambda: messages[2].ends == ["ack"])
    assert [m.ends for m in messages] == [["release"], ["release"], ["ack"]]


async def test_room_is_asked_for_only_when_there_is_some(bench: Bench) -> None:
    gate = asyncio.Event()

    async def handle(_: Delivery) -> None:
        await gate.wait()

    source = HandSource([HandMessage(n, f"u{n}") for n in range(1, 6)])
    async with consuming(bench, source, handle, bound=2):
        await eventually(lambda: source.rooms == [2])
        gate.set()
        await eventually(lambda: not source.messages)
    assert max(source.rooms) == 2


def test_the_lane_is_the_objects_uid() -> None:
    assert lane_of("pw.evt.jobs.job.running.v1.ns.uid-1") == "uid-1"
    assert lane_of("odd") == "odd"


# --- dead letters


def test_a_dead_letter_says_all_there_is_to_know() -> None:
    message = HandMessage(7, attempt=3)
    message.headers["Nats-Expected-Stream"] = "X"
    letter = dead_letter("d", message, Permanent("Bad", "two\r\nlines"), 3)
    again = dead_letter("d", message, Permanent("Bad", "other words"), 4)
    assert (letter.subject, letter.data) == ("pw.dlq.d", message.data)
    assert letter.headers["Nats-Msg-Id"] == again.headers["Nats-Msg-Id"]
    assert letter.headers["pw-dlq-header-Nats-Msg-Id"] == "7"
    assert letter.headers["pw-dlq-header-Nats-Expected-Stream"] == "X"
    assert "Nats-Expected-Stream" not in letter.headers
    assert letter.headers["ce-type"] == "paddlewheel.jobs.v1.JobGated"
    assert letter.headers["pw-dlq-message"] == "two lines"
    assert letter.headers["pw-dlq-published-at"] == "2026-01-01T00:00:00Z"
