"""The facts of jobs after their stream was lost: back by themselves, on command, and shared by replicas."""

from __future__ import annotations

import re

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import JOBS
from paddlewheel.testkit.rebuilds import rebuild
from paddlewheel.testkit.wait import eventually

LIFE = ("JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")
SERVICE = "job-controller"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@pytest.mark.long
async def test_the_data_directory_deleted_in_the_middle_of_a_run_brings_the_facts_back_by_themselves(
    jobs: JobServiceHarness,
) -> None:
    await jobs.start_process()
    done, midway = await jobs.to_running("done"), await jobs.to_running("midway")
    await jobs.to_end(done)
    await jobs.wait_facts(done, *LIFE)
    await jobs.wait_facts(midway, *LIFE[:3])
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in jobs.events)
    before = {event.id for event in jobs.events}

    jobs.nats.lose_data()
    jobs.events.clear()
    await jobs.to_end(midway)
    # In order, though one of them became true while the others were lost.
    await jobs.wait_facts(midway, *LIFE)
    await jobs.wait_facts(done, *LIFE)
    after = {event.id for event in jobs.events}
    assert before < after
    assert len(after) == len(jobs.events) == 8
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in jobs.events)


@pytest.mark.long
async def test_a_stream_lost_while_the_service_was_dead_is_noticed_at_its_start(
    jobs: JobServiceHarness,
) -> None:
    service = await jobs.start_process()
    key = await jobs.to_running("digits")
    await jobs.wait_facts(key, *LIFE[:3])
    await service.kill()
    jobs.nats.lose_data()
    jobs.events.clear()
    await jobs.start()
    await jobs.wait_facts(key, *LIFE[:3])


async def test_the_command_brings_back_what_is_missing_and_only_that(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.to_running("digits")
    await jobs.wait_facts(key, *LIFE[:3])
    [first] = await rebuild(jobs.bus, SERVICE, replicas=1, within=90)
    assert (first.service, first.objects, first.facts_checked, first.facts_published) == (
        "job-controller",
        1,
        3,
        0,
    )
    assert isinstance(jobs.bus, NatsBus)
    js = await jobs.bus._connection.jetstream()
    await js.delete_stream(JOBS.name)
    jobs.events.clear()

    async def is_complete() -> bool:
        [report] = await rebuild(jobs.bus, SERVICE, replicas=1, within=90)
        return report.facts_checked == 3 and report.facts_published == 0

    await eventually(is_complete)
    await jobs.wait_facts(key, *LIFE[:3])


@pytest.mark.long
async def test_replicas_share_a_rebuild(jobs: JobServiceHarness) -> None:
    await jobs.start("one", REPLICAS_SHARE="true")
    await jobs.start("two", REPLICAS_SHARE="true")
    keys = [await jobs.to_running(f"job-{i}") for i in range(8)]
    for key in keys:
        await jobs.wait_facts(key, *LIFE[:3])
    jobs.nats.lose_data()
    jobs.events.clear()
    for key in keys:
        await jobs.wait_facts(key, *LIFE[:3])
    one, two = await rebuild(jobs.bus, SERVICE, replicas=2, within=90)
    assert (one.replica, two.replica) == ("one", "two")
    assert one.objects + two.objects == 8
    assert one.facts_checked + two.facts_checked == 24
    assert one.facts_published + two.facts_published == 0
    assert len(jobs.events) == 24
