"""How a message ends, by hand and clock: every road through the settle point and the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.consume import consumer
from paddlewheel.bus.consume.keyed_ordering import ordering_key
from paddlewheel.bus.consume.settle import ATTEMPT_MAX_INTERVAL_SECONDS, backoff
from paddlewheel.bus.ports import Delivery, Handler, Subscription
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.fakes import ConsumerFakes, FakeMessage, FakeSource, ScriptedHandler, running
from paddlewheel.testkit.wait import eventually

MAX_ATTEMPTS = Subscription("d", "PW_JOBS", (">",)).max_attempts


@pytest.fixture
def bench() -> ConsumerFakes:
    return ConsumerFakes()


async def test_success_acks(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(), ScriptedHandler([])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts, bench.dead.parked) == (["ack"], [1], [])


async def test_retry_waits_and_counts(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(), ScriptedHandler([Retry("Busy"), Retry("Busy", after=7)])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["ack"], [1, 2, 3])


async def test_retry_waits_as_long_as_it_says(bench: ConsumerFakes) -> None:
    script = ScriptedHandler([Retry("Busy", after=7)])
    task = asyncio.create_task(bench.settler(script).settle(FakeMessage()))
    await eventually(lambda: script.attempts == [1])
    await bench.clock.advance(6.9)
    assert script.attempts == [1]
    await bench.clock.advance(0.2)
    await task
    assert script.attempts == [1, 2]


async def test_permanent_parks_at_once(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(), ScriptedHandler([Permanent("NoSuchSet", "make it")])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [1])
    assert bench.dead.parked == [(1, "NoSuchSet", 1)]


@pytest.mark.parametrize(
    ("trouble", "reason"), [(Retry("Busy"), "Busy"), (ZeroDivisionError(), "Bug")], ids=["retry", "bug"]
)
async def test_the_last_attempt_parks(bench: ConsumerFakes, trouble: Exception, reason: str) -> None:
    message, script = FakeMessage(), ScriptedHandler([trouble] * 9)
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [1, 2, 3])
    assert bench.dead.parked == [(1, reason, 3)]


async def test_a_message_that_kills_its_process_is_parked_unhandled(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(attempt=7), ScriptedHandler([])
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [])
    assert bench.dead.parked == [(1, "TooManyAttempts", 6)]


async def test_redeliveries_do_not_count_as_attempts(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(attempt=5), ScriptedHandler([Retry("Busy")] * 3)
    await bench.settle(bench.settler(script), message)
    assert (script.attempts, bench.dead.parked) == ([5, 6, 7], [(1, "Busy", 7)])


async def test_suspected_messages_are_handled_one_at_a_time_in_changing_order_and_others_at_once(
    bench: ConsumerFakes,
) -> None:
    running = most = 0
    orders: list[list[int]] = []

    async def handle(delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        orders[-1].append(delivery.sequence)

    for attempt in (9, 10, 11):
        orders.append([])
        messages = [FakeMessage(n, f"u{n}", attempt) for n in range(1, 9)]
        source = FakeSource([*messages, FakeMessage(9, "u9")])
        async with consuming(bench, source, handle, bound=9):
            await eventually(lambda: orders[-1] == [9])
            most = 0
            await bench.clock.advance(1)
            await eventually(lambda: len(orders[-1]) == 9)
        assert most == 1
    assert len({tuple(order) for order in orders}) == 3


async def test_what_kills_the_process_is_parked_alone_and_its_neighbours_are_handled(
    bench: ConsumerFakes,
) -> None:
    """A process dies at once and gives nothing back; with a plain limit all 16 would be parked."""
    culprit, unfinished, lives = 5, set(range(1, 17)), 0

    async def handle(delivery: Delivery) -> None:
        if delivery.sequence == culprit:
            died.set()
            await asyncio.Event().wait()
        await bench.clock.sleep(0.01)
        handled.add(delivery.sequence)

    def parked() -> set[int]:
        return {number for number, _, _ in bench.dead.parked}

    while unfinished:
        lives += 1
        died, handled = asyncio.Event(), set[int]()
        source = FakeSource([FakeMessage(n, f"u{n}", lives) for n in sorted(unfinished)])
        async with consuming(bench, source, handle, bound=16):
            while not died.is_set() and unfinished - handled - parked():
                await bench.clock.advance(0.005)
        unfinished -= handled | parked()
    assert bench.dead.parked == [(culprit, "TooManyAttempts", 2 * MAX_ATTEMPTS)]


async def test_nothing_ends_before_it_is_parked(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(), ScriptedHandler([Permanent("Bad", "x")])
    bench.dead.unreachable = 3
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts, bench.dead.parked) == (["term"], [1], [(1, "Bad", 1)])


@pytest.mark.parametrize("trouble", [[], [Permanent("Bad", "x")]], ids=["acked", "parked"])
async def test_a_redelivery_after_a_lost_ack_has_no_second_effect(
    bench: ConsumerFakes, trouble: list[Exception]
) -> None:
    script = ScriptedHandler(list(trouble))
    settler = bench.settler(script)
    await bench.settle(settler, FakeMessage(unreachable=1))
    again = FakeMessage(attempt=2)
    await bench.settle(settler, again)
    assert (again.ends, script.attempts, len(bench.dead.parked)) == (["ack"], [1], len(trouble))


async def test_the_same_sequence_in_a_recreated_stream_is_another_message(bench: ConsumerFakes) -> None:
    script = ScriptedHandler([])
    settler = bench.settler(script)
    await bench.settle(settler, FakeMessage())
    await bench.settle(settler, FakeMessage(published_at=datetime(2026, 1, 2, tzinfo=UTC)))
    assert script.attempts == [1, 1]


async def test_a_message_that_cannot_be_parked_is_never_acknowledged(bench: ConsumerFakes) -> None:
    async def refuse(*_: object) -> None:
        raise Permanent("TooLarge", "for the dead-letter stream")

    message, script = FakeMessage(), ScriptedHandler([Permanent("Bad", "x")])
    bench.dead.park = refuse  # type: ignore[assignment]
    task = asyncio.create_task(bench.settler(script).settle(message))
    for _ in range(5):
        await bench.clock.advance(ATTEMPT_MAX_INTERVAL_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (message.ends, script.attempts) == ([], [1])


async def test_poison_is_parked_with_its_reason(bench: ConsumerFakes) -> None:
    message, script = FakeMessage(), ScriptedHandler([])
    message.data = b"nonsense"
    await bench.settle(bench.settler(script), message)
    assert (message.ends, script.attempts) == (["term"], [])
    assert bench.dead.parked == [(1, "MalformedEvent", 1)]


async def test_cancellation_leaves_the_message_unsettled(bench: ConsumerFakes) -> None:
    message = FakeMessage()
    task = asyncio.create_task(bench.settler(ScriptedHandler([Retry("Busy")])).settle(message))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert message.ends == []


def test_backoff_doubles_to_a_cap() -> None:
    assert [backoff(n) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert backoff(1000) == ATTEMPT_MAX_INTERVAL_SECONDS


# --- lanes


@asynccontextmanager
async def consuming(
    bench: ConsumerFakes, source: FakeSource, handle: Handler, bound: int = 8
) -> AsyncIterator[None]:
    wanted = Subscription("d", "PW_JOBS", (">",), max_in_flight=bound, ack_wait=30.0)
    async with running(bench, source, handle, wanted):
        yield


async def test_a_retried_message_holds_back_its_own_object_only(bench: ConsumerFakes) -> None:
    order: list[int] = []

    async def handle(delivery: Delivery) -> None:
        if delivery.sequence == 1 and delivery.attempt == 1:
            raise Retry("Busy", after=5)
        order.append(delivery.sequence)

    source = FakeSource([FakeMessage(1, "a"), FakeMessage(2, "a"), FakeMessage(3, "b")])
    async with consuming(bench, source, handle):
        await eventually(lambda: order == [3])
        await bench.clock.advance(5)
        await eventually(lambda: order == [3, 1, 2])


async def test_held_messages_are_marked_in_progress(bench: ConsumerFakes) -> None:
    gate = asyncio.Event()
    first, second = FakeMessage(1, "a"), FakeMessage(2, "a")

    async def handle(_: Delivery) -> None:
        await gate.wait()

    async with consuming(bench, FakeSource([first, second]), handle):

        async def marked_thrice() -> bool:
            await bench.clock.advance(10)
            return first.ends == second.ends == ["in_progress"] * 3

        await eventually(marked_thrice)
        gate.set()
        await eventually(lambda: first.ends[-1] == second.ends[-1] == "ack")


async def test_a_message_delivered_again_while_held_is_handled_once(bench: ConsumerFakes) -> None:
    gate, handled = asyncio.Event(), []

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.attempt)
        await gate.wait()

    source = FakeSource([FakeMessage(1), FakeMessage(1, attempt=2), FakeMessage(2)])
    async with consuming(bench, source, handle):
        await eventually(lambda: handled == [1])
        gate.set()
        await eventually(lambda: handled == [1, 1])


async def test_what_is_unsettled_at_the_end_is_given_back_unhandled(bench: ConsumerFakes) -> None:
    gate, started = asyncio.Event(), asyncio.Event()
    messages = [FakeMessage(1, "a"), FakeMessage(2, "a"), FakeMessage(3, "b")]

    async def handle(delivery: Delivery) -> None:
        if delivery.subject.endswith(".b"):
            return
        started.set()
        await gate.wait()

    async with consuming(bench, FakeSource(list(messages)), handle):
        await started.wait()
        await eventually(lambda: messages[2].ends == ["ack"])
    assert [m.ends for m in messages] == [["release"], ["release"], ["ack"]]


async def test_a_consumer_that_takes_long_to_stop_gives_back_what_it_holds(bench: ConsumerFakes) -> None:
    """`end` cancels again and again."""
    begun, message = asyncio.Event(), FakeMessage()

    async def handle(_: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    source = FakeSource([message], closes_in=1.2)
    async with consuming(bench, source, handle, bound=1):
        await begun.wait()
    assert (source.closed, message.ends) == (1, ["release"])


async def test_a_source_that_cannot_be_closed_keeps_no_message(
    bench: ConsumerFakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, message = asyncio.Event(), FakeMessage()
    monkeypatch.setattr(consumer, "CLOSE_TIMEOUT_SECONDS", 0.1)

    async def handle(_: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with consuming(bench, FakeSource([message], closes_in=60), handle, bound=1):
        await begun.wait()
    assert message.ends == ["release"]


async def test_room_is_asked_for_only_when_there_is_some(bench: ConsumerFakes) -> None:
    gate = asyncio.Event()

    async def handle(_: Delivery) -> None:
        await gate.wait()

    source = FakeSource([FakeMessage(n, f"u{n}") for n in range(1, 6)])
    async with consuming(bench, source, handle, bound=2):
        await eventually(lambda: source.rooms == [2])
        gate.set()
        await eventually(lambda: not source.messages)
    assert max(source.rooms) == 2


def test_the_ordering_key_is_the_objects_uid() -> None:
    assert ordering_key("pw.evt.jobs.job.running.v1.ns.uid-1") == "uid-1"
    assert ordering_key("odd") == "odd"
