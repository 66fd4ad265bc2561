"""A failed read becomes a Trouble, is not repeated before its backoff is over, and recovers."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads

KEY, OTHER = Key("default", "a"), Key("default", "b")


class Source:
    """Answers 7, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0

    async def read(self) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return 7


@pytest.mark.parametrize("error", [Retry("ServerError", "503"), Permanent("Forbidden", "503")])
async def test_a_failed_read_is_a_trouble_and_backs_off(error: Exception) -> None:
    clock, source = ManualClock(), Source(error)
    reads = Reads(clock)
    found = [await reads.attempt("Pod", KEY, source.read) for _ in range(10)]
    assert source.calls == 1
    assert {f.message for f in found if isinstance(f, Trouble)} == {"503"}
    assert found == [found[0]] * 10
    for calls, wait in ((2, 1), (3, 2), (4, 4)):
        await clock.advance(wait - 0.1)
        await reads.attempt("Pod", KEY, source.read)
        assert source.calls == calls - 1
        await clock.advance(0.1)
        await reads.attempt("Pod", KEY, source.read)
        assert source.calls == calls


async def test_a_trouble_without_a_message_says_its_reason() -> None:
    found = await Reads(ManualClock()).attempt("Pod", KEY, Source(Retry("Timeout")).read)
    assert found == Trouble("read", "Pod", KEY, "Timeout", "Timeout")


async def test_reads_back_off_by_themselves() -> None:
    reads, broken, whole = Reads(ManualClock()), Source(Retry("ServerError")), Source()
    await reads.attempt("Pod", KEY, broken.read)
    assert await reads.attempt("Pod", OTHER, whole.read) == 7
    assert await reads.attempt("Node", KEY, whole.read) == 7


async def test_a_read_that_succeeds_starts_its_backoff_anew() -> None:
    clock, source = ManualClock(), Source(Retry("ServerError"))
    reads = Reads(clock)
    for wait in (0, 1, 2):
        await clock.advance(wait)
        await reads.attempt("Pod", KEY, source.read)
    source.error = None
    await clock.advance(4)
    assert await reads.attempt("Pod", KEY, source.read) == 7
    source.error = Retry("ServerError")
    await reads.attempt("Pod", KEY, source.read)
    await clock.advance(1)
    await reads.attempt("Pod", KEY, source.read)
    assert source.calls == 6


async def test_a_forgotten_read_is_tried_at_once() -> None:
    reads, source = Reads(ManualClock()), Source(Retry("ServerError"))
    await reads.attempt("Pod", KEY, source.read)
    reads.forget("Pod", KEY)
    await reads.attempt("Pod", KEY, source.read)
    assert source.calls == 2


async def test_other_errors_pass() -> None:
    with pytest.raises(Conflict):
        await Reads(ManualClock()).attempt("Pod", KEY, Source(Conflict("x")).read)
