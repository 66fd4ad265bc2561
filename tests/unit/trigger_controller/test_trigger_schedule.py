"""Triggers that follow the clock: each time starts one job, whatever is killed, away, late or changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.trigger_controller.conftest import OpenHarness, TriggerHarness, event_of, events_of

from paddlewheel.contracts.crds.trigger import ScheduleSource
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS, Resource
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.triggers import SAMPLE_JOB_SUCCEEDED, WARMUP, make_job_succeeded, make_trigger
from trigger_controller.domain.model import Observed, Turn
from trigger_controller.domain.parse import parse_trigger
from trigger_controller.domain.policies.schedule import wait_before_turn, with_schedule
from trigger_controller.domain.timetable import Timetable, find_schedule_problem

HOUR = 3600.0
MOMENTS = st.integers(1577836800, 1893456000).map(lambda second: datetime.fromtimestamp(second, UTC))
EXPRESSIONS = ("*/7 * * * *", "30 2 * * *", "@weekly", "0 9-17/4 * * MON-FRI", "15 1 1 * *", "0 12 29 2 *")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai")


def scheduled(cron: str = "0 * * * *", **spec: Any) -> dict[str, Any]:
    """Every full hour, unless told otherwise; keywords of the schedule come in `schedule`."""
    schedule = {"cron": cron, **spec.pop("schedule", {})}
    return make_trigger(when={"schedule": schedule}, **spec)


async def to_next_hour(harness: TriggerHarness, hours: int = 1) -> str:
    """Let the clock pass that many full hours; returns the last one as it is written."""
    now = harness.clock.now()
    full = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=hours)
    await harness.advance((full - now).total_seconds() + 1)
    return f"{full:%Y-%m-%dT%H:%M:%SZ}"


async def test_each_time_starts_one_job_and_is_published(harness: TriggerHarness) -> None:
    await harness.apply(
        scheduled(create={"sampleJob": {**WARMUP, "metadata": {"labels": {"at": "$(event.id)"}}}})
    )
    assert await harness.sample_jobs() == []
    assert (await harness.status_of())["schedule"]["next"].endswith(":00:00Z")
    times = [await to_next_hour(harness) for _ in range(3)]
    jobs = await harness.sample_jobs()
    assert sorted(map(event_of, jobs)) == [f"schedule-{time}" for time in times]
    assert {job["metadata"]["labels"]["at"] for job in jobs} == {f"schedule-{time}" for time in times}
    status = await harness.status_of()
    assert (status["fired"], status["events"], status["skipped"]) == (3, 3, 0)
    assert status["schedule"]["since"] == times[-1]
    assert harness.facts() == ["TriggerFired"] * 3


async def test_nothing_is_written_between_two_times(harness: TriggerHarness) -> None:
    await harness.apply(scheduled())
    await to_next_hour(harness)
    await harness.advance(600)
    writes = harness.status_writes()
    for _ in range(4):
        await harness.advance(600)
    assert harness.status_writes() == writes


async def test_of_the_times_that_passed_while_nobody_ran_the_newest_is_made_up_for(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as first:
        await first.apply(scheduled())
        clock = first.clock
        now = clock.now()
    await clock.advance(50 * HOUR)
    async with open_harness() as second:
        await second.drain_queue()
        [job] = await second.sample_jobs()
        newest = (now + timedelta(hours=50)).replace(minute=0, second=0, microsecond=0)
        assert event_of(job) == f"schedule-{newest:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_time_past_its_deadline_starts_nothing_and_is_told(open_harness: OpenHarness) -> None:
    async with open_harness() as first:
        await first.apply(scheduled(schedule={"startingDeadlineSeconds": 60}))
        now, clock = first.clock.now(), first.clock
    full = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    await clock.advance((full - now).total_seconds() + 61)
    async with open_harness() as second:
        await second.drain_queue()
        assert await second.sample_jobs() == []
        status = await second.status_of()
        assert (status["events"], status["skipped"]) == (1, 1)
        assert ("Warning", "MissedSchedule") in await second.event_reasons()
        await to_next_hour(second)
        assert len(await second.sample_jobs()) == 1


@pytest.mark.parametrize(("verb", "resource"), [("create", SAMPLE_JOBS), ("patch-status", TRIGGERS)])
async def test_killed_anywhere_a_time_starts_one_job(
    open_harness: OpenHarness, verb: Verb, resource: Resource
) -> None:
    async with open_harness() as first:
        await first.apply(scheduled())
        with first.failing(Retry("Killed"), verb, resource):
            time = await to_next_hour(first)
            await first.restart()
        await first.advance(60)
        [job] = await first.sample_jobs()
        assert event_of(job) == f"schedule-{time}"
        assert first.jobs_created() == 1
        assert (await first.status_of())["fired"] == 1
        assert first.facts() == ["TriggerFired"]


async def test_replicas_start_one_job_together(open_harness: OpenHarness) -> None:
    async with open_harness() as one, open_harness() as other:
        await one.apply(scheduled())
        await to_next_hour(one)
        await other.drain_queue()
        await one.drain_queue()
        assert one.jobs_created() == 1
        assert (await one.status_of())["fired"] == 1


async def test_a_deleted_job_of_a_time_is_not_created_again(harness: TriggerHarness) -> None:
    await harness.apply(scheduled())
    await to_next_hour(harness)
    [job] = await harness.sample_jobs()
    await harness.delete_job(job)
    await harness.restart()
    await harness.drain_queue()
    assert harness.jobs_created() == 1


async def test_what_passes_while_it_is_suspended_is_not_made_up_for(harness: TriggerHarness) -> None:
    await harness.apply(scheduled())
    await harness.change({"suspend": True})
    assert "schedule" not in await harness.status_of()
    await to_next_hour(harness, hours=3)
    await harness.change({"suspend": False})
    assert await harness.sample_jobs() == []
    await to_next_hour(harness)
    assert len(await harness.sample_jobs()) == 1


async def test_a_changed_schedule_begins_anew(harness: TriggerHarness) -> None:
    await harness.apply(scheduled("0 3 1 6 *"))
    await harness.advance(5 * HOUR)
    await harness.change({"when": {"schedule": {"cron": "@hourly"}}})
    assert await harness.sample_jobs() == [], "no time of before the change"
    await to_next_hour(harness)
    assert len(await harness.sample_jobs()) == 1


async def test_forbid_starts_one_job_for_all_times_that_passed_when_the_running_one_has_ended(
    harness: TriggerHarness,
) -> None:
    await harness.apply(scheduled(concurrencyPolicy="Forbid"))
    await to_next_hour(harness)
    [job] = await harness.sample_jobs()
    newest = await to_next_hour(harness, hours=2)
    assert harness.jobs_created() == 1
    await harness.end(job)
    await harness.advance(1)
    [_, second] = sorted(await harness.sample_jobs(), key=event_of)
    assert event_of(second) == f"schedule-{newest}"


async def test_a_time_that_waits_behind_a_job_for_too_long_starts_nothing(harness: TriggerHarness) -> None:
    await harness.apply(scheduled(schedule={"startingDeadlineSeconds": 600}, concurrencyPolicy="Forbid"))
    await to_next_hour(harness)
    [job] = await harness.sample_jobs()
    await to_next_hour(harness)
    await harness.advance(601)
    await harness.end(job)
    await harness.advance(1)
    assert harness.jobs_created() == 1
    status = await harness.status_of()
    assert (status["events"], status["skipped"]) == (2, 1)
    assert "waiting" not in status


async def test_replace_ends_the_running_job(harness: TriggerHarness) -> None:
    await harness.apply(scheduled(concurrencyPolicy="Replace"))
    await to_next_hour(harness)
    newest = await to_next_hour(harness)
    await harness.advance(1)
    [job] = await harness.sample_jobs()
    assert (event_of(job), events_of(job)) == (f"schedule-{newest}", "1")


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
@pytest.mark.parametrize("schedule", [{}, {"startingDeadlineSeconds": 600}], ids=["no deadline", "deadline"])
async def test_a_schedule_needs_no_bus(
    harness: TriggerHarness, policy: str, schedule: dict[str, int]
) -> None:
    """Each time starts one job, also when that has ended and is gone before the bus is back."""
    await harness.apply(scheduled(schedule=schedule, concurrencyPolicy=policy, successfulJobsHistoryLimit=1))
    with harness.bus_down():
        for number in range(1, 4):
            await to_next_hour(harness)
            await harness.advance(30)
            assert harness.jobs_created() == number
            assert (await harness.status_of())["fired"] == number
            for job in await harness.sample_jobs():
                if job.get("status", {}).get("phase") != "Succeeded":
                    await harness.end(job)
        await harness.delete_job((await harness.sample_jobs())[0])
        await harness.advance(600)
    await harness.advance(600)
    assert harness.jobs_created() == 3
    status = await harness.status_of()
    assert (status["fired"], status["events"], status["skipped"]) == (3, 3, 0)
    assert harness.facts() == ["TriggerFired"] * 3
    assert ("Warning", "MissedSchedule") not in await harness.event_reasons()
    assert len(await harness.sample_jobs()) <= 1
    passes = sum(harness.replica.passes.values())
    await harness.advance(250)
    assert sum(harness.replica.passes.values()) <= passes + 1, "nothing is polled"


async def test_who_started_a_job_while_the_bus_was_away_is_remembered_when_it_is_back(
    harness: TriggerHarness,
) -> None:
    await harness.apply(scheduled())
    chained = {"fact": {"type": SAMPLE_JOB_SUCCEEDED, "object": {"createdBy": "warm"}}}
    await harness.apply(make_trigger("after", when=chained))
    with harness.bus_down():
        await to_next_hour(harness)
    await harness.advance(30)
    [job] = await harness.sample_jobs()
    await harness.delete_job(job)
    await harness.publish(make_job_succeeded("s-1", job, time=harness.clock.now()))
    [second] = await harness.sample_jobs()
    assert event_of(second) == "s-1"


async def test_a_job_whose_creation_had_no_answer_is_counted_though_its_deadline_has_passed(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as first:
        await first.apply(scheduled(schedule={"startingDeadlineSeconds": 60}))
        with first.failing(Retry("Killed"), "patch-status", TRIGGERS):
            time = await to_next_hour(first)
        clock = first.clock
    await clock.advance(1800)
    async with open_harness() as second:
        await second.advance(1)
        [job] = await second.sample_jobs()
        assert event_of(job) == f"schedule-{time}"
        status = await second.status_of()
        assert (status["fired"], status["skipped"]) == (1, 0)
        assert second.facts() == ["TriggerFired"]


async def test_the_deadline_holds_for_a_time_whose_job_cannot_be_created(harness: TriggerHarness) -> None:
    await harness.apply(scheduled(schedule={"startingDeadlineSeconds": 600}, concurrencyPolicy="Forbid"))
    with harness.failing(Retry("Away"), "create", SAMPLE_JOBS):
        await to_next_hour(harness)
        for _ in range(20):
            await harness.advance(60)
    await harness.advance(60)
    assert await harness.sample_jobs() == []
    status = await harness.status_of()
    assert (status["events"], status["skipped"], "firing" in status) == (1, 1, False)
    assert ("Warning", "MissedSchedule") in await harness.event_reasons()


@pytest.mark.parametrize(
    "changes", [[{"suspend": True}, {"suspend": False}], [{"when": {"schedule": {"cron": "0 0 1 1 *"}}}]]
)
async def test_a_time_that_waits_is_dropped_when_the_schedule_is_suspended_or_changed(
    harness: TriggerHarness, changes: list[dict[str, Any]]
) -> None:
    await harness.apply(scheduled(concurrencyPolicy="Forbid"))
    await to_next_hour(harness)
    [job] = await harness.sample_jobs()
    await to_next_hour(harness)
    assert (await harness.status_of())["waiting"]["events"] == 1
    for change in changes:
        await harness.change(change)
    await harness.end(job)
    await harness.advance(60)
    assert harness.jobs_created() == 1
    assert (await harness.status_of())["skipped"] == 1


async def test_a_clock_that_was_far_ahead_stops_no_schedule(harness: TriggerHarness) -> None:
    key = Key("default", "warm")
    await harness.apply(scheduled())
    await harness.set_status(key, {"schedule": {"since": "2027-06-01T00:00:00Z"}})
    await to_next_hour(harness)
    newest = await to_next_hour(harness)
    assert event_of((await harness.sample_jobs())[-1]) == f"schedule-{newest}"


def test_a_time_between_two_readings_of_the_clock_is_waited_for() -> None:
    before, after = datetime(2026, 1, 1, 0, 59, 59, 999900, UTC), datetime(2026, 1, 1, 1, 0, 0, 100, UTC)
    trigger = parse_trigger(
        {**scheduled(), "metadata": {"name": "warm", "namespace": "default", "generation": 1}}, {}
    )
    seen = Observed(trigger, turn=Turn(before, before))
    status = with_schedule(seen, trigger.status)
    assert status.schedule is not None
    assert status.schedule.next == datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
    assert wait_before_turn(status, after) == 0.0


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({"cron": "61 * * * *"}, "spec.when.schedule.cron: bad minute in '61 * * * *'"),
        ({"cron": "0 0 31 2 *"}, "spec.when.schedule.cron: bad day-of-month"),
        ({"cron": "@daily", "timeZone": "Mars/Base"}, "timeZone: there is no time zone Mars/Base"),
        ({"cron": "@daily", "timeZone": "../etc/passwd"}, "there is no time zone ../etc/passwd"),
        ({"cron": "@daily", "timeZone": "Europe"}, "there is no time zone Europe"),
    ],
)
async def test_a_schedule_that_cannot_be_read_is_named(
    harness: TriggerHarness, schedule: dict[str, str], says: str
) -> None:
    await harness.apply(make_trigger(when={"schedule": schedule}))
    ready = await harness.condition_of("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSchedule")
    assert says in ready["message"]
    await harness.change({"when": {"schedule": {"cron": "@hourly", "timeZone": "UTC"}}})
    assert (await harness.condition_of("Ready"))["status"] == "True"
    await to_next_hour(harness)
    assert len(await harness.sample_jobs()) == 1


async def test_a_template_may_not_name_what_a_schedule_has_not(harness: TriggerHarness) -> None:
    template = {**WARMUP, "metadata": {"labels": {"a": "$(object.name)"}}}
    await harness.apply(scheduled(create={"sampleJob": template}))
    assert "$(object.name) has no value in this trigger" in (await harness.condition_of("Ready"))["message"]


# Timetables


@pytest.mark.parametrize(
    ("cron", "zone", "after", "times"),
    [
        ("30 2 * * *", "Asia/Shanghai", "2026-01-01T00:00", ["2026-01-01T18:30", "2026-01-02T18:30"]),
        # The clock skips from 02:00 to 03:00 on 29 March: the job runs once, at 03:00 local time.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        # 02:30 comes twice on 25 October: the job runs once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("@monthly", "UTC", "2026-01-31T00:00", ["2026-02-01T00:00", "2026-03-01T00:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ],
)
def test_next_times(cron: str, zone: str, after: str, times: list[str]) -> None:
    timetable, found = Timetable(cron, zone), []
    moment: datetime | None = datetime.fromisoformat(f"{after}+00:00")
    for _ in times:
        assert moment
        moment = timetable.next_after(moment)
        assert moment
        found.append(f"{moment:%Y-%m-%dT%H:%M}")
    assert found == times


@given(
    cron=st.sampled_from(EXPRESSIONS), zone=st.sampled_from(ZONES), since=MOMENTS, hours=st.integers(0, 300)
)
def test_the_newest_time_is_the_last_of_those_that_follow_each_other(
    cron: str, zone: str, since: datetime, hours: int
) -> None:
    timetable, until = Timetable(cron, zone), since + timedelta(hours=hours)
    last, time = None, timetable.next_after(since)
    while time is not None and time <= until:
        last, time = time, timetable.next_after(time)
    assert timetable.newest_within(since, until) == last


@pytest.mark.parametrize(
    "cron", ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "*/5 9-17 * * MON-FRI"]
)
def test_usual_schedules_can_be_read(cron: str) -> None:
    assert find_schedule_problem(ScheduleSource(cron=cron, time_zone="Asia/Shanghai")) == ""
