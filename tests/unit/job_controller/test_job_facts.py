"""Facts on the bus: what they say, a dead bus, deletion."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from job_controller.domain import names
from job_controller.domain.facts import is_fact, render_fact
from job_controller.domain.model import JobStatus
from job_controller.domain.parse import parse_job
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.ports import PADDLE_JOBS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

DEMO = Key("default", "demo")


async def test_a_dead_bus_holds_nothing_up_and_facts_come_later_in_order(desk: Any) -> None:
    desk.bus.down = True
    key = await desk.to_running(make_paddle_job(worker=make_role(2), cleanPodPolicy="Never"))
    result = await desk.settle(key)
    assert result.requeue_after == 5.0
    assert [a["announced"] for a in (await desk.status(key))["announcements"]] == [False] * 3
    assert desk.facts() == []

    desk.bus.down = False
    await desk.clock.advance(result.requeue_after)
    result = await desk.settle(key)
    assert desk.facts() == ["JobAccepted", "JobStarting", "JobRunning"]
    assert all(a["announced"] for a in (await desk.status(key))["announcements"])
    assert result.requeue_after is None
    assert [e.time for e in desk.bus.events("PW_JOBS")] == [datetime(2026, 1, 1, tzinfo=UTC)] * 3


async def test_a_fact_told_twice_is_stored_once(open_desk: Any) -> None:
    async with open_desk() as first:
        key = await first.create(make_paddle_job())

        def die(verb: str, resource: Any, _: Key) -> None:
            if (verb, resource) == ("patch-status", PADDLE_JOBS):
                raise Retry("Killed")

        first.cluster.intercept = die
        with pytest.raises(Retry):
            await first.reconcile(key)
        assert first.facts() == ["JobAccepted"]
    async with open_desk() as second:
        second.cluster.intercept = lambda *_: None
        await second.settle(key)
        assert second.facts() == ["JobAccepted", "JobStarting"]


async def test_events_name_the_job_and_have_deterministic_ids(desk: Any) -> None:
    key = await desk.create(make_paddle_job(worker=make_role(2)))
    await desk.settle(key)
    uid = (await desk.job(key))["metadata"]["uid"]
    accepted: Any = desk.bus.events("PW_JOBS")[0]
    assert accepted.id == f"{uid}/JobAccepted/0"
    assert accepted.subject == f"pw.evt.jobs.job.accepted.v1.default.{uid}"
    assert accepted.source == "job-controller"
    assert (accepted.data.mode, accepted.data.replicas) == ("Collective", {"worker": 2})
    assert (accepted.data.job.name, accepted.data.job.generation) == ("demo", 1)


async def test_deletion_is_told_and_then_the_job_goes_with_its_children(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(worker=make_role(2)))
    await desk.cluster.delete(PADDLE_JOBS, key)
    await desk.reconcile(key)
    with pytest.raises(NotFound):
        await desk.job(key)
    assert desk.facts()[-1] == "JobDeleted"
    assert await desk.pod_names() == []
    assert await desk.settle(key)


async def test_a_job_deleted_while_the_bus_is_away_goes_once_its_last_facts_are_told(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(worker=make_role(2)))
    desk.bus.down = True
    await desk.end_pods()
    await desk.settle(key)
    await desk.cluster.delete(PADDLE_JOBS, key)
    result = await desk.settle(key)
    assert (await desk.status(key))["phase"] == "Terminating"
    assert await desk.pod_names() == []
    assert result.requeue_after == 5.0
    await desk.clock.advance(590)
    await desk.settle(key)
    desk.bus.down = False
    await desk.clock.advance(5)
    await desk.reconcile(key)
    with pytest.raises(NotFound):
        await desk.job(key)
    assert desk.facts()[-2:] == ["JobSucceeded", "JobDeleted"]


async def test_a_dead_bus_delays_deletion_by_a_bounded_time(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(worker=make_role(2)))
    desk.bus.down = True
    await desk.cluster.delete(PADDLE_JOBS, key)
    await desk.clock.advance(599)
    await desk.settle(key)
    assert (await desk.status(key))["phase"] == "Terminating"
    await desk.clock.advance(1)
    await desk.reconcile(key)
    with pytest.raises(NotFound):
        await desk.job(key)
    assert "JobDeleted" not in desk.facts()


async def test_a_finalizer_of_somebody_else_is_left_to_them(desk: Any) -> None:
    job = make_paddle_job()
    job["metadata"]["finalizers"] = ["example.com/theirs"]
    key = await desk.create(job)
    await desk.settle(key)
    await desk.cluster.delete(PADDLE_JOBS, key)
    await desk.settle(key)
    assert (await desk.job(key))["metadata"]["finalizers"] == ["example.com/theirs"]
    assert desk.facts().count("JobDeleted") == 1


async def test_a_job_deleted_before_it_was_seen_is_let_go(desk: Any) -> None:
    job = make_paddle_job()
    job["metadata"]["finalizers"] = ["example.com/theirs"]
    key = await desk.create(job)
    await desk.cluster.delete(PADDLE_JOBS, key)
    await desk.settle(key)
    assert await desk.pod_names() == []
    assert desk.facts() == []


def test_a_gate_told_late_still_names_its_set() -> None:
    raw = make_paddle_job(sampleSetRef={"name": "digits", "mountPath": "/d"}, worker=make_role())
    late = render_fact(parse_job(raw), JobStatus(), Announcement("JobGated", 0, "t"))
    assert isinstance(late, JobGated)
    assert (late.reason, late.sample_set) == ("SampleSetNotReady", "digits")


def test_every_fact_of_this_service_can_be_built() -> None:
    told = [v for k, v in vars(names).items() if k.startswith("JOB_")]
    job = parse_job(make_paddle_job())
    assert len(told) == 7
    for fact in told:
        assert is_fact(fact)
        assert type(render_fact(job, JobStatus(), Announcement(fact, 0, "t"))).__name__ == fact
    assert not is_fact("JobSuspended")


async def test_a_fact_the_bus_can_never_take_does_not_hold_the_others(desk: Any) -> None:
    real = desk.bus.publish

    async def refuse_one(event: Any) -> None:
        if event.type.endswith("JobAccepted"):
            raise Permanent("TooLarge", "too large")
        await real(event)

    desk.bus.publish = refuse_one
    key = await desk.create(make_paddle_job())
    result = await desk.settle(key)
    assert desk.facts() == ["JobStarting"]
    assert result.requeue_after is None
