"""Pods and jobs as the API server gives them, read into the domain's words."""

from __future__ import annotations

from typing import Any

import pytest

from job_controller.core.failure import failure_message
from job_controller.core.parse import parse_job, parse_sample_set
from job_controller.core.parse_pod import parse_pod
from job_controller.core.pods import Failure, PodId, PodState
from job_controller.watch import owner_of
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.hindrance import find_hindrance
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role, running_status

OWNER = {"kind": "PaddleJob", "name": "demo", "uid": "j", "controller": True}


def make_pod(status: Object | None = None, name: str = "demo-worker-0", **metadata: Any) -> Object:
    base = {
        "name": name,
        "namespace": "default",
        "uid": "u",
        "labels": {"paddle-res-type": "worker"},
        "ownerReferences": [OWNER],
    }
    return {
        "metadata": base | metadata,
        "spec": {"containers": [{"name": "main"}]},
        "status": status or {"phase": "Pending"},
    }


def gate_status(state: Object) -> Object:
    return {"phase": "Pending", "initContainerStatuses": [{"name": "coord-paddle", "state": state}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PodState.PENDING),
        ({"phase": "Pending"}, PodState.PENDING),
        (gate_status({"waiting": {}}), PodState.PENDING),
        (gate_status({"running": {}}), PodState.STARTING),
        (gate_status({"terminated": {"exitCode": 0}}), PodState.STARTING),
        (running_status("10.0.0.1", ready=False), PodState.STARTING),
        ({"phase": "Running"}, PodState.STARTING),
        # The kubelet reports the end of a container a second before the end of the pod.
        (ended_status() | {"phase": "Running"}, PodState.RUNNING),
        (ended_status(exit_code=1) | {"phase": "Running"}, PodState.STARTING),
        (running_status("10.0.0.1"), PodState.RUNNING),
        (ended_status(), PodState.SUCCEEDED),
        (ended_status(exit_code=1), PodState.FAILED),
        ({"phase": "Unknown"}, PodState.PENDING),
    ],
)
def test_pod_counts(status: Object, expected: PodState) -> None:
    pod = parse_pod(make_pod(status))
    assert pod is not None
    assert pod.state is expected


def test_a_pod_on_its_way_out_is_neither_failed_nor_running() -> None:
    pod = parse_pod(make_pod(ended_status(exit_code=143), deletionTimestamp="2026-01-01T00:00:00Z"))
    assert pod is not None
    assert (pod.state, pod.terminating, pod.failure) == (PodState.PENDING, True, None)


def test_failure_with_code_reason_and_last_line() -> None:
    status = ended_status(exit_code=3, reason="Error", message="line 1\nno bucket\n\n")
    pod = parse_pod(make_pod(status))
    assert pod is not None
    assert pod.failure == Failure(
        "demo-worker-0", "Error", 3, "no bucket", "2026-01-01T00:10:00Z", Reason.POD_FAILED
    )


def test_the_reason_of_a_failed_rank_is_its_exception_not_paddles_last_line() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/code/train.py", line 7, in <module>\n'
        "    raise ValueError(label)\n"
        "ValueError: label 12 is out of range\n"
        "I1127 21:42:47.57 27220 tcp_store.cc:292] receive shutdown event and so quit from"
        " MasterDaemon run loop\n"
    )
    pod = parse_pod(make_pod(ended_status(exit_code=1, reason="Error", message=log)))
    assert pod is not None
    assert pod.failure is not None
    assert pod.failure.last_line == "ValueError: label 12 is out of range"
    waiting: Object = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    waiting["lastState"] = {"terminated": {"exitCode": 1, "message": log}}
    hindrance = find_hindrance({"status": {"containerStatuses": [waiting]}})
    assert hindrance is not None
    assert hindrance.message == "container main ended with exit code 1: ValueError: label 12 is out of range"


def test_failure_of_an_evicted_pod_and_of_an_init_container() -> None:
    evicted = parse_pod(make_pod({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}))
    assert evicted is not None
    assert evicted.failure == Failure("demo-worker-0", "Evicted", None, "low on disk", cause=Reason.EVICTED)
    ended = {"exitCode": 2, "reason": "Error", "message": "no such host"}
    init = {"phase": "Failed", "initContainerStatuses": [{"name": "own", "state": {"terminated": ended}}]}
    broken = parse_pod(make_pod(init))
    assert broken is not None
    assert broken.failure == Failure("demo-worker-0", "Error", 2, "no such host", container="own")
    assert failure_message(broken.failure) == (
        "pod demo-worker-0 failed in container own (Error, exit code 2): no such host"
    )
    assert broken.speaker == "own", "its output is kept"


def test_a_side_container_that_was_ended_with_its_pod_is_not_what_failed() -> None:
    def ended(code: int) -> Object:
        return {"terminated": {"exitCode": code, "reason": "Error"}}

    status = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "side", "state": ended(143)}],
        "containerStatuses": [{"name": "main", "state": ended(3)}],
    }
    raw = make_pod(status)
    raw["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]
    failed = parse_pod(raw)
    assert failed is not None
    assert failed.failure is not None
    assert (failed.failure.exit_code, failed.failure.container, failed.speaker) == (3, "", "main")


@pytest.mark.parametrize(
    ("name", "role", "expected"),
    [
        ("demo-worker-0", "worker", PodId("worker", 0)),
        ("demo-worker-12", "worker", PodId("worker", 12)),
        ("demo-worker-01", "worker", None),
        ("demo-worker-x", "worker", None),
        ("other-worker-0", "worker", None),
        ("demo-worker-0", "ps", None),
        ("demo-ps-0", "", None),
    ],
)
def test_place_in_the_job(name: str, role: str, expected: PodId | None) -> None:
    pod = parse_pod(make_pod(name=name, labels={"paddle-res-type": role}))
    assert (pod.id if pod else None) == expected


def test_ip_and_termination_message() -> None:
    pod = parse_pod(make_pod(ended_status("10.0.0.7", message='{"accuracy": 1}')))
    assert pod is not None
    assert (pod.ip, pod.termination_message) == ("10.0.0.7", '{"accuracy": 1}')


def test_owners() -> None:
    assert owner_of(make_pod()) == Key("default", "demo")
    assert owner_of(make_pod(ownerReferences=[OWNER | {"kind": "Job"}])) is None
    assert owner_of(make_pod(ownerReferences=[OWNER | {"controller": False}])) is None
    assert owner_of(make_pod(ownerReferences=[])) is None


def test_a_job_with_nulls_and_unknown_fields_is_read() -> None:
    raw = make_paddle_job(
        cleanPodPolicy=None, elastic=0, sampleSetRef=None, worker=make_role(2), odd={"a": 1}
    )
    raw["status"] = {"phase": "Running", "elastic": "NONE", "worker": {"running": 2, "refs": None}}
    job = parse_job(raw)
    assert job.elastic is False
    assert job.sample_set is None
    assert job.status.phase == "Running"
    assert job.status.roles["worker"].count(PodState.RUNNING) == 2
    assert parse_job({"metadata": {"name": "x", "namespace": "y"}}).roles == ()


def test_sample_set() -> None:
    found = parse_sample_set({"spec": {"partitions": 3}, "status": {"phase": "Ready"}})
    assert (found.phase, found.partitions) == ("Ready", 3)
    assert parse_sample_set({}).phase == ""
