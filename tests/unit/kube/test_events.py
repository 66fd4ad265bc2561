"""Events are written once and counted, at a bounded rate, and never fail the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.events import BURST, REFILL_INTERVAL_SECONDS, EventRecorder
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import EVENTS, NODES, PADDLE_JOBS, Object, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster

JOB: Object = {"metadata": {"name": "digits", "namespace": "team", "uid": "u-1", "resourceVersion": "7"}}


class Harness:
    """A recorder over a memory cluster."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster()
        self.recorder = self.new_recorder()

    def new_recorder(self) -> EventRecorder:
        return EventRecorder(self.cluster, "job-controller", "pod-1", self.clock)

    async def events(self) -> list[Object]:
        return await self.cluster.list(EVENTS)


@asynccontextmanager
async def writing(recorder: EventRecorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
        await asyncio.wait_for(recorder.flush(), 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_an_event_refers_to_its_object(harness: Harness) -> None:
    async with writing(harness.recorder):
        harness.recorder.warning(PADDLE_JOBS, JOB, "UnknownIntranet", "spec.intranet: use PodIP")
    [event] = await harness.events()
    assert event["involvedObject"] == {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "namespace": "team",
        "name": "digits",
        "uid": "u-1",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "UnknownIntranet", 1)
    assert event["message"] == "spec.intranet: use PodIP"
    assert event["source"] == {"component": "job-controller"}
    assert key_of(event).namespace == "team"


async def test_repeats_are_counted_in_one_event_even_over_a_restart(harness: Harness) -> None:
    async with writing(harness.recorder):
        harness.recorder.normal(PADDLE_JOBS, JOB, "Created", "pods created")
        await harness.clock.advance(60)
        harness.recorder.normal(
            PADDLE_JOBS,
            {**JOB, "metadata": JOB["metadata"] | {"resourceVersion": "8"}},
            "Created",
            "pods created",
        )
    again = harness.new_recorder()
    async with writing(again):
        again.normal(PADDLE_JOBS, JOB, "Created", "pods created")
        again.normal(PADDLE_JOBS, JOB, "Created", "services created")
    counts = {event["message"]: event["count"] for event in await harness.events()}
    assert counts == {"pods created": 3, "services created": 1}
    [event] = [event for event in await harness.events() if event["count"] == 3]
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_events_of_cluster_wide_objects_live_in_default(harness: Harness) -> None:
    async with writing(harness.recorder):
        harness.recorder.normal(NODES, {"metadata": {"name": "n-1", "uid": "n"}}, "Labelled", "partition 0")
    [event] = await harness.events()
    assert key_of(event).namespace == "default"
    assert "namespace" not in event["involvedObject"]


async def test_one_object_cannot_flood(harness: Harness) -> None:
    other: Object = {"metadata": {"name": "other", "namespace": "team", "uid": "u-2"}}
    async with writing(harness.recorder):
        for i in range(200):
            harness.recorder.normal(PADDLE_JOBS, JOB, "Step", f"step {i}")
        harness.recorder.normal(PADDLE_JOBS, other, "Step", "step 0")
    assert len(await harness.events()) == BURST + 1
    await harness.clock.advance(REFILL_INTERVAL_SECONDS)
    async with writing(harness.recorder):
        harness.recorder.normal(PADDLE_JOBS, JOB, "Step", "later")
        harness.recorder.normal(PADDLE_JOBS, JOB, "Step", "too soon")
    assert len(await harness.events()) == BURST + 2


async def test_a_failure_to_write_is_not_raised_and_the_next_event_is_written(harness: Harness) -> None:
    def refuse(verb: str, resource: Resource, key: Key) -> None:
        raise Permanent("Forbidden", "events is forbidden")

    async with writing(harness.recorder):
        harness.cluster.intercept = refuse
        harness.recorder.normal(PADDLE_JOBS, JOB, "Lost", "lost")
        await harness.recorder.flush()
        harness.cluster.intercept = lambda *_: None
        harness.recorder.normal(PADDLE_JOBS, JOB, "Kept", "kept")
    assert [event["reason"] for event in await harness.events()] == ["Kept"]


async def test_a_text_that_cannot_be_written_ends_the_events_of_no_other_object(harness: Harness) -> None:
    async with writing(harness.recorder):
        harness.recorder.warning(PADDLE_JOBS, JOB, "Half", "half a character: \ud800")
        harness.recorder.warning(PADDLE_JOBS, JOB, "Kept", "kept")
    assert [event["reason"] for event in await harness.events()] == ["Kept"]


async def test_without_a_writer_events_are_dropped_instead_of_kept(harness: Harness) -> None:
    for i in range(5000):
        obj = {"metadata": {"name": f"j{i}", "namespace": "team", "uid": str(i)}}
        harness.recorder.normal(PADDLE_JOBS, obj, "Step", "step")
    async with writing(harness.recorder):
        pass
    assert len(await harness.events()) == 512


async def test_warnings_are_not_lost_behind_normal_events(harness: Harness) -> None:
    jobs = [{"metadata": {"name": f"job-{i}", "namespace": "team", "uid": f"u-{i}"}} for i in range(100)]
    for number in range(1000):
        harness.recorder.normal(PADDLE_JOBS, jobs[number % 50], "Created", f"created pod {number}")
    for job in jobs:
        harness.recorder.warning(PADDLE_JOBS, job, "PodFailed", "exit code 1")
    async with writing(harness.recorder):
        pass
    warned = {
        event["involvedObject"]["name"] for event in await harness.events() if event["type"] == "Warning"
    }
    assert warned == {key_of(job).name for job in jobs}


async def test_a_warning_is_written_before_normal_events(harness: Harness) -> None:
    for number in range(3):
        harness.recorder.normal(PADDLE_JOBS, JOB, "Created", f"created pod {number}")
    harness.recorder.warning(PADDLE_JOBS, JOB, "PodFailed", "exit code 1")
    async with writing(harness.recorder):
        pass
    written = sorted(await harness.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert [event["reason"] for event in written] == ["PodFailed", "Created", "Created", "Created"]


async def test_a_long_message_and_name_fit(harness: Harness) -> None:
    long: Object = {"metadata": {"name": "a" * 253, "namespace": "team", "uid": "u"}}
    async with writing(harness.recorder):
        harness.recorder.normal(PADDLE_JOBS, long, "Long", "x" * 5000)
    [event] = await harness.events()
    assert len(event["message"]) == 1024
    assert len(key_of(event).name) <= 253
