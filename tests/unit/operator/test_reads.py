"""A failed read is returned as a Trouble, and is retried with growing intervals."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads
from paddlewheel.testkit.clock import ManualClock

KEY = Key("default", "digits")


class Source:
    """Fails a given number of times."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "found"


@pytest.mark.parametrize(
    ("error", "message"),
    [(Retry("ServerError"), "ServerError"), (Permanent("Forbidden", "no access"), "no access")],
)
async def test_a_failed_read_is_a_trouble_and_not_repeated_before_it_is_due(
    error: Retry | Permanent, message: str
) -> None:
    clock, source = ManualClock(), Source(error)
    reads = Reads(clock)
    trouble = Trouble("read", "SampleSet", KEY, error.reason, message)
    assert await reads.attempt("SampleSet", KEY, source) == trouble
    assert reads.retry_after("SampleSet", KEY) == 1.0
    await clock.advance(0.9)
    assert await reads.attempt("SampleSet", KEY, source) == trouble
    assert source.calls == 1
    await clock.advance(0.1)
    assert await reads.attempt("SampleSet", KEY, source) == "found"
    assert reads.retry_after("SampleSet", KEY) is None


async def test_the_time_between_tries_doubles_until_one_succeeds() -> None:
    clock, source = ManualClock(), Source(Retry("A"), Retry("B"), Retry("C"))
    reads = Reads(clock)
    waits = []
    for _ in range(3):
        await reads.attempt("SampleSet", KEY, source)
        waits.append(reads.retry_after("SampleSet", KEY) or 0.0)
        await clock.advance(waits[-1])
    assert waits == [1.0, 2.0, 4.0]
    assert await reads.attempt("SampleSet", KEY, source) == "found"
    source.errors = [Retry("D")]
    await reads.attempt("SampleSet", KEY, source)
    assert reads.retry_after("SampleSet", KEY) == 1.0


async def test_reads_back_off_by_themselves_and_are_forgotten() -> None:
    reads, source = Reads(ManualClock()), Source(Retry("A"))
    await reads.attempt("SampleSet", KEY, source)
    assert await reads.attempt("SampleSet", Key("default", "other"), Source()) == "found"
    reads.forget("SampleSet", KEY)
    assert reads.retry_after("SampleSet", KEY) is None
    assert await reads.attempt("SampleSet", KEY, source) == "found"


async def test_what_is_not_a_failure_of_the_read_passes() -> None:
    with pytest.raises(NotFound):
        await Reads(ManualClock()).attempt("SampleSet", KEY, Source(NotFound("gone")))


async def test_failures_of_reads_that_are_no_longer_made_are_forgotten() -> None:
    clock = ManualClock()
    reads = Reads(clock)
    for number in range(1_000):
        await reads.attempt(
            "PriorityClass", Key("", f"misspelt-{number}"), Source(Permanent("NotFound", "there is none"))
        )
        await reads.attempt("SampleSet", KEY, Source(Retry("ServerError")))
        await clock.advance(1)
    assert len(reads) < 70
    assert reads.retry_after("SampleSet", KEY) is not None, "it is still made"
