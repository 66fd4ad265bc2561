"""Telling facts: in order, none lost, none twice however long a process was dead, and again after a loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.announcements import Announcement, Announcements, declare
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated import jobs_v1
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.operator.circuit_breaker import QUIET, CircuitBreaker
from paddlewheel.operator.outbox import FactSource, Outbox, Republished, is_told
from paddlewheel.operator.rebuild import Owned, Rebuilder, Rebuilt
from paddlewheel.testkit.wait import eventually

WINDOW = JOBS.duplicate_window


class Stand:
    """A memory bus under a clock moved by hand, and announcers over it; each stands for one process."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.counts: Counter[tuple[str, str]] = Counter()

    def outbox(self) -> Outbox:
        def count(fact: str, outcome: str) -> None:
            self.counts[fact, outcome] += 1

        return Outbox(self.bus, CircuitBreaker(self.clock), self.clock, stream=JOBS, count=count)

    def declare(self, facts: Announcements, name: str, attempt: int = 0) -> Announcements:
        return declare(facts, name, self.clock.now().isoformat(), attempt=attempt)

    def told(self) -> list[str]:
        return [event.id for event in self.bus.events(JOBS.name)]


def make_source(uid: str = "u", created: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> FactSource:
    def render(fact: Announcement) -> Event | None:
        model = getattr(jobs_v1, fact.fact, None)
        if model is None:
            return None
        ref = ObjectRef(namespace="ns", name=uid, uid=uid)
        at = datetime.fromisoformat(fact.at)
        id_ = fact.event_id(uid)
        return make_event(model(job=ref), id=id_, source="test", namespace="ns", uid=uid, time=at)

    return FactSource(Key("ns", uid), uid, created, render)


OLD = make_source(created=datetime(2025, 1, 1, tzinfo=UTC))


@pytest.fixture
def stand() -> Stand:
    return Stand()


# --- order, and a bus that is away


async def test_pending_facts_are_told_in_order_and_confirmed(stand: Stand) -> None:
    facts = stand.declare(stand.declare((), "JobAccepted"), "JobStarting")
    facts = await stand.outbox().tell(make_source(), facts)
    assert stand.told() == ["u/JobAccepted/0", "u/JobStarting/0"]
    assert [f.announced for f in facts] == [True, True]
    assert stand.counts[("JobAccepted", "published")] == 1


async def test_a_bus_down_for_an_hour_loses_nothing(stand: Stand) -> None:
    outbox, facts = stand.outbox(), stand.declare((), "JobAccepted")
    stand.bus.down = True
    for minute in range(60):
        if minute == 30:
            facts = stand.declare(facts, "JobRunning")
        facts = await outbox.tell(OLD, facts)
        await stand.clock.advance(60)
    assert not any(f.announced for f in facts)
    stand.bus.down = False
    facts = await outbox.tell(OLD, facts)
    assert stand.told() == ["u/JobAccepted/0", "u/JobRunning/0"]
    assert all(f.announced for f in facts)


async def test_a_bus_that_failed_is_left_alone_for_a_moment(stand: Stand) -> None:
    tries: list[str] = []

    async def fail(event: Event) -> None:
        tries.append(event.id)
        raise Unavailable("Down")

    stand.bus.publish = fail  # type: ignore[method-assign]
    outbox, facts = stand.outbox(), stand.declare((), "JobAccepted")
    for _ in range(3):
        facts = await outbox.tell(make_source(), facts)
    assert len(tries) == 1
    await stand.clock.advance(QUIET)
    await outbox.tell(make_source(), facts)
    assert len(tries) == 2
    assert stand.counts[("JobAccepted", "pending")] == 4


async def test_a_call_that_never_ends_is_given_up(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddlewheel.operator.circuit_breaker.TIMEOUT", 0.01)

    async def hang(_: Event) -> None:
        await asyncio.get_running_loop().create_future()

    stand.bus.publish = hang  # type: ignore[method-assign, assignment]
    facts = await stand.outbox().tell(make_source(), stand.declare((), "JobAccepted"))
    assert not facts[0].announced


async def test_a_fact_that_can_never_be_told_does_not_hold_the_next(stand: Stand) -> None:
    real = stand.bus.publish

    async def refuse_one(event: Event) -> None:
        if event.type.endswith("JobAccepted"):
            raise Permanent("TooLarge", "too large")
        await real(event)

    stand.bus.publish = refuse_one  # type: ignore[method-assign]
    facts = stand.declare(stand.declare((), "JobAccepted"), "JobStarting")
    facts = await stand.outbox().tell(make_source(), facts)
    assert (stand.told(), all(f.announced for f in facts)) == (["u/JobStarting/0"], True)
    assert stand.counts[("JobAccepted", "refused")] == 1


async def test_a_fact_of_another_version_is_passed_over(stand: Stand) -> None:
    facts = await stand.outbox().tell(make_source(), stand.declare((), "JobDreamt"))
    assert (stand.told(), facts[0].announced) == ([], True)


# --- never twice


@pytest.mark.parametrize("dead", [1.0, WINDOW / 2, WINDOW, 600.0, 3600.0])
async def test_killed_before_the_status_was_written_and_dead_for_a_while_it_tells_nothing_twice(
    stand: Stand, dead: float
) -> None:
    await stand.outbox().tell(make_source(), stand.declare((), "JobAccepted"))
    await stand.clock.advance(dead)
    # The next process finds an empty status and declares the fact anew, with the time of then.
    facts = await stand.outbox().tell(make_source(), stand.declare((), "JobAccepted"))
    assert (stand.told(), facts[0].announced) == (["u/JobAccepted/0"], True)


@pytest.mark.parametrize("seconds", [5.0, 50.0, 70.0])
async def test_an_api_server_that_takes_no_status_for_long_makes_no_fact_twice(
    stand: Stand, seconds: float
) -> None:
    outbox = stand.outbox()
    await outbox.tell(OLD, ())
    for _ in range(10):
        await outbox.tell(OLD, stand.declare((), "JobRunning"))
        await stand.clock.advance(seconds)
    assert stand.told() == ["u/JobRunning/0"]


async def test_a_publish_whose_answer_was_lost_is_not_repeated_after_an_outage(stand: Stand) -> None:
    real = stand.bus.publish

    async def lose_answer(event: Event) -> None:
        await real(event)
        raise Retry("BusTimeout", "no answer")

    outbox = stand.outbox()
    stand.bus.publish = lose_answer  # type: ignore[method-assign]
    facts = await outbox.tell(make_source(), stand.declare((), "JobAccepted"))
    stand.bus.publish = real  # type: ignore[method-assign]
    await stand.clock.advance(WINDOW + 1)
    facts = await outbox.tell(make_source(), facts)
    assert (stand.told(), facts[0].announced) == (["u/JobAccepted/0"], True)


async def test_an_earlier_attempt_is_known_by_a_later_one(stand: Stand) -> None:
    facts = stand.declare(stand.declare((), "JobGated"), "JobGated", attempt=1)
    await stand.outbox().tell(make_source(), facts)
    await stand.clock.advance(600)
    await stand.outbox().tell(make_source(), facts)
    assert stand.told() == ["u/JobGated/0", "u/JobGated/1"]
    await stand.outbox().tell(make_source(), stand.declare(facts, "JobGated", attempt=2))
    assert stand.told()[2:] == ["u/JobGated/2"]


@pytest.mark.parametrize(
    ("last", "wanted", "expected"),
    [
        ("u/JobGated/1", "u/JobGated/1", True),
        ("u/JobGated/10", "u/JobGated/9", True),
        ("u/JobGated/0", "u/JobGated/1", False),
        ("v/JobGated/1", "u/JobGated/0", False),
        ("", "u/JobGated/0", False),
        ("u/JobGated/x", "u/JobGated/0", False),
        ("odd", "odd", True),
    ],
)
def test_what_the_last_id_of_a_subject_says(last: str, wanted: str, expected: bool) -> None:
    assert is_told(last, wanted) is expected


async def test_in_the_usual_course_nothing_is_looked_up(stand: Stand) -> None:
    looked: list[str] = []

    async def last(subject: str) -> None:
        looked.append(subject)

    stand.bus.history.last = last  # type: ignore[method-assign]
    outbox = stand.outbox()
    await stand.clock.advance(3600)
    source = make_source(created=stand.clock.now())
    facts = await outbox.tell(source, stand.declare((), "JobAccepted"))
    await stand.clock.advance(WINDOW)
    await outbox.tell(source, facts)
    await stand.clock.advance(WINDOW / 2 - 1)
    await outbox.tell(source, stand.declare(facts, "JobRunning"))
    assert looked == []
    assert len(stand.told()) == 2


async def test_objects_that_are_not_looked_at_any_more_are_forgotten(stand: Stand) -> None:
    outbox = stand.outbox()
    for number in range(100):
        await outbox.tell(make_source(f"u{number}"), ())
    await stand.clock.advance(WINDOW)
    await outbox.tell(make_source("last"), ())
    assert list(outbox._clean) == ["last"]


# --- a stream that was lost


async def told_life(stand: Stand, outbox: Outbox, uid: str = "u") -> Announcements:
    facts = stand.declare(stand.declare((), "JobAccepted"), "JobStarting")
    facts = await outbox.tell(make_source(uid), facts)
    await stand.clock.advance(3600)
    return facts


async def test_what_was_lost_is_told_again_before_what_is_new(stand: Stand) -> None:
    outbox = stand.outbox()
    facts = await told_life(stand, outbox)
    stand.bus.lose_facts(JOBS.name)
    await outbox.tell(make_source(), stand.declare(facts, "JobRunning"))
    assert stand.told() == ["u/JobAccepted/0", "u/JobStarting/0", "u/JobRunning/0"]


async def test_a_rebuild_brings_back_what_is_missing_and_nothing_else(stand: Stand) -> None:
    outbox = stand.outbox()
    facts = await told_life(stand, outbox)
    stand.bus.lose_facts(JOBS.name)
    await outbox.refresh()
    assert await outbox.republish(make_source(), facts) == Republished(2, 2)
    assert await outbox.republish(make_source(), facts) == Republished(0, 0)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(2, 0)
    assert await stand.outbox().republish(make_source(), facts, everything=True) == Republished(2, 0)
    assert stand.told() == ["u/JobAccepted/0", "u/JobStarting/0"]


async def test_facts_that_are_still_pending_are_left_to_the_reconcile(stand: Stand) -> None:
    facts = stand.declare((), "JobAccepted")
    assert await stand.outbox().republish(make_source(), facts, everything=True) == Republished(0, 0)
    assert stand.told() == []


async def test_a_stream_that_has_grown_too_old_for_a_fact_is_no_loss(stand: Stand) -> None:
    outbox = stand.outbox()
    facts = await told_life(stand, outbox)
    stand.bus._streams[JOBS.name].drop(1)
    for teller in (outbox, stand.outbox()):
        await teller.refresh()
        assert await teller.republish(make_source(), facts) == Republished(0, 0)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(2, 1)


async def test_what_was_removed_by_hand_counts_as_back_only_when_it_is(stand: Stand) -> None:
    outbox = stand.outbox()
    facts = await outbox.tell(make_source(), stand.declare((), "JobAccepted"))
    stand.bus._streams[JOBS.name].drop(1)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(1, 0)
    await stand.clock.advance(WINDOW)
    assert await outbox.republish(make_source(), facts, everything=True) == Republished(1, 1)
    assert stand.told() == ["u/JobAccepted/0"]


# --- going over all objects


class Objects:
    """What a replica owns."""

    def __init__(self, outbox: Outbox, facts: dict[Key, Announcements]) -> None:
        self.outbox = outbox
        self.facts = facts
        self.seen: list[Key] = []

    async def republish(self, key: Key, everything: bool) -> Republished:
        self.seen.append(key)
        source = make_source(key.name)
        return await self.outbox.republish(source, self.facts[key], everything=everything)

    def rebuilder(self, stand: Stand) -> Rebuilder:
        return Rebuilder(self.outbox, [Owned(lambda: self.facts, self.republish)], stand.clock)


async def make_objects(stand: Stand, count: int = 3) -> Objects:
    outbox = stand.outbox()
    names = [f"u{number}" for number in range(count)]
    return Objects(outbox, {Key("ns", n): await told_life(stand, outbox, n) for n in names})


async def finish(stand: Stand, work: asyncio.Task[Rebuilt]) -> Rebuilt:
    """Turn the clock until it is done."""
    while not work.done():
        await asyncio.sleep(0)
        await stand.clock.advance(0.1)
    return work.result()


async def test_a_rebuild_counts_and_may_be_repeated(stand: Stand) -> None:
    objects = await make_objects(stand)
    rebuilder = objects.rebuilder(stand)
    stand.bus.lose_facts(JOBS.name)
    first = await finish(stand, asyncio.create_task(rebuilder.rebuild(everything=True)))
    again = await finish(stand, asyncio.create_task(rebuilder.rebuild(everything=True)))
    assert (first, again) == (Rebuilt(3, Republished(6, 6)), Rebuilt(3, Republished(6, 0)))
    assert stand.told() == [f"u{n}/{fact}/0" for n in range(3) for fact in ("JobAccepted", "JobStarting")]


async def test_a_lost_stream_is_noticed_and_filled_again_without_being_asked(stand: Stand) -> None:
    objects = await make_objects(stand)
    running = asyncio.create_task(objects.rebuilder(stand).run())
    try:
        await turn(stand, lambda: len(objects.seen) == 3)
        stand.bus.lose_facts(JOBS.name)
        await turn(stand, lambda: len(stand.told()) == 6)
    finally:
        await end(running)
    assert len(set(stand.told())) == 6


async def test_a_rebuild_that_the_bus_cut_off_is_finished_later(stand: Stand) -> None:
    objects = await make_objects(stand)
    stand.bus.lose_facts(JOBS.name)
    real, left = stand.bus.publish, [2]

    async def fail_soon(event: Event) -> None:
        if left[0] == 0:
            raise Unavailable("Down")
        left[0] -= 1
        await real(event)

    stand.bus.publish = fail_soon  # type: ignore[method-assign]
    running = asyncio.create_task(objects.rebuilder(stand).run())
    try:
        await turn(stand, lambda: len(stand.told()) == 2)
        left[0] = 100
        await turn(stand, lambda: len(stand.told()) == 6)
    finally:
        await end(running)


async def test_newcomers_of_a_changed_share_are_looked_after(stand: Stand) -> None:
    objects = await make_objects(stand)
    rebuilder = objects.rebuilder(stand)
    stand.bus.lose_facts(JOBS.name)
    others = {Key("ns", "u2"): objects.facts.pop(Key("ns", "u2"))}
    running = asyncio.create_task(rebuilder.run())
    try:
        await turn(stand, lambda: len(stand.told()) == 4)
        objects.facts |= others
        rebuilder.wake()
        await turn(stand, lambda: len(stand.told()) == 6)
    finally:
        await end(running)


async def turn(stand: Stand, until: object) -> None:
    """Move the clock on until something holds."""

    async def holds() -> bool:
        await stand.clock.advance(1.0)
        assert callable(until)
        return bool(until())

    await eventually(holds, within=5, every=0.001)


def test_the_window_is_as_long_as_these_tests_assume() -> None:
    assert timedelta(seconds=WINDOW) == timedelta(minutes=2)
