"""How jobs end: clean-up, failure, servers, and that a finished one never runs again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from paddlewheel.contracts.generated.jobs_v1 import JobFailed
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict
from paddlewheel.kube.ports import PODS, Object
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

WORKERS = ["demo-worker-0", "demo-worker-1"]


def collective(**spec: Any) -> Object:
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
async def test_clean_up(harness: JobHarness, policy: str | None, phase: str, kept: bool) -> None:
    key = await harness.to_running(collective(intranet="Service", cleanPodPolicy=policy))
    await harness.end_pods(phase=phase)
    await harness.settle(key)
    assert bool(await harness.pod_names()) is kept
    assert bool(await harness.service_names()) is kept
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "2"
    status = await harness.status(key)
    assert len(status["worker"]["refs"]) == 2
    assert harness.facts()[-1] == ("JobFailed" if phase == "Failed" else "JobSucceeded")


async def test_pods_are_cleaned_up_only_after_the_end_is_recorded(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods()
    await harness.reconcile(key)
    assert (await harness.status(key))["phase"] == "Completed"
    assert await harness.pod_names() == WORKERS
    await harness.reconcile(key)
    assert await harness.pod_names() == []
    assert harness.cluster.writes["delete", "pods"] == 2


async def test_a_finished_jobs_pod_deleted_by_hand_is_not_run_again(harness: JobHarness) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Never"))
    await harness.end_pods()
    await harness.settle(key)
    await harness.delete(Key("default", "demo-worker-0"), PODS)
    await harness.settle(key)
    assert await harness.pod_names() == ["demo-worker-1"]
    assert (await harness.status(key))["worker"]["succeeded"] == 2


async def test_a_worker_that_has_succeeded_is_not_run_again_when_its_pod_is_gone(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods("demo-worker-0", message='{"accuracy": 0.97}')
    await harness.settle(key)
    # The garbage collection of terminated pods and a drain do this.
    await harness.delete(Key("default", "demo-worker-0"), PODS)
    await harness.settle(key)
    assert await harness.pod_names() == ["demo-worker-1"]
    assert await counts(harness, key) == ("1/2", {"running": 1, "succeeded": 1})
    status = await harness.status(key)
    assert (status["phase"], status["worker"]["succeededIndexes"]) == ("Running", [0])
    assert [ref["name"] for ref in status["worker"]["refs"]] == WORKERS
    await harness.restart()
    with harness.counted_writes() as writes:
        await harness.drain_queue()
    assert writes["create", "pods"] == 0

    await harness.end_pods("demo-worker-1", message='{"accuracy": 0.5}')
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["worker"]["succeeded"]) == ("Completed", 2)
    assert status["results"] == {"accuracy": 0.97}, "those of the first worker, though its pod is gone"


async def test_a_worker_that_succeeded_does_not_hide_the_failure_of_another(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods("demo-worker-0", message='{"accuracy": 0.97}')
    await harness.settle(key)
    await harness.delete(Key("default", "demo-worker-0"), PODS)
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status.get("results")) == ("Failed", None)
    assert await counts(harness, key) == ("0/2", {"failed": 1, "succeeded": 1})


async def test_a_worker_that_a_drain_ends_has_not_succeeded(harness: JobHarness) -> None:
    """It ends with 0 because of its deletion."""
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.to_running(collective(worker=worker))
    pod = Key("default", "demo-worker-0")
    await harness.delete(pod, PODS)
    await harness.end_pods("demo-worker-0")
    await harness.settle(key)
    for name in WORKERS:
        await harness.patch(Key("default", name), {"metadata": {"finalizers": None}}, PODS)
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS
    assert await counts(harness, key) == ("0/2", {"pending": 2})


async def test_a_worker_that_has_succeeded_and_was_scaled_away_is_run_when_it_is_wanted_again(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(ps=make_role(1)))
    await harness.end_pods("demo-worker-1")
    await harness.settle(key)
    for replicas in (1, 2):
        await harness.patch(key, {"spec": {"worker": {"replicas": replicas}}})
        await harness.settle(key)
    assert await harness.pod_names() == ["demo-ps-0", *WORKERS]
    assert await counts(harness, key) == ("0/3", {"pending": 2})


async def test_succeeded_workers_that_are_gone_are_counted_for_a_wrong_spec_too(harness: JobHarness) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Never"))
    await harness.patch(key, {"spec": {"worker": {"replicas": -1}}})
    for name in WORKERS:
        await harness.end_pods(name)
        await harness.settle(key)
        await harness.delete(Key("default", name), PODS)
        await harness.settle(key)
    assert await counts(harness, key) == ("0/2", {"succeeded": 2})
    assert (await harness.status(key))["phase"] == "Completed"


async def test_a_job_that_another_replica_has_ended_is_not_run_again(harness: JobHarness) -> None:
    """The other one recorded the end and cleaned up; our cache of jobs is late, that of pods is not."""
    key = await harness.to_running(collective())
    for name in WORKERS:
        await harness.delete(Key("default", name), PODS)
    await harness.catch_up()
    await harness.set_status(key, {"phase": "Completed"})
    with pytest.raises(Conflict):
        await harness.reconcile_stale(key)
    assert await harness.pod_names() == []


async def test_failure_names_pod_code_and_last_line(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=3, message="step 9\nloss is NaN\n")
    await harness.settle(key)
    condition = await harness.condition(key, "Failed")
    assert condition["message"] == "pod demo-worker-1 failed (Error, exit code 3): loss is NaN"
    assert (await harness.status(key))["phase"] == "Failed"
    failed = harness.published[-1].data
    assert isinstance(failed, JobFailed)
    assert (failed.reason, failed.message) == ("PodFailed", condition["message"])
    assert ("Warning", "PodFailed", condition["message"]) in await harness.kubernetes_events()
    assert await harness.pod_names() == ["demo-worker-1"], "the others give up what they hold"


async def test_a_failed_job_whose_policy_is_never_leaves_its_other_pods_alone(harness: JobHarness) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Never"))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=3)
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS


async def test_a_pod_that_is_not_wanted_any_more_is_no_reason_of_a_failure(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(ps=make_role(2), worker=make_role(1)))
    await harness.patch(key, {"spec": {"ps": {"replicas": 1}}})
    await harness.end_pods("demo-ps-1", phase="Failed", exit_code=143)
    await harness.end_pods("demo-worker-0", phase="Failed", exit_code=3)
    await harness.settle(key)
    condition = await harness.condition(key, "Failed")
    assert condition["message"] == "pod demo-worker-0 failed (Error, exit code 3)"


async def test_a_ps_job_ends_with_its_workers_and_its_servers_are_cleaned_up(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(ps=make_role(1), worker=make_role(2)))
    await harness.end_pods(*WORKERS)
    await harness.settle(key)
    status = await harness.status(key)
    assert status["phase"] == "Completed"
    assert (status["ps"]["running"], status["worker"]["succeeded"]) == (0, 2)
    assert await harness.pod_names() == []


async def test_counts_follow_the_pods_of_a_failed_job(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(4), cleanPodPolicy="Never"))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(key)
    assert await counts(harness, key) == ("0/4", {"running": 3, "failed": 1})
    await harness.end_pods("demo-worker-0", phase="Failed", exit_code=1)
    await harness.end_pods("demo-worker-2")
    await harness.settle(key)
    assert await counts(harness, key) == ("0/4", {"running": 1, "failed": 2, "succeeded": 1})
    await harness.delete(Key("default", "demo-worker-3"), PODS)
    await harness.settle(key)
    assert await counts(harness, key) == ("0/4", {"failed": 2, "succeeded": 1})
    assert (await harness.status(key))["phase"] == "Failed"


async def test_what_has_ended_stays_counted_after_the_clean_up(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(3), cleanPodPolicy="Always"))
    await harness.end_pods("demo-worker-0", phase="Failed", exit_code=1)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert await counts(harness, key) == ("0/3", {"failed": 1})
    with harness.counted_writes() as writes:
        for _ in range(3):
            await harness.reconcile(key)
    assert not writes


WRONG_EDITS = [
    pytest.param({"sampleSetRef": {"name": "set", "namespace": "other", "mountPath": "/d"}}, id="data set"),
    pytest.param({"worker": {"replicas": -1}}, id="replicas"),
    pytest.param({"worker": {"template": None}}, id="template"),
]


@pytest.mark.parametrize("edit", WRONG_EDITS)
async def test_counts_and_phase_follow_the_pods_of_a_job_that_was_edited_into_a_wrong_one(
    harness: JobHarness, edit: Object
) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, {"spec": edit})
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "InvalidSpec"
    await harness.end_pods("demo-worker-1")
    await harness.settle(key)
    assert await counts(harness, key) == ("1/2", {"running": 1, "succeeded": 1})
    await set_pod_status(harness.cluster, Key("default", "demo-worker-0"), "Running", ready=False)
    await harness.settle(key)
    assert await counts(harness, key) == ("0/2", {"starting": 1, "succeeded": 1})
    assert (await harness.status(key))["phase"] == "Starting"
    assert (await harness.condition(key, "Running"))["status"] == "False"


@pytest.mark.parametrize(
    ("phase", "ended", "reason", "fact"),
    [
        ("Succeeded", "Completed", "Completed", "JobSucceeded"),
        ("Failed", "Failed", "PodFailed", "JobFailed"),
    ],
)
@pytest.mark.parametrize("edit", WRONG_EDITS)
async def test_a_job_that_was_edited_into_a_wrong_one_still_ends_and_is_cleaned_up(
    harness: JobHarness, edit: Object, phase: str, ended: str, reason: str, fact: str
) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Always"))
    await harness.patch(key, {"spec": edit})
    await harness.settle(key)
    await harness.end_pods(phase=phase)
    await harness.settle(key)
    status = await harness.status(key)
    assert status["phase"] == ended
    assert status["worker"][phase.lower()] == 2
    assert status["completionTime"]
    assert harness.facts()[-1] == fact
    assert reason in [event.reason for event in await harness.kubernetes_events()]
    assert await harness.pod_names() == []


async def test_counts_follow_the_pods_of_a_deleted_job(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    with harness.bus_down():
        await harness.delete(key)
        await harness.settle(key)
        assert await counts(harness, key) == ("0/2", {})


async def counts(harness: JobHarness, key: Key) -> tuple[str, dict[str, int]]:
    """Ready workers of those wanted, and the counts that are not 0."""
    status = await harness.status(key)
    return status["ready"], {name: n for name, n in status["worker"].items() if n and isinstance(n, int)}


async def test_a_healthy_run_has_no_warnings(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods()
    await harness.settle(key)
    events = await harness.kubernetes_events()
    assert {kind for kind, _, _ in events} == {"Normal"}


async def test_a_job_that_never_ran_has_no_start_time_and_no_duration(harness: JobHarness) -> None:
    key = await harness.begin(collective(activeDeadlineSeconds=60))
    # Its kubelet has accepted the pod, and cannot pull the image.
    await harness.set_status(Key("default", WORKERS[0]), {"startTime": "2026-01-01T00:00:10Z"}, PODS)
    await harness.advance(61)
    status = await harness.status(key)
    assert (status["phase"], status["completionTime"]) == ("Failed", "2026-01-01T00:01:02Z")
    assert ("startTime" in status, "duration" in status) == (False, False)


async def test_an_expired_job_that_waits_for_the_bus_gives_up_its_pods(harness: JobHarness) -> None:
    key = await harness.to_running(
        make_paddle_job(worker=make_role(2), activeDeadlineSeconds=60, ttlSecondsAfterFinished=0)
    )
    harness.bus.down = True
    await harness.advance(61)
    assert (await harness.condition(key, "Failed"))["reason"] == "DeadlineExceeded"
    await harness.advance(6)
    assert await harness.pod_names() == []
    harness.bus.down = False
    await harness.advance(60)
    assert not await harness.exists(key)


async def test_the_pods_of_an_expired_job_are_not_deleted_one_by_one(harness: JobHarness) -> None:
    """Its facts are published, and not confirmed yet."""
    job = make_paddle_job(worker=make_role(3), ttlSecondsAfterFinished=30, cleanPodPolicy="Never")
    key = await harness.to_running(job)
    await harness.end_pods()
    await harness.settle(key)
    before = harness.cluster.writes["delete", "pods"]
    await harness.advance(31)
    assert not await harness.exists(key)
    assert harness.cluster.writes["delete", "pods"] == before


async def test_a_pod_that_has_succeeded_and_is_gone_before_the_first_status_counts(
    harness: JobHarness,
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    await harness.end_pods("demo-worker-0")
    await harness.catch_up()
    await harness.delete(Key("default", "demo-worker-0"), PODS)
    await harness.settle(key)
    await harness.advance(1)
    assert (await harness.status(key))["worker"]["succeeded"] == 1
    assert await harness.pod_names() == ["demo-worker-1"]
