"""The circuit breaker opens when the bus does not answer, not when it refuses. Then one call tries again."""

from __future__ import annotations

import asyncio

import pytest

from paddlewheel.core.errors import Conflict, PaddlewheelError, Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.operator import circuit_breaker
from paddlewheel.operator.circuit_breaker import (
    BUS_CALL_TIMEOUT_SECONDS,
    BUS_RETRY_INTERVAL_SECONDS,
    CircuitBreaker,
)
from paddlewheel.testkit.clock import ManualClock


class Peer:
    """Counts calls. Each call fails with `error`, unless that is None."""

    def __init__(self, error: PaddlewheelError | None = None) -> None:
        self.error = error
        self.calls = 0

    async def call(self) -> str:
        self.calls += 1
        if self.error:
            raise self.error
        return "answer"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(clock: ManualClock) -> CircuitBreaker:
    return CircuitBreaker(clock)


async def test_an_answer_passes(breaker: CircuitBreaker) -> None:
    assert await breaker.call(Peer().call()) == "answer"


async def test_after_no_answer_no_call_is_made_for_a_while(
    breaker: CircuitBreaker, clock: ManualClock
) -> None:
    peer = Peer(Unavailable("BusUnreachable"))
    for _ in range(3):
        with pytest.raises(Unavailable):
            await breaker.call(peer.call())
    assert peer.calls == 1
    await clock.advance(BUS_RETRY_INTERVAL_SECONDS)
    peer.error = None
    assert [await breaker.call(peer.call()) for _ in range(2)] == ["answer", "answer"]


@pytest.mark.parametrize("answer", [Retry("BusFull"), Permanent("TooLarge", "x"), Conflict("k")])
async def test_a_refusal_is_an_answer(breaker: CircuitBreaker, answer: PaddlewheelError) -> None:
    peer = Peer(answer)
    for _ in range(3):
        with pytest.raises(type(answer)):
            await breaker.call(peer.call())
    assert peer.calls == 3


async def test_a_call_that_does_not_end_is_given_up(
    breaker: CircuitBreaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "BUS_CALL_TIMEOUT_SECONDS", 0.01)
    with pytest.raises(Unavailable, match="BusTimeout"):
        await breaker.call(asyncio.get_running_loop().create_future())
    with pytest.raises(Unavailable, match="a moment ago"):
        await breaker.call(Peer().call())


async def test_only_one_call_tries_whether_the_bus_is_back(
    breaker: CircuitBreaker, clock: ManualClock
) -> None:
    with pytest.raises(Unavailable):
        await breaker.call(Peer(Unavailable("BusUnreachable")).call())
    await clock.advance(BUS_RETRY_INTERVAL_SECONDS)
    trial = asyncio.get_running_loop().create_future()
    trying = asyncio.create_task(breaker.call(trial))
    await asyncio.sleep(0)
    peer = Peer()
    with pytest.raises(Unavailable, match="a moment ago"):
        await breaker.call(peer.call())
    trial.set_result("back")
    assert await trying == "back"
    assert (await breaker.call(peer.call()), peer.calls) == ("answer", 1)


async def test_a_cancelled_trial_does_not_keep_it_open(breaker: CircuitBreaker, clock: ManualClock) -> None:
    with pytest.raises(Unavailable):
        await breaker.call(Peer(Unavailable("BusUnreachable")).call())
    await clock.advance(BUS_RETRY_INTERVAL_SECONDS)
    trying = asyncio.create_task(breaker.call(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    await end(trying)
    await clock.advance(BUS_CALL_TIMEOUT_SECONDS)
    assert await breaker.call(Peer().call()) == "answer"


async def test_one_use_does_not_silence_another(clock: ManualClock) -> None:
    facts, records = CircuitBreaker(clock), CircuitBreaker(clock)
    with pytest.raises(Unavailable):
        await records.call(Peer(Unavailable("BusUnreachable")).call())
    assert await facts.call(Peer().call()) == "answer"
