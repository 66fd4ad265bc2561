"""Containers that kubelets restart in place, because the template has a restartPolicy of its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from paddlewheel.contracts.crds import parse_paddle_job_spec
from paddlewheel.contracts.crds.admission_rules import PADDLE_JOB_WARNINGS
from paddlewheel.contracts.crds.violations import Subject
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PODS, Object
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, running_status

FIRST, SECOND = Key("default", "demo-worker-0"), Key("default", "demo-worker-1")


def job(policy: str = "OnFailure", **spec: Any) -> Object:
    return make_paddle_job(worker=make_role(2, restartPolicy=policy), **spec)


async def restart_in_place(harness: JobHarness, pod: Key, times: int) -> None:
    """The container crashed so often, and runs again."""
    status = running_status("10.0.0.1")
    status["containerStatuses"][0]["restartCount"] = times
    await harness.set_status(pod, status, PODS)
    await harness.drain_queue()
    await harness.advance(60)


async def test_a_rank_that_crashed_500_times_in_place_does_not_look_well(harness: JobHarness) -> None:
    key = await harness.to_running(job())
    await restart_in_place(harness, SECOND, 500)
    running = await harness.condition(key, "Running")
    assert (running["status"], running["reason"]) == ("True", "AllPodsRunning")
    assert (
        running["message"]
        == "kubelets restarted containers 500 times in place, those of pod demo-worker-1 500 times"
    )


async def test_restarts_in_place_count_against_backoff_limit(harness: JobHarness) -> None:
    key = await harness.to_running(job(backoffLimit=3))
    await restart_in_place(harness, FIRST, 2)
    await restart_in_place(harness, SECOND, 1)
    assert (await harness.status(key))["phase"] == "Running"
    await restart_in_place(harness, SECOND, 2)
    failed = await harness.condition(key, "Failed")
    assert (failed["reason"], failed["message"]) == (
        "BackoffLimitExceeded",
        "kubelets restarted containers 4 times in place, those of pod demo-worker-0 2 times;"
        " spec.backoffLimit is 3",
    )


@pytest.mark.parametrize("lost", [FIRST, SECOND], ids=["the pod itself", "a peer"])
@pytest.mark.parametrize("scope", ["Gang", "Pod"])
async def test_restarts_in_place_stay_counted_when_pods_are_replaced(
    harness: JobHarness, scope: str, lost: Key
) -> None:
    key = await harness.to_running(job(backoffLimit=5, failurePolicy={"restartScope": scope}))
    await restart_in_place(harness, FIRST, 3)
    await harness.delete(lost, PODS)
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    crashes = 6 if scope == "Pod" and lost == SECOND else 3
    await restart_in_place(harness, FIRST, crashes)
    assert (await harness.condition(key, "Failed"))["reason"] == "BackoffLimitExceeded"


@pytest.mark.parametrize("spec", [{}, {"elastic": 1, "backoffLimit": 0}], ids=["no limit", "elastic"])
async def test_other_jobs_go_on_however_often_containers_restart(harness: JobHarness, spec: Object) -> None:
    key = await harness.to_running(job(**spec))
    await restart_in_place(harness, SECOND, 50)
    assert (await harness.status(key))["phase"] == "Running"


IN_PLACE = (
    "spec.worker.template.spec.restartPolicy restarts failed containers in place: these restarts count"
    " against spec.backoffLimit, and the rules of spec.failurePolicy do not apply to them;"
    " remove the field or set Never"
)
NEVER_COMPLETES = (
    "spec.worker.template.spec.restartPolicy Always restarts a program that has exited with 0, so the job"
    " never completes; set OnFailure or Never"
)


@pytest.mark.parametrize(
    ("policy", "spec", "expected"),
    [
        ("OnFailure", {"backoffLimit": 3}, [IN_PLACE]),
        ("OnFailure", {"failurePolicy": {"restartScope": "Pod"}}, [IN_PLACE]),
        ("Always", {"backoffLimit": 3}, [IN_PLACE, NEVER_COMPLETES]),
        ("Always", {}, [NEVER_COMPLETES]),
        ("OnFailure", {}, []),
        ("Never", {"backoffLimit": 3}, []),
        ("Always", {"elastic": 1, "backoffLimit": 3}, []),
    ],
)
def test_admission_warns_of_a_policy_that_hides_failures(
    policy: str, spec: Object, expected: list[str]
) -> None:
    raw = job(policy, **spec)
    subject = Subject("demo", "default", parse_paddle_job_spec(raw))
    assert [rule.text(subject) for rule in PADDLE_JOB_WARNINGS if rule.is_true_of(subject)] == expected
