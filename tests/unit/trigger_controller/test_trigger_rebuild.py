"""Facts that come back, after a loss of the bus or by `paddlewheel bus rebuild`, start nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.trigger_controller.conftest import OpenHarness, TriggerHarness, event_of

from paddlewheel.bus.streams import DATASETS, FIRED, JOBS, SOURCES
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.stamps import EPOCH
from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.triggers import make_trigger
from trigger_controller.domain.policies import intake
from trigger_controller.domain.policies.known import is_known, is_too_old
from trigger_controller.memory import Memory
from trigger_controller.timing import (
    EVENT_RECALL_GRACE_SECONDS,
    MARK_REFRESH_INTERVAL_SECONDS,
    RELEASE_RETRY_INTERVAL_SECONDS,
)

FEW = 8
TOTAL = FEW + 1
"""More events than a status remembers in most tests here."""
DAY = 86400.0
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def few_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status remembers a few events only, so that few make it forget."""
    monkeypatch.setattr(intake, "RECENT", FEW)


async def with_history(harness: TriggerHarness, total: int = TOTAL) -> list[Event]:
    """A trigger that has dealt with these events; their jobs are gone."""
    await harness.apply(make_trigger())
    events = []
    for number in range(total):
        await harness.clock.advance(0.001)
        events.append(harness.make_ready(f"e-{number}", name=f"set-{number}"))
    await harness.publish(*events)
    for job in await harness.sample_jobs():
        await harness.delete_job(job)
    assert harness.jobs_created() == total
    return events


async def lose_memory(harness: TriggerHarness) -> None:
    """The bucket is empty; and the streams will take the old facts again."""
    for name in ("pw_triggers", "pw_trigger_deferred", "pw_trigger_origins"):
        bucket = harness.bus.key_value(name)
        for entry in await bucket.entries(">"):
            await bucket.delete(entry.key)
    await harness.clock.advance(200)


async def in_order(harness: TriggerHarness, *event_ids: str) -> list[Event]:
    """Events of now, each a second after the one before, not published yet."""
    events = []
    for event_id in event_ids:
        await harness.clock.advance(1)
        events.append(harness.make_ready(event_id, name=f"set-{event_id}"))
    return events


async def events_at_work(harness: TriggerHarness) -> list[str]:
    return sorted(event_of(job) for job in await harness.sample_jobs())


@contextmanager
def forgetting_events(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No handled event gets into the bucket within the block; everything else does."""
    put = MemoryKeyValue.put

    async def put_others(self: MemoryKeyValue, key: str, value: bytes) -> int:
        if key.startswith("event."):
            raise Retry("Killed")
        return await put(self, key, value)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryKeyValue, "put", put_others)
        yield


@pytest.mark.usefixtures("few_recent")
async def test_after_a_loss_no_event_that_the_status_forgot_fires_again(harness: TriggerHarness) -> None:
    events = await with_history(harness, 3 * FEW)
    await lose_memory(harness)
    await harness.publish(*events)
    assert harness.jobs_created() == len(events)
    assert (await harness.status_of())["events"] == len(events)
    assert harness.bus.stored("PW_DLQ") == []


@pytest.mark.usefixtures("few_recent")
async def test_after_a_loss_new_events_fire_and_so_do_those_that_waited(harness: TriggerHarness) -> None:
    events = await with_history(harness)
    waited, new = await in_order(harness, "waited", "new")
    await lose_memory(harness)
    await harness.publish(new)
    # Older than what is handled by now, newer than all that was handled before the loss.
    await harness.publish(waited, events[0])
    assert await events_at_work(harness) == ["new", "waited"]


@pytest.mark.usefixtures("few_recent")
async def test_what_was_lost_stays_known_after_a_second_loss(harness: TriggerHarness) -> None:
    events = await with_history(harness)
    for number in range(2):
        await lose_memory(harness)
        [new] = await in_order(harness, f"new-{number}")
        await harness.publish(new)
    await lose_memory(harness)
    await harness.publish(*events[:5], new)
    assert await events_at_work(harness) == ["new-0", "new-1"]


@pytest.mark.usefixtures("few_recent")
async def test_a_loss_that_the_status_still_covers_counts_once_it_does_not(harness: TriggerHarness) -> None:
    events = await with_history(harness, 3)
    await lose_memory(harness)
    await harness.publish(*await in_order(harness, *(f"later-{n}" for n in range(TOTAL))))
    await harness.publish(*events)
    assert harness.jobs_created() == 3 + TOTAL


async def test_after_a_loss_an_event_older_than_others_fires_while_the_status_knows_them_all(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    late, handled = await in_order(harness, "late", "handled")
    await harness.publish(handled)
    await lose_memory(harness)
    await harness.publish(late)
    assert await events_at_work(harness) == ["handled", "late"]


@pytest.mark.usefixtures("few_recent")
async def test_an_event_that_waits_is_not_forgotten_for_newer_ones(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    late, *others = await in_order(harness, "late", *(f"e-{n}" for n in range(TOTAL)))
    await harness.publish(*others)
    await harness.publish(late)
    assert "late" in await events_at_work(harness)


@pytest.mark.usefixtures("few_recent")
async def test_killed_after_the_first_record_since_the_loss_what_waited_still_fires(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness() as harness:
        events = await with_history(harness)
        waited, new = await in_order(harness, "waited", "new")
        await lose_memory(harness)
        with forgetting_events(monkeypatch):
            await harness.publish(new)
            assert (await harness.status_of())["events"] == TOTAL + 1
            await harness.restart()
        await harness.publish(waited, events[0])
        await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
        assert await events_at_work(harness) == ["new", "waited"]


@pytest.mark.usefixtures("few_recent")
async def test_killed_before_the_first_record_since_the_loss_it_fires_once(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        events = await with_history(harness)
        waited, new = await in_order(harness, "waited", "new")
        await lose_memory(harness)
        with harness.failing(Retry("Killed"), "patch-status", TRIGGERS):
            await harness.publish(new)
            await harness.restart()
        await harness.publish(waited, events[0])
        await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
        assert await events_at_work(harness) == ["new", "waited"]
        assert harness.jobs_created() == TOTAL + 2


async def test_a_fact_older_than_the_memory_starts_nothing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    [old] = await in_order(harness, "old")
    await harness.clock.advance(20 * DAY)
    await harness.publish(old)
    assert await events_at_work(harness) == []
    assert (await harness.status_of())["events"] == 0
    assert harness.bus.stored("PW_DLQ") == []
    await harness.publish(*await in_order(harness, "new"))
    assert await events_at_work(harness) == ["new"]


async def test_a_fact_that_a_long_outage_held_back_starts_its_job(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    [late] = await in_order(harness, "late")
    await harness.clock.advance(12 * DAY)
    await harness.publish(late)
    assert await events_at_work(harness) == ["late"]


@pytest.mark.usefixtures("few_recent")
async def test_while_it_is_unclear_what_was_lost_events_wait(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await with_history(harness)
    await lose_memory(harness)
    get = MemoryKeyValue.get

    async def get_events(self: MemoryKeyValue, key: str) -> object:
        if not key.startswith("event."):
            raise Retry("NoLeader")
        return await get(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryKeyValue, "get", get_events)
        await harness.publish(*await in_order(harness, "new"), events[0])
        assert await events_at_work(harness) == []
        assert (await harness.condition_of("Blocked"))["reason"] == "BusUnavailable"
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert await events_at_work(harness) == ["new"]


async def test_a_pass_asks_for_the_mark_once_and_only_about_new_events(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger())
    event = harness.make_ready("e-1")
    await harness.publish(event)
    asked: list[str] = []
    get = MemoryKeyValue.get

    async def counted(self: MemoryKeyValue, key: str) -> object:
        asked.append(key.partition(".")[0])
        return await get(self, key)

    monkeypatch.setattr(MemoryKeyValue, "get", counted)
    await harness.publish_again(event)
    assert asked == ["marks"]
    asked.clear()
    await harness.publish(*await in_order(harness, "e-2", "e-3"))
    assert (asked.count("known"), asked.count("event")) == (1, 2), "the last release has an entry for each"
    assert len(await harness.sample_jobs()) == 3


async def test_objects_of_the_api_are_not_touched_for_what_is_too_old(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    [old] = await in_order(harness, "old")
    await harness.clock.advance(20 * DAY)
    with harness.recorded_calls() as calls:
        await harness.publish(old)
    touched = [call for call in calls if call[1] in (SAMPLE_JOBS.plural, TRIGGERS.plural)]
    # For every event the triggers are listed, to know that the cache has them all.
    assert touched == [("list", TRIGGERS.plural, "")]


@pytest.mark.parametrize(("days", "wanted"), [(0, False), (8, False), (13, False), (13.1, True), (20, True)])
def test_how_old_an_event_may_be(days: float, wanted: bool) -> None:
    assert is_too_old(NOW - timedelta(days=days), NOW) is wanted


def test_the_memory_keeps_events_longer_than_they_may_be_old_and_streams_shorter() -> None:
    ages = [timedelta(seconds=stream.max_age) for stream in (JOBS, DATASETS, SOURCES)]
    assert max(ages) < timedelta(seconds=EVENT_RECALL_GRACE_SECONDS) < timedelta(seconds=FIRED.max_age)


@pytest.mark.parametrize(
    ("events", "happened", "wanted"),
    [(300, -1, True), (300, 0, True), (300, 1, False), (2, -1, False), (0, -1, False)],
    ids=["older", "the newest lost", "newer", "the status holds them all", "none yet"],
)
def test_which_events_were_lost(events: int, happened: int, wanted: bool) -> None:
    status = TriggerStatus(events=events, recent=("a", "b")[:events])
    assert is_known(status, NOW + timedelta(seconds=happened), NOW) is wanted


async def test_the_first_to_miss_the_mark_decides_for_all() -> None:
    clock, bus = ManualClock(), MemoryBus()
    one, other = Memory(bus, clock), Memory(bus, clock)
    assert await one.lost_until("t", NOW) == NOW
    assert await other.lost_until("t", NOW + timedelta(seconds=1)) == NOW
    assert await other.lost_until("new", None) == EPOCH


async def test_a_used_mark_is_written_again_now_and_then() -> None:
    clock, bus = ManualClock(), MemoryBus()
    bucket = bus.key_value("pw_triggers")
    memory = Memory(bus, clock)
    revisions = []
    for _ in range(4):
        assert await memory.lost_until("t", NOW) == NOW
        revisions.append((await bucket.get("known.t")).revision)
        await clock.advance(MARK_REFRESH_INTERVAL_SECONDS * 0.6)
    assert revisions == [1, 1, 2, 2]


async def test_a_mark_that_others_write_at_once_needs_no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bus = ManualClock(), MemoryBus()
    bucket = bus.key_value("pw_triggers")
    memory = Memory(bus, clock)
    assert await memory.lost_until("t", NOW) == NOW
    await clock.advance(MARK_REFRESH_INTERVAL_SECONDS + 1)
    update = bucket.update

    async def overtaken(key: str, value: bytes, revision: int) -> int:
        await bucket.put(key, value)
        return await update(key, value, revision)

    monkeypatch.setattr(bucket, "update", overtaken)
    assert await memory.lost_until("t", None) == NOW
