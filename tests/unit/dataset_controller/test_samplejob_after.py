"""SampleJobs that run after others: what they wait for, why they are not run, and circles."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataset_controller.builders import NOW, ago, condition, make_observed_job, make_other_job
from tests.unit.dataset_controller.conftest import JOB, DataHarness

from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob, SampleJob
from dataset_controller.domain.samplejob.plan import plan
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.kube import ports
from paddlewheel.testkit.samplesets import make_sample_job

FAILED = [condition("Complete", "False", "FilesFailed")]


def job_after(*names: str, others: tuple[SampleJob, ...] = (), age: float = 0, **changes: Any) -> ObservedJob:
    seen = make_observed_job(after=list(names), meta={"creationTimestamp": ago(age)}, **changes)
    return ObservedJob(
        seen.job, seen.sample_set, seen.secret, others={other.key.name: other for other in others}
    )


def planned(seen: ObservedJob) -> tuple[JobStatus, float | None]:
    todo = plan(seen, NOW)
    assert todo.status is not None
    assert todo.actions == ()
    return todo.status, todo.requeue_after


def said(status: JobStatus, type_: str) -> tuple[str, str, str]:
    found = status.condition(type_)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("others", "waits_for", "again"),
    [
        ([make_other_job("a"), make_other_job("b", "Succeeded")], "SampleJob a", None),
        ([make_other_job("a", "Pending"), make_other_job("b", "Running")], "SampleJob a, SampleJob b", None),
        ([make_other_job("b", "Running")], "SampleJob a, which does not exist yet, SampleJob b", 1.0),
    ],
    ids=["one has ended", "neither has", "one was not created"],
)
def test_a_job_names_those_that_it_waits_for(
    others: list[SampleJob], waits_for: str, again: float | None
) -> None:
    status, requeue = planned(job_after("a", "b", others=tuple(others), age=59))
    assert (status.phase, status.run_id, requeue) == (JobPhase.NEW, "", again)
    assert said(status, "Started") == ("False", "WaitingForJobs", f"waits for {waits_for}")


@pytest.mark.parametrize("meta", [{}, {"deletionTimestamp": ago(1)}], ids=["there", "going"])
def test_a_job_runs_when_those_before_it_have_succeeded(meta: dict[str, Any]) -> None:
    status, _ = planned(job_after("a", others=(make_other_job("a", "Succeeded", meta=meta),), age=99))
    assert status.phase is JobPhase.PENDING


@pytest.mark.parametrize(
    ("others", "why"),
    [
        (
            [make_other_job("a", "Failed", conditions=FAILED)],
            "has failed (FilesFailed); let it succeed first",
        ),
        (
            [make_other_job("a", "Running", meta={"deletionTimestamp": ago(1)})],
            "is being deleted; let it succeed first",
        ),
        ([], "does not exist; create it first"),
    ],
    ids=["failed", "cancelled", "absent"],
)
def test_a_job_is_not_run_when_one_before_it_will_not_succeed(others: list[SampleJob], why: str) -> None:
    running = make_other_job("z", "Running")
    seen = job_after("z", "a", others=(running, *others), age=60, ttlSecondsAfterFinished=9)
    status, requeue = planned(seen)
    subject = f"SampleJob a of spec.after {why}, then create this one anew or edit its spec.after"
    assert said(status, "Complete") == ("False", "DependencyFailed", subject)
    assert said(status, "Started") == said(status, "Complete")
    assert (status.phase, status.started, status.completed) == (JobPhase.FAILED, "", "2026-01-01T12:00:00Z")
    assert [fact.fact for fact in status.announcements] == ["SampleJobStarted", "SampleJobFailed"]
    assert requeue == 9


@pytest.mark.parametrize(
    ("after", "others", "message"),
    [
        (
            ["a", "b"],
            [make_other_job("b", of="mnist")],
            "spec.after[1]: SampleJob b works on SampleSet mnist; name jobs of SampleSet digits",
        ),
        (
            ["a"],
            [make_other_job("a", after=["b"]), make_other_job("b", after=["c", "job"]), make_other_job("c")],
            "spec.after: job after a after b after job, so none ever runs; leave one of them out",
        ),
        (
            ["job"],
            [],
            "spec.after: job after job, so none ever runs; leave one of them out",
        ),
    ],
    ids=["another set", "circle", "itself"],
)
def test_a_job_that_could_never_run_is_refused(
    after: list[str], others: list[SampleJob], message: str
) -> None:
    status, requeue = planned(job_after(*after, others=tuple(others)))
    assert said(status, "Accepted") == ("False", "InvalidSpec", message)
    assert (status.phase, requeue) == (JobPhase.NEW, 5.0)


def test_jobs_that_have_begun_close_no_circle_and_a_circle_of_others_is_theirs() -> None:
    begun = make_other_job("a", "Running", after=["job"])
    assert planned(job_after("a", others=(begun,)))[0].phase is JobPhase.NEW
    others = (make_other_job("a", after=["b"]), make_other_job("b", after=["a"]))
    status, _ = planned(job_after("a", others=others))
    assert said(status, "Started") == ("False", "WaitingForJobs", "waits for SampleJob a")


# --- in the service


async def test_jobs_run_after_each_other_whatever_the_order_they_are_created_in(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job(after=["first"]))
    waits = await data.expect_condition("Started", "WaitingForJobs", JOB, ports.SAMPLE_JOBS)
    assert waits["message"] == "waits for SampleJob first, which does not exist yet"
    await data.create_job(make_sample_job("first", ttlSecondsAfterFinished=0))
    [spec] = data.runtime.runs("warmup")
    assert (await data.expect_job("Pending"))["message"] == "waits for SampleJob first"
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Running")
    await data.wait(2)
    assert not await data.exists(Key("default", "first"), ports.SAMPLE_JOBS)


async def test_cancelling_a_job_fails_those_after_it_and_editing_one_of_these_runs_it(
    data: DataHarness,
) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("first"))
    await data.create_job(make_sample_job(after=["first"]))
    await data.create_job(make_sample_job("last", after=["job"]))
    await data.delete(Key("default", "first"), ports.SAMPLE_JOBS)
    await data.drive()
    for name, before in (("job", "first"), ("last", "job")):
        failed = await data.expect_job("Failed", name)
        assert failed["reason"] == "DependencyFailed"
        assert failed["message"].startswith(f"SampleJob {before} of spec.after")
    assert len(data.runtime.runs("warmup")) == 1
    await data.wait(5)
    await data.expect_job("Failed")
    await data.patch(JOB, {"spec": {"after": []}}, ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Running")


async def test_a_job_whose_predecessor_never_comes_fails_after_a_minute(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(after=["nobody"]))
    await data.wait(55)
    await data.expect_job("Pending")
    await data.wait(10)
    assert (await data.expect_job("Failed"))["reason"] == "DependencyFailed"


async def test_a_circle_is_refused_until_it_is_opened(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(after=["other"]))
    await data.create_job(make_sample_job("other", after=["job"]))
    for key in (JOB, Key("default", "other")):
        await data.expect_condition("Accepted", "InvalidSpec", key, ports.SAMPLE_JOBS)
    await data.patch(JOB, {"spec": {"after": []}}, ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Succeeded")
    await data.expect_job("Succeeded", "other")
