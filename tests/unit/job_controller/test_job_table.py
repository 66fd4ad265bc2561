"""The columns of `kubectl get pdj`: reason, message, ready and duration, without a write of their own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness
from tests.unit.job_controller.test_job_pods import make_pod

from job_controller.core import names
from job_controller.core.job_status import JobStatus
from job_controller.core.parse_pod import parse_pod
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import PODS, Object
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    running_status,
    set_sample_set_phase,
)

DATA = {"name": "digits", "mountPath": "/data"}
POD = Key("default", "demo-worker-0")


async def row(harness: JobHarness, key: Key) -> tuple[str, str, str, str]:
    status = await harness.status(key)
    return status["phase"], status.get("ready", ""), status["reason"], status["message"]


def collective(**spec: Any) -> Object:
    return make_paddle_job(**({"worker": make_role(2)} | spec))


async def test_a_life_as_the_table_shows_it(harness: JobHarness) -> None:
    key = await harness.begin(collective(cleanPodPolicy="Never"))
    assert await row(harness, key) == ("Pending", "0/2", "PodsPending", "0 of 2 pods are running and ready")
    await harness.run_pods("demo-worker-0")
    await harness.settle(key)
    assert await row(harness, key) == ("Pending", "1/2", "PodsPending", "1 of 2 pods are running and ready")
    await harness.run_pods()
    await harness.settle(key)
    assert await row(harness, key) == ("Running", "2/2", "AllPodsRunning", "")
    assert "duration" not in await harness.status(key)
    await harness.clock.advance(200)
    await harness.end_pods()
    await harness.settle(key)
    assert await row(harness, key) == ("Completed", "0/2", "Completed", "")
    assert (await harness.status(key))["duration"] == "3m20s"


async def test_time_that_passes_writes_nothing(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    with harness.counted_writes() as writes:
        for _ in range(5):
            await harness.clock.advance(60)
            await harness.reconcile(key)
    # The confirmation of the last fact.
    assert writes == {("patch-status", "paddlejobs"): 1}


async def test_a_job_that_waits_for_its_data_says_so(harness: JobHarness) -> None:
    key = await harness.create(collective(sampleSetRef=DATA))
    await harness.settle(key)
    assert (await row(harness, key))[:3] == ("Pending", "0/2", "SampleSetNotFound")
    await make_sample_set(harness.cluster, Key("default", "digits"))
    await harness.settle(key)
    phase, _, reason, message = await row(harness, key)
    assert (phase, reason) == ("Pending", "SampleSetNotReady")
    assert message == "pods are created when SampleSet default/digits is Ready"
    await set_sample_set_phase(harness.cluster, Key("default", "digits"), "SyncFailed", "no such bucket")
    await harness.settle(key)
    assert (await row(harness, key))[2:] == (
        "SampleSetFailed",
        f"{message}; it is SyncFailed: no such bucket",
    )


async def test_a_refused_job_says_what_to_correct(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(0)))
    await harness.settle(key)
    phase, _, reason, message = await row(harness, key)
    assert (phase, reason) == ("Pending", "ScaledToZero")
    assert "raise spec.worker.replicas" in message


async def test_a_failure_is_the_reason(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=3, message="loss is NaN")
    await harness.settle(key)
    failed = "pod demo-worker-1 failed (Error, exit code 3): loss is NaN"
    assert await row(harness, key) == ("Failed", "0/2", "PodFailed", failed)


async def test_no_pod_of_a_job_that_has_ended_counts_as_ready(harness: JobHarness) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Never"))
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=3)
    for _ in range(2):
        await harness.settle(key)
        status = await harness.status(key)
        assert (status["phase"], status["ready"], status["worker"]["running"]) == ("Failed", "0/2", 1)
        await harness.run_pods("demo-worker-0")
    with harness.bus_down():
        await harness.delete(key)
        await harness.reconcile(key)
        status = await harness.status(key)
        assert (status["phase"], status["ready"]) == ("Terminating", "0/2")


async def test_a_child_that_cannot_be_created_is_the_reason(harness: JobHarness) -> None:
    with harness.failing(Permanent("Forbidden", "exceeded quota"), "create", PODS):
        key = await harness.create(collective())
        await harness.settle(key)
    said = "Pod default/demo-worker-0: Forbidden: exceeded quota"
    assert await row(harness, key) == ("Pending", "0/2", "FailedCreate", said)


async def test_what_hinders_a_pod_is_the_reason(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    await harness.set_status(POD, {"phase": "Pending", "conditions": [full]}, PODS)
    await harness.settle(key)
    assert await row(harness, key) == ("Pending", "0/2", "Unschedulable", "pod demo-worker-0: 0/3 nodes fit")
    await harness.run_pods()
    await harness.settle(key)
    assert (await row(harness, key))[2:] == ("AllPodsRunning", "")


def unscheduled(message: str, reason: str = "Unschedulable") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


async def test_the_scheduler_is_quoted_once_however_its_count_of_nodes_changes(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    await harness.set_status(POD, unscheduled("0/3 nodes fit"), PODS)
    await harness.settle(key)
    with harness.counted_writes() as writes:
        await harness.set_status(POD, unscheduled("0/4 nodes fit"), PODS)
        await harness.settle(key)
    assert ("patch-status", "paddlejobs") not in writes
    assert (await row(harness, key))[3] == "pod demo-worker-0: 0/3 nodes fit"
    other = Key("default", "demo-worker-1")
    await harness.set_status(other, unscheduled("0/4 nodes fit"), PODS)
    await harness.run_pods("demo-worker-0")
    await harness.settle(key)
    assert (await row(harness, key))[3] == "pod demo-worker-1: 0/4 nodes fit"


async def test_a_gate_of_the_scheduler_is_the_reason(harness: JobHarness) -> None:
    key = await harness.create(collective())
    await harness.settle(key)
    await harness.set_status(POD, unscheduled("held back by a queue", "SchedulingGated"), PODS)
    await harness.settle(key)
    assert (await row(harness, key))[2:] == ("SchedulingGated", "pod demo-worker-0: held back by a queue")


async def test_a_deleted_job_is_terminating(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    with harness.bus_down():
        await harness.delete(key)
        await harness.reconcile(key)
        assert (await row(harness, key))[2:] == ("Terminating", "")


async def test_a_bug_is_the_reason_until_a_pass_succeeds(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await harness.to_running(collective())
    with monkeypatch.context() as patched:
        patched.setattr("job_controller.reconciler.plan", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await harness.reconcile(key)
    assert (await row(harness, key))[2] == "InternalError"
    await harness.settle(key)
    assert (await row(harness, key))[2:] == ("AllPodsRunning", "")


def waiting_status(reason: str, *, init: bool = False, message: str = "Back-off 40s") -> Object:
    container = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "initContainerStatuses" if init else "containerStatuses": [container]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, None),
        (waiting_status("ContainerCreating"), None),
        (waiting_status("PodInitializing"), None),
        (waiting_status("ImagePullBackOff"), "ImagePullBackOff"),
        (waiting_status("ErrImagePull"), "ImagePullBackOff"),
        (waiting_status("ImagePullBackOff", init=True), "ImagePullBackOff"),
        (waiting_status("InvalidImageName"), "InvalidImageName"),
        (waiting_status("CreateContainerConfigError"), "CreateContainerConfigError"),
        (waiting_status("ErrImageNeverPull"), "ImagePullBackOff"),
        (waiting_status("ImageInspectError"), "ImagePullBackOff"),
        (waiting_status("RegistryUnavailable"), "ImagePullBackOff"),
        (waiting_status("CreateContainerError"), "ContainerCannotStart"),
        (waiting_status("RunContainerError"), "ContainerCannotStart"),
        (waiting_status("NewInSomeLaterKubelet"), "ContainerCannotStart"),
        (waiting_status(""), None),
        ({**waiting_status("CrashLoopBackOff"), "phase": "Running"}, "CrashLoopBackOff"),
        (running_status("10.0.0.1"), None),
        ({**waiting_status("ImagePullBackOff"), "phase": "Failed"}, None),
    ],
)
def test_what_a_container_waits_for_has_one_word_for_all_attempts(
    status: Object, expected: str | None
) -> None:
    pod = parse_pod(make_pod(status))
    assert pod is not None
    assert (pod.hindrance and pod.hindrance.reason) == expected


DENIED = "failed to resolve reference: 401"
TRACEBACK = "Traceback (most recent call last):\nValueError: batch size must be positive\n"


@pytest.mark.parametrize(
    ("reason", "message", "shown"),
    [
        ("ErrImagePull", DENIED, f'cannot pull image "x:1": {DENIED}'),
        ("ImagePullBackOff", 'Back-off pulling image "x:1"', 'cannot pull image "x:1"'),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "x:1": ErrImagePull: {DENIED}',
            f'cannot pull image "x:1": {DENIED}',
        ),
        (
            "CrashLoopBackOff",
            "back-off 40s restarting failed container",
            "container main ended with exit code 3: ValueError: batch size must be positive",
        ),
        (
            "ImagePullBackOff",
            'Back-off pulling image "x:1": RegistryUnavailable: no such host',
            'cannot pull image "x:1": no such host',
        ),
        (
            "ErrImagePull",
            "lookup r on 10.0.0.10:53: read udp 10.0.0.1:43210->10.0.0.10:53: i/o timeout",
            'cannot pull image "x:1": lookup r on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout',
        ),
        (
            "ErrImagePull",
            "read tcp [fd00::1]:43210->[fd00::2]:443: connection reset by peer",
            'cannot pull image "x:1": read tcp [fd00::2]:443: connection reset by peer',
        ),
        ("RunContainerError", 'exec: "trian": not found', 'RunContainerError: exec: "trian": not found'),
        ("CreateContainerError", "", "CreateContainerError"),
        ("CreateContainerConfigError", 'secret "absent" not found', 'secret "absent" not found'),
    ],
)
def test_a_hindrance_says_what_to_correct_and_not_how_often_it_was_tried(
    reason: str, message: str, shown: str
) -> None:
    status = waiting_status(reason, message=message)
    ended = {"exitCode": 3, "message": TRACEBACK}
    status["containerStatuses"][0] |= {"image": "x:1", "lastState": {"terminated": ended}}
    pod = parse_pod(make_pod(status))
    assert pod is not None
    assert pod.hindrance is not None
    assert pod.hindrance.message == shown


def test_the_scheduler_is_quoted() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = parse_pod(make_pod({"phase": "Pending", "conditions": [unscheduled]}))
    assert pod is not None
    assert pod.hindrance is not None
    assert (pod.hindrance.reason, pod.hindrance.message) == ("Unschedulable", "no room")


def test_a_pod_on_its_way_out_is_hindered_by_nothing() -> None:
    gone = make_pod(waiting_status("ImagePullBackOff"), deletionTimestamp="2026-01-01T00:00:00Z")
    pod = parse_pod(gone)
    assert pod is not None
    assert pod.hindrance is None


@pytest.mark.parametrize(
    ("start", "end", "seconds", "shown"),
    [
        ("", "", None, ""),
        ("2026-01-01T00:00:00Z", "", None, ""),
        ("2026-01-01T00:00:00Z", "2026-01-01T01:01:30Z", 3690.0, "1h1m"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 0.0, "0s"),
        ("2026-01-01T00:00:09Z", "2026-01-01T00:00:00Z", 0.0, "0s"),
    ],
)
def test_a_duration_exists_from_the_end_on(start: str, end: str, seconds: float | None, shown: str) -> None:
    status = JobStatus(start_time=start, completion_time=end)
    assert (status.seconds, status.render().get("duration", "")) == (seconds, shown)


def test_the_most_important_condition_comes_first() -> None:
    order = [
        Condition(names.CONDITION_RUNNING, "False", "PodsPending"),
        Condition(names.CONDITION_ADMITTED, "False", "SampleSetNotReady"),
        Condition(names.CONDITION_COMPLETE, "True", "Completed"),
        Condition(names.CONDITION_BLOCKED, "True", "FailedCreate"),
        Condition(names.CONDITION_FAILED, "True", "PodFailed"),
        Condition(names.CONDITION_ACCEPTED, "False", "InvalidSpec"),
    ]
    for count in range(1, len(order) + 1):
        shown = JobStatus(conditions=tuple(order[:count])).render()
        assert shown["reason"] == order[count - 1].reason
