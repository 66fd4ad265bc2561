"""How jobs end: clean-up, failure, servers, and that a finished one never runs again."""

from __future__ import annotations

from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict
from paddlewheel.kube.ports import PADDLE_JOBS, PODS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

DEMO = Key("default", "demo")
WORKERS = ["demo-worker-0", "demo-worker-1"]


def collective(**spec: Any) -> dict[str, Any]:
    return make_paddle_job(**({"worker": make_role(2)} | spec))


@pytest.mark.parametrize(
    ("policy", "phase", "kept"),
    [
        (None, "Failed", True),
        (None, "Succeeded", False),
        ("Always", "Failed", False),
        ("OnFailure", "Failed", False),
        ("OnFailure", "Succeeded", True),
        ("OnCompletion", "Failed", True),
        ("OnCompletion", "Succeeded", False),
        ("Never", "Succeeded", True),
        ("OnFailed", "Failed", True),
    ],
)
async def test_clean_up(desk: Any, policy: str | None, phase: str, kept: bool) -> None:
    key = await desk.to_running(collective(intranet="Service", cleanPodPolicy=policy))
    await desk.end_pods(phase=phase)
    await desk.settle(key)
    assert bool(await desk.pod_names()) is kept
    assert bool(await desk.service_names()) is kept
    assert (await desk.config(key))["PADDLE_TRAINERS_NUM"] == "2"
    status = await desk.status(key)
    assert len(status["worker"]["refs"]) == 2
    assert desk.facts()[-1] == ("JobFailed" if phase == "Failed" else "JobSucceeded")


async def test_pods_are_cleaned_up_only_after_the_end_is_recorded(desk: Any) -> None:
    key = await desk.to_running(collective())
    await desk.end_pods()
    await desk.reconcile(key)
    assert (await desk.status(key))["phase"] == "Completed"
    assert await desk.pod_names() == WORKERS
    await desk.reconcile(key)
    assert await desk.pod_names() == []
    assert desk.cluster.writes["delete", "pods"] == 2


async def test_a_finished_jobs_pod_deleted_by_hand_is_not_run_again(desk: Any) -> None:
    key = await desk.to_running(collective(cleanPodPolicy="Never"))
    await desk.end_pods()
    await desk.settle(key)
    await desk.cluster.delete(PODS, Key("default", "demo-worker-0"))
    await desk.settle(key)
    assert await desk.pod_names() == ["demo-worker-1"]
    assert (await desk.status(key))["worker"]["succeeded"] == 2


async def test_a_job_that_ended_behind_our_back_is_not_run_again(desk: Any) -> None:
    """Another replica recorded the end and cleaned up; our cache of jobs is late, that of pods is not."""
    key = await desk.to_running(collective())
    stale = desk.jobs.job(key)
    await desk.cluster.patch(PADDLE_JOBS, key, {"status": {"phase": "Completed"}}, subresource="status")
    for name in WORKERS:
        await desk.cluster.delete(PODS, Key("default", name))
    await desk.catch_up()
    desk.jobs._jobs._objects.put(key, stale)
    with pytest.raises(Conflict):
        await desk.reconciler.reconcile(key)
    assert await desk.pod_names() == []


async def test_failure_names_pod_code_and_last_line(desk: Any) -> None:
    key = await desk.to_running(collective())
    await desk.end_pods("demo-worker-1", phase="Failed", exit_code=3, message="step 9\nloss is NaN\n")
    await desk.settle(key)
    condition = await desk.condition(key, "Failed")
    assert condition["message"] == "pod demo-worker-1 failed (Error, exit code 3): loss is NaN"
    assert (await desk.status(key))["phase"] == "Failed"
    failed: Any = desk.bus.events("PW_JOBS")[-1].data
    assert (failed.reason, failed.message) == ("PodFailed", condition["message"])
    assert ("Warning", "Failed", condition["message"]) in await desk.events()
    assert await desk.pod_names() == WORKERS


async def test_a_ps_job_ends_with_its_workers_and_its_servers_are_cleaned_up(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(ps=make_role(1), worker=make_role(2)))
    await desk.end_pods(*WORKERS)
    await desk.settle(key)
    status = await desk.status(key)
    assert status["phase"] == "Completed"
    assert (status["ps"]["running"], status["worker"]["succeeded"]) == (1, 2)
    assert await desk.pod_names() == []


async def test_a_healthy_run_has_no_warnings(desk: Any) -> None:
    key = await desk.to_running(collective())
    await desk.end_pods()
    await desk.settle(key)
    events = await desk.events()
    assert {kind for kind, _, _ in events} == {"Normal"}
    assert ("Normal", "Created", "created 2 pods") in events
