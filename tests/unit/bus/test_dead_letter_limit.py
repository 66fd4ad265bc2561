"""A consumer that would park too much stops, and goes on when its dead letters were dealt with."""

from __future__ import annotations

import asyncio

import pytest

from paddlewheel.bus.consume.consumer import DEAD_LETTERS_CHECK_INTERVAL_SECONDS
from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimit, DeadLetterLimitError
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.fakes import ConsumerFakes, FakeMessage, FakeSource, running
from paddlewheel.testkit.wait import eventually

CAPPED = Subscription("d", "PW_JOBS", (">",), max_in_flight=4, max_parked=2, parked_window=60.0)


async def test_the_cap_counts_what_is_within_its_window() -> None:
    clock = ManualClock()
    cap = DeadLetterLimit(2, 60.0, clock)
    cap.admit()
    await clock.advance(30)
    cap.admit()
    with pytest.raises(DeadLetterLimitError, match="2 messages had to be parked within 60 s"):
        cap.admit()
    await clock.advance(30)
    cap.admit()
    with pytest.raises(DeadLetterLimitError):
        cap.admit()
    cap.reset()
    cap.admit()


async def refuse(_: Delivery) -> None:
    raise Permanent("Bad", "x")


@pytest.fixture
def fakes() -> ConsumerFakes:
    return ConsumerFakes()


async def test_beyond_the_cap_nothing_is_settled_or_fetched(fakes: ConsumerFakes) -> None:
    messages = [FakeMessage(n, f"u{n}") for n in range(1, 5)]
    source, again = FakeSource(list(messages)), FakeSource([])
    async with running(fakes, source, refuse, CAPPED, again):
        await eventually(lambda: fakes.stopped == ["d"])
        asked = list(source.rooms)
        await fakes.clock.advance(DEAD_LETTERS_CHECK_INTERVAL_SECONDS / 2)
        assert source.rooms == asked
    assert len(fakes.dead.parked) == 2
    assert sorted(m.ends[-1] for m in messages) == ["release", "release", "term", "term"]
    assert source.closed == again.closed == 1
    assert fakes.stopped == []


async def test_a_stopped_consumer_polls_for_room_and_then_counts_from_zero(fakes: ConsumerFakes) -> None:
    fakes.dead.taken = True
    source = FakeSource([FakeMessage(n, f"u{n}") for n in range(1, 4)])
    async with running(fakes, source, refuse, CAPPED):
        await eventually(lambda: fakes.stopped == ["d"])
        for looks in (1, 2):
            await fakes.clock.advance(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
            await eventually(lambda n=looks: len(fakes.dead.asked) == n)  # type: ignore[misc]
        assert fakes.stopped == ["d"]
        fakes.dead.taken = False
        source.messages = [FakeMessage(n, f"u{n}") for n in range(3, 6)]
        await fakes.clock.advance(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
        await eventually(lambda: len(fakes.dead.parked) == 4)
        await eventually(lambda: fakes.stopped == ["d"])
    assert set(fakes.dead.asked) == {2}


async def test_a_full_store_stops_the_consumer_and_loses_nothing(fakes: ConsumerFakes) -> None:
    fakes.dead.full = True
    message, neighbour = FakeMessage(1, "a"), FakeMessage(2, "b")
    gate = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        if delivery.sequence == 1:
            raise Permanent("Bad", "x")
        await gate.wait()

    async with running(fakes, FakeSource([message, neighbour]), handle, CAPPED):
        await eventually(lambda: fakes.stopped == ["d"])
    assert (message.ends, neighbour.ends) == (["release"], ["release"])


async def test_an_unreachable_store_is_no_room(fakes: ConsumerFakes) -> None:
    source = FakeSource([FakeMessage(n, f"u{n}") for n in range(1, 4)])
    async with running(fakes, source, refuse, CAPPED):
        await eventually(lambda: fakes.stopped == ["d"])
        fakes.dead.unreachable = 1
        await fakes.clock.advance(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
        assert fakes.stopped == ["d"]
        await fakes.clock.advance(DEAD_LETTERS_CHECK_INTERVAL_SECONDS)
        await eventually(lambda: fakes.stopped == [])
