"""Schedules on a real API server, with several replicas that are killed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.trigger_controller.conftest import EVENT, TriggerServiceHarness

from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Object, Objects
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ON = {"sampleSetRef": {"name": "digits"}}
OPERATIONS: dict[str, Object] = {
    "sync": {"type": "sync", "secretRef": {"name": "source"}, "syncOptions": {"update": True}, **ON},
    "warmup": {"type": "warmup", **ON},
    "rmr": {"type": "rmr", "rmrOptions": {"paths": ["old"]}, **ON},
    "clear": {"type": "clear", **ON},
}
TRAIN = {
    "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}
}


def scheduled(name: str, cron: str, **create: Any) -> Object:
    return make_trigger(name, when={"schedule": {"cron": cron}}, create=create)


async def behind(harness: TriggerServiceHarness, name: str, cron: str, **create: Any) -> None:
    """A trigger that was last dealt with three hours ago."""
    key = await harness.create(scheduled(name, cron, **create))
    since = datetime.now(UTC) - timedelta(hours=3)
    schedule = {"expression": f"{cron} UTC", "since": f"{since:%Y-%m-%dT%H:%M:%SZ}"}
    await harness.set_status(key, {"observedGeneration": 1, "schedule": schedule}, TRIGGERS)


async def test_every_operation_can_be_scheduled_and_is_made_up_for_once(
    harness: TriggerServiceHarness,
) -> None:
    """Two replicas start at once; one is killed, and comes back. The next time is half an hour away."""
    minute = (datetime.now(UTC).minute + 30) % 60
    hourly = f"{minute} * * * *"
    for name, spec in OPERATIONS.items():
        await behind(harness, name, hourly, sampleJob={"spec": spec})
    await behind(harness, "train", hourly, paddleJob=TRAIN)
    one, _ = await asyncio.gather(harness.start_process(), harness.start_process("replica-1"))
    await harness.wait_jobs(1, PADDLE_JOBS)
    await one.kill()
    await one.start()
    jobs = await harness.wait_jobs(len(OPERATIONS))
    for name in (*OPERATIONS, "train"):
        key = harness.key(name)
        await harness.wait_status(key, {"fired": 1, "events": 1})
        await harness.wait_facts(key, "TriggerFired")
    assert {job["spec"]["type"]: job["spec"] for job in jobs} == OPERATIONS
    times = {job["metadata"]["annotations"][EVENT] for job in jobs}
    assert all(time.startswith("schedule-") and time.endswith(f":{minute:02}:00Z") for time in times)


async def test_each_minute_starts_one_job_with_two_replicas(harness: TriggerServiceHarness) -> None:
    """On a slow machine the next minute may come before all is told of the first."""
    await asyncio.gather(harness.start_process(), harness.start_process("replica-1"))
    key = await harness.watched(scheduled("minutely", "* * * * *", sampleJob={"spec": OPERATIONS["clear"]}))

    async def all_told() -> Objects:
        jobs, fired = await harness.objects(SAMPLE_JOBS), (await harness.status(key)).get("fired")
        is_told = len(jobs) == fired == harness.facts(key).count("TriggerFired")
        return jobs if is_told else []

    jobs = await eventually(all_told, within=200, what="each job is counted and told")
    created = (await harness.get(key))["metadata"]["creationTimestamp"]
    events = sorted(job["metadata"]["annotations"][EVENT] for job in jobs)
    first = datetime.fromisoformat(events[0].removeprefix("schedule-"))
    assert first > datetime.fromisoformat(created)
    minutes = [first + timedelta(minutes=count) for count in range(len(jobs))]
    assert events == [f"schedule-{minute:%Y-%m-%dT%H:%M:00Z}" for minute in minutes]
