"""Failures and changes of a running job: restarts, their rules and limits, and what they leave behind."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import GATED, JobHarness, OpenHarness

from paddlewheel.contracts.generated.jobs_v1 import JobFailed, JobRestarted
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role

WORKERS = ["demo-worker-0", "demo-worker-1"]
BEGUN = ["JobStarting", "JobRunning"]


def collective(**spec: Any) -> Object:
    return make_paddle_job(**{"worker": make_role(2)} | spec)


async def fail(harness: JobHarness, key: Key, pod: str = "demo-worker-1", **status: Any) -> None:
    await harness.end_pods(pod, phase="Failed", **{"exit_code": 1} | status)
    await harness.settle(key)


async def run(harness: JobHarness, key: Key) -> None:
    await harness.run_pods()
    await harness.settle(key)


async def phase(harness: JobHarness, key: Key) -> str:
    return str((await harness.status(key))["phase"])


async def env(harness: JobHarness, pod: str = "demo-worker-0") -> dict[str, str]:
    container = (await harness.get(Key("default", pod), PODS))["spec"]["containers"][0]
    return {v["name"]: v.get("value", "") for v in container["env"]}


async def uids(harness: JobHarness) -> dict[str, str]:
    pods = await harness.objects(PODS)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


async def test_one_failure_restarts_all_ranks_together_as_a_new_epoch(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=2, checkpointPath="/ckpt"))
    before = await uids(harness)
    await fail(harness, key, exit_code=3, message="loss is NaN")
    after = await uids(harness)
    assert list(after) == WORKERS
    assert not set(before.values()) & set(after.values())
    assert await harness.restarts(key) == (1, {"PodFailed": 1})
    last = (await harness.status(key))["lastRestart"]
    assert last["reason"] == "PodFailed"
    assert last["message"] == "pod demo-worker-1 failed (Error, exit code 3): loss is NaN"
    told = await env(harness)
    assert (told["PADDLEWHEEL_EPOCH"], told["PADDLEWHEEL_CHECKPOINT_PATH"]) == ("1", "/ckpt")
    await run(harness, key)
    assert await phase(harness, key) == "Running"
    assert (await harness.config(key))["PADDLEWHEEL_EPOCH"] == "1"
    assert harness.facts() == ["JobAccepted", *BEGUN, "JobRestarted", *BEGUN]
    told_fact = next(e.data for e in harness.published if isinstance(e.data, JobRestarted))
    assert (told_fact.reason, told_fact.epoch, told_fact.restarts) == ("PodFailed", 1, {"PodFailed": 1})


async def test_without_a_backoff_limit_the_first_failure_ends_the_job(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await fail(harness, key)
    assert await phase(harness, key) == "Failed"
    assert await harness.restarts(key) == (0, {})


async def test_a_job_fails_once_it_was_restarted_as_often_as_it_may(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=1))
    await fail(harness, key)
    await run(harness, key)
    await fail(harness, key, "demo-worker-0", message="no memory")
    condition = await harness.condition(key, "Failed")
    assert condition["reason"] == "BackoffLimitExceeded"
    assert condition["message"] == (
        "pod demo-worker-0 failed (Error, exit code 1): no memory;"
        " restarted once, and the spec.backoffLimit is 1"
    )
    failed = harness.published[-1].data
    assert isinstance(failed, JobFailed)
    assert failed.reason == "BackoffLimitExceeded"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"action": "Fail", "exitCodes": [3]}], ("Failed", {})),
        ([{"action": "Fail", "exitCodes": [4]}], ("Restarting", {"PodFailed": 1})),
        ([{"action": "Ignore", "exitCodes": [3, 4]}], ("Restarting", {"Ignored": 1})),
        ([{"action": "Restart", "roles": ["ps"], "limit": 0}], ("Restarting", {"PodFailed": 1})),
        ([{"action": "Restart", "reasons": ["PodFailed"], "limit": 0}], ("Failed", {})),
        ([{"action": "Ignore"}, {"action": "Fail"}], ("Restarting", {"Ignored": 1})),
    ],
)
async def test_the_first_rule_that_matches_decides(
    harness: JobHarness, rules: list[Object], expected: tuple[str, dict[str, int]]
) -> None:
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    job = collective(backoffLimit=1, failurePolicy={"rules": rules}, worker=worker)
    key = await harness.to_running(job)
    await fail(harness, key, exit_code=3)
    assert (await phase(harness, key), (await harness.restarts(key))[1]) == expected


DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"reason": "Evicted"}, "Evicted"),
        ({"reason": "OutOfcpu"}, "RejectedByNode"),
        ({"reason": "Terminated"}, "NodeLost"),
        ({"conditions": [DISRUPTED | {"reason": "PreemptionByScheduler"}]}, "Preempted"),
        ({"conditions": [DISRUPTED | {"reason": "DeletionByTaintManager"}]}, "NodeLost"),
    ],
)
async def test_a_disruption_restarts_a_job_without_any_policy(
    harness: JobHarness, status: Object, cause: str
) -> None:
    key = await harness.to_running(collective())
    pod = Key("default", "demo-worker-1")
    await harness.set_status(pod, {"phase": "Failed", **status}, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {cause: 1})


async def test_disruptions_have_a_limit_too(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    for _ in range(10):
        await harness.delete(Key("default", "demo-worker-0"), PODS)
        await harness.settle(key)
        await harness.advance(300)
        await run(harness, key)
    assert await harness.restarts(key) == (10, {"PodDeleted": 10})
    await harness.delete(Key("default", "demo-worker-0"), PODS)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "BackoffLimitExceeded"
    assert await phase(harness, key) == "Failed"


async def test_a_job_survives_a_week_on_nodes_that_are_taken_away_every_few_hours(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective())
    for _ in range(40):
        await harness.advance(4 * 3600)
        await harness.settle(key)
        await harness.delete(Key("default", "demo-worker-0"), PODS)
        await harness.settle(key)
        await run(harness, key)
        assert await phase(harness, key) == "Running"
    assert await harness.restarts(key) == (40, {"PodDeleted": 40})
    assert (await harness.status(key))["budgets"] == {"disruptions": 1}


async def test_a_failure_of_the_program_after_a_long_run_brings_no_old_disruptions_back(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(backoffLimit=5))
    for _ in range(9):
        await harness.delete(Key("default", "demo-worker-0"), PODS)
        await harness.settle(key)
        await harness.advance(300)
        await run(harness, key)
    await harness.advance(7 * 24 * 3600)
    await harness.settle(key)
    await fail(harness, key)
    await run(harness, key)
    for _ in range(2):
        await harness.delete(Key("default", "demo-worker-0"), PODS)
        await harness.settle(key)
        await harness.advance(300)
        await run(harness, key)
    assert await phase(harness, key) == "Running"
    assert (await harness.status(key))["budgets"] == {"backoffLimit": 1, "disruptions": 2}


async def out_of_memory(harness: JobHarness, key: Key) -> None:
    await harness.set_status(
        Key("default", "demo-worker-1"), ended_status(exit_code=137, reason="OOMKilled"), PODS
    )
    await harness.settle(key)


async def test_a_budget_of_a_rule_is_its_own(harness: JobHarness) -> None:
    rules = [{"action": "Restart", "reasons": ["OOMKilled"], "limit": 1}]
    key = await harness.to_running(collective(failurePolicy={"rules": rules}))
    await out_of_memory(harness, key)
    await run(harness, key)
    assert await phase(harness, key) == "Running"
    await out_of_memory(harness, key)
    assert await harness.restarts(key) == (1, {"OOMKilled": 1})
    assert "limit of its rule" in (await harness.condition(key, "Failed"))["message"]


async def test_further_restarts_wait_longer(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=5))
    await fail(harness, key)
    assert await harness.pod_names() == WORKERS, "the first restart waits for nothing"
    await run(harness, key)
    await fail(harness, key)
    assert await harness.pod_names() == []
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Restarting", "Restarting")
    assert status["message"].startswith("epoch 2 begins at 2026-01-01T00:00:10Z: pod demo-worker-1 failed")
    with harness.counted_writes() as writes:
        await harness.reconcile(key)
    assert not writes
    await harness.advance(10)
    assert await harness.pod_names() == WORKERS


async def test_a_restart_that_was_recorded_is_carried_out_after_a_crash_and_counted_once(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(backoffLimit=1))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.reconcile(key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})
    assert len(await harness.pod_names()) == 2, "nothing has been done yet"
    await harness.restart()
    await harness.settle(key)
    await run(harness, key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})
    assert await phase(harness, key) == "Running"
    assert harness.facts().count("JobRestarted") == 1


async def test_nothing_is_deleted_before_the_restart_is_recorded(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=1))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    with (
        harness.failing(Conflict("modified"), "patch-status", PADDLE_JOBS, times=1),
        pytest.raises(Conflict),
    ):
        await harness.reconcile(key)
    assert await harness.pod_names() == WORKERS
    assert "JobRestarted" not in harness.facts()


async def test_no_pod_is_made_while_one_of_the_former_epoch_is_left(open_harness: OpenHarness) -> None:
    async with open_harness(**GATED) as harness:
        worker = make_role(2)
        worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
        key = await harness.to_running(collective(backoffLimit=1, worker=worker))
        before = await uids(harness)
        await fail(harness, key)
        await harness.patch(Key("default", WORKERS[0]), {"metadata": {"finalizers": None}}, PODS)
        await harness.settle(key)
        assert await uids(harness) == {WORKERS[1]: before[WORKERS[1]]}
        assert not await harness.exists(key, CONFIG_MAPS), "its addresses are those of the former epoch"
        await harness.patch(Key("default", WORKERS[1]), {"metadata": {"finalizers": None}}, PODS)
        await harness.settle(key)
        assert list(await uids(harness)) == WORKERS


async def test_restart_scope_pod_replaces_the_failed_pod_alone(harness: JobHarness) -> None:
    job = collective(backoffLimit=1, failurePolicy={"restartScope": "Pod"})
    key = await harness.to_running(job)
    before = await uids(harness)
    await fail(harness, key)
    after = await uids(harness)
    assert before["demo-worker-0"] == after["demo-worker-0"]
    assert before["demo-worker-1"] != after["demo-worker-1"]
    await run(harness, key)
    assert (await harness.restarts(key), await phase(harness, key)) == ((0, {"PodFailed": 1}), "Running")
    assert "replacing" not in await harness.status(key)
    assert harness.facts() == ["JobAccepted", *BEGUN, "JobRestarted"]
    await fail(harness, key)
    assert await phase(harness, key) == "Failed"


async def test_a_pod_that_goes_before_any_has_begun_is_made_again_and_the_others_stay(
    harness: JobHarness,
) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS
    assert await harness.restarts(key) == (0, {"PodDeleted": 1})


async def test_a_changed_template_never_gives_a_mixed_world(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    before = await uids(harness)
    container = {"name": "main", "image": "example/train:2"}
    await harness.patch(key, {"spec": {"worker": {"template": {"spec": {"containers": [container]}}}}})
    await harness.settle(key)
    assert not set(before.values()) & set((await uids(harness)).values())
    pods = await harness.objects(PODS)
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"example/train:2"}
    assert await harness.restarts(key) == (1, {"TemplateChanged": 1})
    assert {event.type for event in await harness.kubernetes_events()} == {"Normal"}


async def test_pods_of_another_controller_are_not_remade_for_their_template(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    for name in WORKERS:
        annotations = {"paddlepaddle.org/template": None}
        await harness.patch(Key("default", name), {"metadata": {"annotations": annotations}}, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {})


async def test_the_annotation_asks_for_a_restart_once(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.patch(
        key, {"metadata": {"annotations": {"paddlepaddle.org/restart": "2026-03-02T09:14:07Z"}}}
    )
    await harness.settle(key)
    await run(harness, key)
    assert (await harness.restarts(key), await phase(harness, key)) == (
        (1, {"RestartRequested": 1}),
        "Running",
    )


async def test_a_suspended_job_gives_up_its_pods_and_goes_on_where_it_was(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, {"spec": {"suspend": True}})
    await harness.settle(key)
    status = await harness.status(key)
    assert await harness.pod_names() == []
    assert (status["phase"], status["reason"], status["ready"]) == ("Pending", "Suspended", "0/2")
    assert (await harness.condition(key, "Suspended"))["status"] == "True"
    with harness.counted_writes() as writes:
        await harness.reconcile(key)
    assert not writes
    await harness.patch(key, {"spec": {"suspend": False}})
    await harness.settle(key)
    await run(harness, key)
    assert await phase(harness, key) == "Running"
    assert (await harness.condition(key, "Suspended"))["reason"] == "Resumed"
    assert harness.facts() == [
        *("JobAccepted", *BEGUN, "JobRestarted"),
        *("JobSuspended", "JobResumed", *BEGUN),
    ]
    assert {event.type for event in await harness.kubernetes_events()} == {"Normal"}


async def test_a_job_that_is_created_suspended_makes_nothing(harness: JobHarness) -> None:
    key = await harness.create(collective(suspend=True))
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert harness.facts() == ["JobAccepted", "JobSuspended"]
    await harness.patch(key, {"spec": {"suspend": False}})
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS
    assert await harness.restarts(key) == (0, {})


async def test_a_deadline_ends_the_job_and_its_pods_whatever_is_kept(harness: JobHarness) -> None:
    key = await harness.to_running(collective(activeDeadlineSeconds=60, cleanPodPolicy="Never"))
    await harness.advance(59)
    assert await phase(harness, key) == "Running"
    await harness.advance(1)
    assert await phase(harness, key) == "Failed"
    assert (await harness.condition(key, "Failed"))["reason"] == "DeadlineExceeded"
    assert await harness.pod_names() == []


async def test_the_deadline_of_a_suspended_job_does_not_run(harness: JobHarness) -> None:
    key = await harness.create(collective(activeDeadlineSeconds=60, suspend=True))
    await harness.settle(key)
    await harness.advance(600)
    assert await phase(harness, key) == "Pending"
    await harness.patch(key, {"spec": {"suspend": False}})
    await harness.settle(key)
    await harness.advance(59)
    assert await phase(harness, key) == "Pending"
    await harness.advance(1)
    assert await phase(harness, key) == "Failed"


async def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(harness: JobHarness) -> None:
    key = await harness.to_running(collective(ttlSecondsAfterFinished=30))
    await harness.end_pods()
    await harness.settle(key)
    await harness.advance(29)
    assert await phase(harness, key) == "Completed"
    await harness.advance(1)
    assert not await harness.exists(key)
    assert harness.facts() == ["JobAccepted", *BEGUN, "JobSucceeded", "JobDeleted"]


async def test_a_job_of_another_controller_is_left_alone(harness: JobHarness) -> None:
    key = await harness.create(collective(managedBy="kueue.x-k8s.io/multikueue"))
    await harness.settle(key)
    assert await harness.pod_names() == harness.facts() == []
    assert "status" not in await harness.get(key)
    own = await harness.create(
        make_paddle_job("own", worker=make_role(1), managedBy="paddlepaddle.org/job-controller")
    )
    await harness.settle(own)
    assert await harness.pod_names() == ["own-worker-0"]


async def test_a_job_whose_workers_have_succeeded_is_not_restarted(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(ps=make_role(1), worker=make_role(1), backoffLimit=1))
    await harness.end_pods("demo-worker-0")
    await set_pod_status(harness.cluster, Key("default", "demo-ps-0"), "Failed", exit_code=143)
    await harness.settle(key)
    assert await phase(harness, key) == "Completed"
    assert await harness.restarts(key) == (0, {})


async def test_servers_end_when_the_workers_have_succeeded_though_pods_are_kept(harness: JobHarness) -> None:
    job = make_paddle_job(ps=make_role(1), worker=make_role(1), cleanPodPolicy="OnFailure")
    key = await harness.to_running(job)
    await harness.end_pods("demo-worker-0")
    await harness.settle(key)
    assert await harness.pod_names() == ["demo-worker-0"], "its log is kept, the server's room is not"


async def test_annotations_of_a_template_are_not_taken_for_our_own(harness: JobHarness) -> None:
    """`kubectl rollout restart` writes one, and users copy annotations from pods."""
    worker = make_role(2)
    ours = {
        "paddlepaddle.org/restart": "2026",
        "paddlepaddle.org/epoch": "7",
        "paddlepaddle.org/released": "true",
    }
    worker["template"]["metadata"] = {"annotations": {**ours, "note": "x"}}
    key = await harness.to_running(collective(worker=worker, backoffLimit=1))
    assert await harness.restarts(key) == (0, {})
    annotations = (await harness.get(Key("default", WORKERS[0]), PODS))["metadata"]["annotations"]
    assert not annotations.keys() & ours.keys()
    assert annotations["note"] == "x"
    before = await uids(harness)
    await fail(harness, key)
    assert not set(before.values()) & set((await uids(harness)).values())


async def test_a_size_that_pods_may_have_read_is_not_changed_under_them(harness: JobHarness) -> None:
    """Containers read the ConfigMap before their kubelet reports that they run."""
    key = await harness.create(collective(worker=make_role(3)))
    await harness.settle(key)
    for index in range(3):
        pod = Key("default", f"demo-worker-{index}")
        await set_pod_status(harness.cluster, pod, "Pending", ip=f"10.0.0.{index + 1}")
    await harness.settle(key)
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "3"
    await harness.patch(key, {"spec": {"worker": {"replicas": 2}}})
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"Scaled": 1})


async def test_a_pod_that_is_lost_while_the_others_begin_restarts_them(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    for index, name in enumerate(WORKERS):
        await set_pod_status(harness.cluster, Key("default", name), "Pending", ip=f"10.0.0.{index + 1}")
    await harness.settle(key)
    await harness.delete(Key("default", WORKERS[1]), PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodDeleted": 1})


async def test_what_a_rule_allows_counts_against_no_other_limit(harness: JobHarness) -> None:
    rules = [{"action": "Restart", "reasons": ["OOMKilled"], "limit": 3}]
    key = await harness.to_running(collective(backoffLimit=1, failurePolicy={"rules": rules}))
    for lose in (out_of_memory, fail, out_of_memory):
        await lose(harness, key)
        await harness.advance(300)
        await run(harness, key)
        assert await phase(harness, key) == "Running"
    assert (await harness.status(key))["budgets"] == {"rule-1": 2, "backoffLimit": 1}
    await fail(harness, key)
    assert await phase(harness, key) == "Failed"


async def test_a_drain_of_many_pods_ends_no_job_whose_pods_are_replaced_one_by_one(
    harness: JobHarness,
) -> None:
    job = collective(worker=make_role(12), failurePolicy={"restartScope": "Pod"})
    key = await harness.to_running(job)
    for name in await harness.pod_names():
        await harness.set_status(Key("default", name), {"phase": "Failed", "reason": "Evicted"}, PODS)
    for _ in range(13):
        await harness.settle(key)
        await harness.advance(300)
    assert await phase(harness, key) != "Failed"
    assert (await harness.restarts(key))[1] == {"Evicted": 1}
    assert len(await harness.pod_names()) == 12


@pytest.mark.parametrize(
    ("said", "cause"), [("Terminated", "NodeLost"), ("Preempting", "Preempted"), ("", "Evicted")]
)
async def test_what_the_kubelet_says_is_more_than_its_condition(
    harness: JobHarness, said: str, cause: str
) -> None:
    key = await harness.to_running(collective())
    by_kubelet = DISRUPTED | {"reason": "TerminationByKubelet"}
    status = {"phase": "Failed", "reason": said or None, "conditions": [by_kubelet]}
    await harness.set_status(Key("default", "demo-worker-1"), status, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {cause: 1})


async def test_in_the_service_network_rules_judge_what_a_kubelet_would_restart_in_place(
    harness: JobHarness,
) -> None:
    specs: dict[str, Object] = {"plain": {}, "ruled": {"backoffLimit": 1}}
    for name, spec in specs.items():
        job = make_paddle_job(name, intranet="Service", worker=make_role(1), **spec)
        await harness.settle(await harness.create(job))
    policies = {
        name: (await harness.get(Key("default", f"{name}-worker-0"), PODS))["spec"]["restartPolicy"]
        for name in ("plain", "ruled")
    }
    assert policies == {"plain": "OnFailure", "ruled": "Never"}


async def test_a_digest_of_another_version_restarts_nothing(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    for name in WORKERS:
        annotations = {"paddlepaddle.org/template": "0123456789abcdef"}
        await harness.patch(Key("default", name), {"metadata": {"annotations": annotations}}, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {})
