"""Faults that the property-based test has found, each in its shortest form."""

from __future__ import annotations

from tests.unit.job_controller.conftest import JobHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PODS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

FIRST = Key("default", "demo-worker-0")
SUSPEND = {"spec": {"suspend": True}}


async def test_a_job_that_is_suspended_when_its_workers_have_succeeded_has_succeeded(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job())
    await harness.end_pods()
    await harness.patch(key, SUSPEND)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Completed", "Completed")
    assert await harness.pod_names() == []
    assert harness.facts()[-1] == "JobSucceeded"
    assert "JobSuspended" not in harness.facts()


async def test_a_job_that_fails_when_it_is_suspended_was_not_held_back(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job())
    await harness.end_pods(phase="Failed", exit_code=1)
    await harness.patch(key, SUSPEND)
    await harness.settle(key)
    assert (await harness.condition(key, "Admitted"))["status"] == "True"
    assert harness.facts()[-1] == "JobFailed"
    assert "JobGated" not in harness.facts()


async def test_a_pod_that_does_not_go_is_named_though_the_spec_has_become_wrong(harness: JobHarness) -> None:
    worker = make_role(1)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.to_running(make_paddle_job(worker=worker))
    await harness.delete(FIRST, PODS)
    await harness.patch(key, {"spec": {"backoffLimit": -1}})
    await harness.settle(key)
    await harness.advance(10)
    await harness.advance(21)
    assert (await harness.condition(key, "Running"))["reason"] == "PodStuckTerminating"


async def test_a_job_whose_spec_is_wrong_does_not_run_without_having_started(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job())
    await harness.delete(FIRST, PODS)
    for _ in range(2):
        await harness.reconcile(key)
    assert await harness.pod_names() == [FIRST.name], "it is in its second epoch"
    await harness.patch(key, {"spec": {"backoffLimit": -1}})
    await harness.run_pods()
    await harness.settle(key)
    assert harness.facts()[-1] == "JobRestarted"
    await harness.patch(key, {"spec": {"backoffLimit": 1}})
    await harness.settle(key)
    assert harness.facts()[-3:] == ["JobRestarted", "JobStarting", "JobRunning"]


async def test_a_pod_that_is_replaced_later_says_when(harness: JobHarness) -> None:
    job = make_paddle_job(worker=make_role(2), backoffLimit=2, failurePolicy={"restartScope": "Pod"})
    key = await harness.to_running(job)
    for _ in range(2):
        await harness.end_pods("demo-worker-0", phase="Failed", exit_code=1)
        await harness.settle(key)
        await harness.run_pods()
        await harness.settle(key)
    status = await harness.status(key)
    assert (status["reason"], status["message"]) == (
        "Restarting",
        "1 of 2 pods are running and ready; others are made at 2026-01-01T00:00:10Z:"
        " pod demo-worker-0 failed (Error, exit code 1)",
    )
    await harness.advance(10)
    assert await harness.pod_names() == ["demo-worker-0", "demo-worker-1"]
