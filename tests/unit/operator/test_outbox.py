"""The outbox publishes facts in order. None is lost or stored twice, even after a long downtime."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.operator.conftest import OutboxHarness, make_source

from paddlewheel.bus.streams import JOBS, MODELS
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.operator.circuit_breaker import BUS_RETRY_INTERVAL_SECONDS
from paddlewheel.operator.outbox import (
    CONFIRM_GRACE_SECONDS,
    PUBLISH_RETRY_INTERVAL_SECONDS,
    Published,
    Republished,
    is_stored,
)

WINDOW = JOBS.duplicate_window


# --- order, and a bus that is unreachable


async def test_pending_facts_are_published_in_order(harness: OutboxHarness) -> None:
    facts = harness.declare("JobAccepted", "JobStarting")
    published = await harness.outbox().publish(make_source(), facts)
    assert harness.stored() == ["u/JobAccepted/0", "u/JobStarting/0"]
    assert published == Published(is_settled=True, retry_after=CONFIRM_GRACE_SECONDS)
    assert harness.counts[("JobAccepted", "published")] == 1


async def test_an_hour_without_bus_loses_nothing(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    harness.bus.down = True
    for minute in range(60):
        if minute == 30:
            facts = harness.declare("JobRunning", after=facts)
        published = await outbox.publish(make_source(), facts)
        assert published == Published(is_settled=False, retry_after=PUBLISH_RETRY_INTERVAL_SECONDS)
        await harness.clock.advance(60)
    harness.bus.down = False
    assert (await outbox.publish(make_source(), facts)).is_settled
    assert harness.stored() == ["u/JobAccepted/0", "u/JobRunning/0"]


async def test_a_bus_that_failed_is_left_alone_for_a_moment(harness: OutboxHarness) -> None:
    tries: list[str] = []

    async def fail(event: Event) -> None:
        tries.append(event.id)
        raise Unavailable("Down")

    harness.bus.publish = fail  # type: ignore[method-assign]
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    for _ in range(3):
        await outbox.publish(make_source(), facts)
    assert len(tries) == 1
    await harness.clock.advance(BUS_RETRY_INTERVAL_SECONDS)
    await outbox.publish(make_source(), facts)
    assert len(tries) == 2
    assert harness.counts[("JobAccepted", "pending")] == 4


async def test_a_call_that_never_ends_is_given_up(
    harness: OutboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.operator.circuit_breaker.BUS_CALL_TIMEOUT_SECONDS", 0.01)

    async def hang(_: Event) -> None:
        await asyncio.get_running_loop().create_future()

    harness.bus.publish = hang  # type: ignore[method-assign, assignment]
    published = await harness.outbox().publish(make_source(), harness.declare("JobAccepted"))
    assert not published.is_settled


async def test_a_fact_whose_id_another_one_has_waits_until_that_is_forgotten(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted", "JobStarting")
    squatter = make_source("other").render(harness.declare("JobAccepted")[0])
    assert squatter
    await harness.bus.publish(replace(squatter, id="u/JobAccepted/0"))
    assert await outbox.publish(make_source(), facts) == Published(
        is_settled=False, retry_after=PUBLISH_RETRY_INTERVAL_SECONDS
    )
    assert outbox.record("u", facts) == facts
    await harness.clock.advance(WINDOW)
    assert (await outbox.publish(make_source(), facts)).is_settled
    assert harness.stored() == ["u/JobAccepted/0", "u/JobAccepted/0", "u/JobStarting/0"]


async def test_a_fact_that_can_never_be_published_does_not_hold_the_next(harness: OutboxHarness) -> None:
    real = harness.bus.publish

    async def refuse_one(event: Event) -> None:
        if event.type.endswith("JobAccepted"):
            raise Permanent("TooLarge", "too large")
        await real(event)

    harness.bus.publish = refuse_one  # type: ignore[method-assign]
    outbox, facts = harness.outbox(), harness.declare("JobAccepted", "JobStarting")
    for _ in range(3):
        published = await outbox.publish(make_source(), facts)
        assert (harness.stored(), published.is_settled) == (["u/JobStarting/0"], True)
    assert harness.counts[("JobAccepted", "refused")] == 1
    assert [f.announced for f in outbox.record("u", facts)] == [False, True]
    outbox.forget("u")
    assert not outbox._refused


async def test_a_fact_of_another_version_is_passed_over(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobDreamt")
    published = await outbox.publish(make_source(), facts)
    assert (harness.stored(), published.is_settled) == ([], True)
    # The version that knows the fact will publish it, so this version must not mark it as announced.
    assert outbox.record("u", facts) == facts


# --- the confirmation


async def test_the_confirmation_goes_with_the_next_write_or_is_due_by_itself(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    assert outbox.record("u", facts) == facts
    await outbox.publish(make_source(), facts)
    assert [f.announced for f in outbox.record("u", facts)] == [True]
    assert not outbox.is_confirmation_due("u")
    await harness.clock.advance(CONFIRM_GRACE_SECONDS)
    assert outbox.is_confirmation_due("u")


async def test_what_is_published_and_not_confirmed_yet_is_not_published_again(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    for _ in range(3):
        published = await outbox.publish(make_source(), facts)
        await harness.clock.advance(1)
    assert published.retry_after == CONFIRM_GRACE_SECONDS - 2
    assert harness.counts[("JobAccepted", "published")] == 1


async def test_once_confirmed_nothing_is_wanted_or_remembered_any_more(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    await outbox.publish(make_source(), facts)
    confirmed = outbox.record("u", facts)
    assert await outbox.publish(make_source(), confirmed) == Published()
    assert not outbox._unconfirmed
    await harness.clock.advance(3600)
    assert not outbox.is_confirmation_due("u")


async def test_an_object_that_is_gone_is_forgotten(harness: OutboxHarness) -> None:
    outbox = harness.outbox()
    await outbox.publish(make_source(), harness.declare("JobAccepted"))
    outbox.forget("u")
    assert not outbox._unconfirmed
    outbox.forget("never-seen")


# --- never twice


@pytest.mark.parametrize("dead", [1.0, WINDOW / 2, WINDOW, 600.0, 3600.0])
async def test_killed_before_the_confirmation_was_written_and_dead_for_a_while(
    harness: OutboxHarness, dead: float
) -> None:
    facts = harness.declare("JobAccepted")
    await harness.outbox().publish(make_source(), facts)
    await harness.clock.advance(dead)
    # For the next process the fact is recorded and pending.
    assert (await harness.outbox().publish(make_source(), facts)).is_settled
    assert harness.stored() == ["u/JobAccepted/0"]


async def test_killed_between_recording_and_publishing_loses_nothing(harness: OutboxHarness) -> None:
    facts = harness.declare("JobAccepted")
    await harness.clock.advance(3600)
    await harness.outbox().publish(make_source(), facts)
    assert harness.stored() == ["u/JobAccepted/0"]


async def test_a_publish_whose_answer_was_lost_is_not_repeated_after_an_outage(
    harness: OutboxHarness,
) -> None:
    real = harness.bus.publish

    async def lose_answer(event: Event) -> None:
        await real(event)
        raise Retry("BusTimeout", "no answer")

    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    harness.bus.publish = lose_answer  # type: ignore[method-assign]
    assert not (await outbox.publish(make_source(), facts)).is_settled
    harness.bus.publish = real  # type: ignore[method-assign]
    await harness.clock.advance(WINDOW + 1)
    assert (await outbox.publish(make_source(), facts)).is_settled
    assert harness.stored() == ["u/JobAccepted/0"]


async def test_an_earlier_attempt_is_known_by_a_later_one(harness: OutboxHarness) -> None:
    facts = harness.declare("JobGated", attempt=1, after=harness.declare("JobGated"))
    await harness.outbox().publish(make_source(), facts)
    await harness.clock.advance(600)
    await harness.outbox().publish(make_source(), facts)
    assert harness.stored() == ["u/JobGated/0", "u/JobGated/1"]
    await harness.outbox().publish(make_source(), harness.declare("JobGated", attempt=2, after=facts))
    assert harness.stored()[2:] == ["u/JobGated/2"]


@pytest.mark.parametrize("is_third_declared", [False, True])
async def test_an_attempt_that_was_refused_is_not_known_by_a_later_one(
    harness: OutboxHarness, is_third_declared: bool
) -> None:
    real = harness.bus.publish

    async def refuse_first(event: Event) -> None:
        if event.id == "u/JobGated/0":
            raise Permanent("TooLarge", "too large")
        await real(event)

    harness.bus.publish = refuse_first  # type: ignore[method-assign]
    outbox = harness.outbox()
    facts = harness.declare("JobGated", attempt=1, after=harness.declare("JobGated"))
    await outbox.publish(make_source(), facts)
    facts = outbox.record("u", facts)
    assert [fact.announced for fact in facts] == [False, True]
    if is_third_declared:
        # A confirmed older attempt is dropped from the record.
        facts = harness.declare("JobGated", attempt=2, after=facts[:1])
    await harness.clock.advance(600)
    restarted = harness.outbox()
    await restarted.publish(make_source(), facts)
    assert not restarted.record("u", facts)[0].announced
    assert harness.counts["JobGated", "refused"] == 2
    assert "u/JobGated/0" not in harness.stored()


@pytest.mark.parametrize(
    ("last", "wanted", "expected"),
    [
        ("u/JobGated/1", "u/JobGated/1", True),
        ("u/JobGated/10", "u/JobGated/9", True),
        ("u/JobGated/0", "u/JobGated/1", False),
        ("v/JobGated/1", "u/JobGated/0", False),
        ("", "u/JobGated/0", False),
        ("u/JobGated/x", "u/JobGated/0", False),
        ("u/JobGated/1", "u/JobGated/x", False),
        ("odd", "odd", True),
    ],
)
def test_what_the_last_id_of_a_subject_says(last: str, wanted: str, expected: bool) -> None:
    assert is_stored(last, wanted) is expected


@pytest.mark.parametrize(("waited", "looked_up"), [(0.0, 0), (WINDOW / 2 - 1, 0), (WINDOW / 2, 1)])
async def test_the_stream_is_asked_only_when_it_may_have_forgotten_the_id(
    harness: OutboxHarness, waited: float, looked_up: int
) -> None:
    asked: list[str] = []

    async def last(subject: str) -> None:
        asked.append(subject)

    harness.bus.history.last = last  # type: ignore[method-assign]
    facts = harness.declare("JobAccepted")
    await harness.clock.advance(waited)
    await harness.outbox().publish(make_source(), facts)
    assert len(asked) == looked_up
    assert harness.stored() == ["u/JobAccepted/0"]


# --- a stream that was lost


async def test_what_was_lost_is_published_again_before_what_is_new(harness: OutboxHarness) -> None:
    outbox = harness.outbox()
    facts = await harness.life(outbox)
    harness.bus.lose_facts(JOBS.name)
    await outbox.publish(make_source(), harness.declare("JobRunning", after=facts))
    assert harness.stored() == ["u/JobAccepted/0", "u/JobStarting/0", "u/JobRunning/0"]


@pytest.mark.parametrize("lost", [JOBS.name, MODELS.name])
async def test_each_stream_gets_its_own_facts_back(harness: OutboxHarness, lost: str) -> None:
    outbox = harness.outbox()
    await harness.clock.advance(3600)
    facts = harness.declare("JobAccepted", "ModelPublished")
    await outbox.publish(make_source(), facts)
    await harness.clock.advance(3600)
    confirmed = tuple(replace(fact, announced=True) for fact in facts)
    harness.bus.lose_facts(lost)
    await outbox.refresh()
    assert await outbox.republish(make_source(), confirmed) == Republished(1, 1)
    assert harness.stored() == ["u/JobAccepted/0"]
    assert harness.stored(MODELS.name) == ["u/ModelPublished/0"]


async def test_facts_that_one_stream_has_dropped_are_not_taken_for_those_of_another(
    harness: OutboxHarness,
) -> None:
    """The stream of jobs keeps facts for a limited time. The stream of models is younger."""
    outbox = harness.outbox()
    facts = await harness.life(outbox)
    harness.bus._streams[JOBS.name].drop(1)
    harness.bus.lose_facts(MODELS.name)
    await outbox.refresh()
    assert await outbox.republish(make_source(), facts) == Republished(0, 0)


async def test_what_was_lost_before_its_confirmation_was_written_comes_back_too(
    harness: OutboxHarness,
) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    await outbox.publish(make_source(), facts)
    harness.bus.lose_facts(JOBS.name)
    await outbox.refresh()
    assert await outbox.republish(make_source(), facts) == Republished(1, 1)
    assert harness.stored() == ["u/JobAccepted/0"]


async def test_a_rebuild_brings_back_what_is_missing_and_nothing_else(harness: OutboxHarness) -> None:
    outbox = harness.outbox()
    facts = await harness.life(outbox)
    harness.bus.lose_facts(JOBS.name)
    await outbox.refresh()
    assert await outbox.republish(make_source(), facts) == Republished(2, 2)
    assert await outbox.republish(make_source(), facts) == Republished(0, 0)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(2, 0)
    assert await harness.outbox().republish(make_source(), facts, everything=True) == Republished(2, 0)
    assert harness.stored() == ["u/JobAccepted/0", "u/JobStarting/0"]


async def test_facts_that_are_still_pending_are_left_to_the_reconcile(harness: OutboxHarness) -> None:
    facts = harness.declare("JobAccepted")
    assert await harness.outbox().republish(make_source(), facts, everything=True) == Republished(0, 0)
    assert harness.stored() == []


async def test_a_stream_that_has_grown_too_old_for_a_fact_is_no_loss(harness: OutboxHarness) -> None:
    outbox = harness.outbox()
    facts = await harness.life(outbox)
    harness.bus._streams[JOBS.name].drop(1)
    for process in (outbox, harness.outbox()):
        await process.refresh()
        assert await process.republish(make_source(), facts) == Republished(0, 0)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(2, 1)


async def test_what_was_deleted_by_hand_counts_as_back_only_when_it_is(harness: OutboxHarness) -> None:
    outbox, facts = harness.outbox(), harness.declare("JobAccepted")
    await outbox.publish(make_source(), facts)
    confirmed = tuple(replace(fact, announced=True) for fact in facts)
    harness.bus._streams[JOBS.name].drop(1)
    assert await outbox.republish(make_source(), confirmed, everything=True) == Republished(1, 0)
    await harness.clock.advance(WINDOW)
    assert await outbox.republish(make_source(), confirmed, everything=True) == Republished(1, 1)
    assert harness.stored() == ["u/JobAccepted/0"]


def test_the_window_is_as_long_as_these_tests_assume() -> None:
    assert timedelta(seconds=WINDOW) == timedelta(minutes=2)
