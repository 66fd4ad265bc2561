"""Whole values of the pure code: what a fact, an event, a pod, a status and a child hold, field by field."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_job, make_pod

from job_controller.core import names, status
from job_controller.core.events import (
    end_event,
    gate_events,
    refusal_events,
    scale_events,
)
from job_controller.core.facts import FACTS, Case
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.model import Observed
from job_controller.core.parse_pod import parse_pod
from job_controller.core.pods import Failure, Pod, PodId, PodState
from job_controller.core.refused import refused_status
from job_controller.core.render import render_config_map, render_service
from job_controller.core.verdict import End, GoOn
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobFailed, JobGated, JobSucceeded, RoleCounts
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent
from paddlewheel.testkit.paddlejobs import make_role

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
REF = ObjectRef(namespace="default", name="demo", uid="uid-1")
COUNTS = dict(zip(PodState, (1, 2, 3, 4, 5), strict=True))
"""A different number of pods in every state."""


def in_phase(phase: str, **fields: object) -> JobStatus:
    return replace(JobStatus(phase=phase), **fields)  # type: ignore[arg-type]


def rendered(fact: type, job: Job, recorded: JobStatus) -> object:
    return FACTS.render(Announcement(fact.__name__, 0, "t"), Case(job, recorded), REF)


# --- facts


def test_role_counts_are_those_of_the_states() -> None:
    job = make_job(worker=make_role(15))
    recorded = in_phase(names.FAILED, roles={"worker": RoleStatus(COUNTS)})
    assert rendered(JobFailed, job, recorded) == JobFailed(
        job=REF,
        roles={
            "worker": RoleCounts(
                wanted=15,
                pending=COUNTS[PodState.PENDING],
                starting=COUNTS[PodState.STARTING],
                running=COUNTS[PodState.RUNNING],
                failed=COUNTS[PodState.FAILED],
                succeeded=COUNTS[PodState.SUCCEEDED],
            )
        },
    )


def test_a_failure_names_its_reason() -> None:
    failed = Condition(names.CONDITION_FAILED, "True", "PodFailed", "pod demo-worker-0 failed")
    found = rendered(JobFailed, make_job(worker=make_role()), in_phase(names.FAILED, conditions=(failed,)))
    assert isinstance(found, JobFailed)
    assert (found.job, found.reason, found.message) == (REF, "PodFailed", "pod demo-worker-0 failed")


def test_a_success_has_its_duration_and_results() -> None:
    recorded = in_phase(
        names.COMPLETED,
        start_time="2026-01-01T00:00:00Z",
        completion_time="2026-01-01T00:01:30Z",
        results={"accuracy": 0.5},
    )
    found = rendered(JobSucceeded, make_job(worker=make_role()), recorded)
    assert isinstance(found, JobSucceeded)
    assert (found.job, found.seconds, found.results) == (REF, 90.0, {"accuracy": 0.5})


@pytest.mark.parametrize(
    ("start", "end"),
    [("", "2026-01-01T00:01:30Z"), ("2026-01-01T00:01:30Z", ""), ("2026-01-02T00:00:00Z",) * 2],
)
def test_a_duration_that_is_not_known_is_zero(start: str, end: str) -> None:
    recorded = in_phase(names.COMPLETED, start_time=start, completion_time=end)
    found = rendered(JobSucceeded, make_job(worker=make_role()), recorded)
    assert isinstance(found, JobSucceeded)
    assert found.seconds == 0.0


def test_a_duration_is_never_negative() -> None:
    recorded = in_phase(
        names.COMPLETED, start_time="2026-01-01T00:01:00Z", completion_time="2026-01-01T00:00:59Z"
    )
    found = rendered(JobSucceeded, make_job(worker=make_role()), recorded)
    assert isinstance(found, JobSucceeded)
    assert found.seconds == 0.0


@pytest.mark.parametrize(
    ("conditions", "reason", "message"),
    [
        ((), "SampleSetNotReady", ""),
        ((Condition(names.CONDITION_ADMITTED, "True", "Open", "go"),), "SampleSetNotReady", ""),
        ((Condition(names.CONDITION_ADMITTED, "False", "NoSuchSet", "create it"),), "NoSuchSet", "create it"),
    ],
    ids=["never decided", "open by now", "held"],
)
def test_a_gated_job_says_what_holds_it(conditions: tuple[Condition, ...], reason: str, message: str) -> None:
    job = make_job(worker=make_role(), sampleSetRef={"name": "digits"})
    found = rendered(JobGated, job, in_phase(names.PENDING, conditions=conditions))
    assert found == JobGated(job=REF, reason=reason, message=message, sample_set="digits")


# --- Kubernetes events


WRONG: dict[str, Any] = {"activeDeadlineSeconds": -1, "ttlSecondsAfterFinished": -1}


def held_job(*conditions: Condition, generation: int = 0, **spec: Any) -> Job:
    job = make_job(worker=make_role(2), **spec)
    return replace(job, status=JobStatus(conditions=conditions, observed_generation=generation), generation=2)


def test_a_gate_is_reported_once_per_reason() -> None:
    waiting = Gate(False, Reason.SAMPLE_SET_NOT_READY, "set digits is Syncing")
    missing = Gate(False, Reason.SAMPLE_SET_NOT_FOUND, "create it")
    assert gate_events(held_job(), waiting) == (
        KubernetesEvent("Normal", "SampleSetNotReady", "set digits is Syncing"),
    )
    known = Condition(names.CONDITION_ADMITTED, "False", waiting.reason)
    assert gate_events(held_job(known), waiting) == ()
    assert gate_events(held_job(known), missing) == (
        KubernetesEvent("Warning", "SampleSetNotFound", "create it"),
    )


def test_a_refused_spec_is_reported_once_per_generation() -> None:
    job = held_job(generation=1, **WRONG)
    assert refusal_events(held_job(generation=2, **WRONG)) == ()
    assert refusal_events(job) == (KubernetesEvent("Warning", "InvalidSpec", "; ".join(job.problems)),)


def test_the_end_is_reported_with_its_reason() -> None:
    failed = Condition(names.CONDITION_FAILED, "True", "PodFailed", "pod demo-worker-0 failed")
    assert end_event(JobStatus()) == KubernetesEvent("Normal", "Completed", "the job has succeeded")
    assert end_event(JobStatus(conditions=(failed,))) == KubernetesEvent(
        "Warning", "PodFailed", "pod demo-worker-0 failed"
    )


def test_only_another_number_of_pods_is_an_event() -> None:
    job = make_job(worker=make_role(2))
    assert scale_events(job, (), ()) == scale_events(job, job.pod_ids, ()) == ()
    assert scale_events(job, job.pod_ids, (make_pod("worker", 2),)) == (
        KubernetesEvent("Normal", "Scaled", "deleted 1 pod"),
    )


# --- pods

OWNERS = [{"name": "other"}, {"name": "demo", "controller": True}]
ENDED = {"exitCode": 3, "reason": "Error", "message": "one\n two ", "finishedAt": "2026-01-01T00:09:00Z"}


def test_every_field_of_a_pod_is_read() -> None:
    raw = {
        "metadata": {
            "name": "demo-worker-7",
            "uid": "u",
            "labels": {"paddle-res-type": "worker"},
            "annotations": {
                "paddlepaddle.org/epoch": "3",
                "paddlepaddle.org/template": "0123456789abcdef",
                "paddlepaddle.org/restart": "now",
            },
            "finalizers": ["example.com/held"],
            "ownerReferences": OWNERS,
        },
        "spec": {"nodeName": "gpu-7", "containers": [{"name": "main"}, {"name": "side"}]},
        "status": {
            "phase": "Failed",
            "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [
                {"name": "side", "state": {"terminated": {"exitCode": 0, "message": "not mine"}}},
                {"name": "main", "state": {"terminated": ENDED}},
            ],
        },
    }
    assert parse_pod(raw) == Pod(
        id=PodId("worker", 7),
        job="demo",
        name="demo-worker-7",
        uid="u",
        state=PodState.FAILED,
        ip="10.0.0.1",
        terminating=False,
        started_at="2026-01-01T00:00:00Z",
        termination_message="one\n two ",
        failure=Failure("demo-worker-7", "Error", 3, "two", "2026-01-01T00:09:00Z"),
        container="main",
        node="gpu-7",
        finalizers=("example.com/held",),
        epoch=3,
        template="0123456789abcdef",
        restart="now",
        began=True,
    )


def test_what_a_pod_lacks_is_empty() -> None:
    raw = {
        "metadata": {
            "name": "demo-worker-0",
            "labels": {"paddle-res-type": "worker"},
            "ownerReferences": OWNERS,
        }
    }
    expected = Pod(PodId("worker", 0), "demo", "demo-worker-0", "", PodState.PENDING)
    assert parse_pod(raw) == replace(expected, unseen_scheduler="default-scheduler")


@pytest.mark.parametrize(
    ("pod_status", "failure"),
    [
        ({}, Failure("demo-worker-0", "Failed", None, "")),
        (
            {"reason": "Evicted", "message": "disk\nlow on disk"},
            Failure("demo-worker-0", "Evicted", None, "low on disk", cause=Reason.EVICTED),
        ),
        (
            {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 2}}}]},
            Failure("demo-worker-0", "Error", 2, ""),
        ),
        (
            {
                "reason": "DeadlineExceeded",
                "message": "too long",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}],
            },
            Failure("demo-worker-0", "DeadlineExceeded", 2, "too long"),
        ),
    ],
    ids=["nothing known", "evicted", "exit code alone", "ended by the kubelet"],
)
def test_a_failure_says_what_is_known(pod_status: dict[str, object], failure: Failure) -> None:
    raw = {
        "metadata": {
            "name": "demo-worker-0",
            "labels": {"paddle-res-type": "worker"},
            "ownerReferences": OWNERS,
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Failed", **pod_status},
    }
    pod = parse_pod(raw)
    assert pod is not None
    assert pod.failure == failure


# --- status


def test_a_pod_is_referred_to_without_its_version() -> None:
    seen = Observed(make_job(worker=make_role(1)), (make_pod("worker", 0), make_pod("worker", 1)))
    assert status.count_roles(seen)["worker"] == RoleStatus(
        {state: int(state is PodState.RUNNING) for state in PodState},
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "demo-worker-0",
                "uid": "u-demo-worker-0",
            },
        ),
    )


def test_a_refused_spec_is_pending_and_says_why() -> None:
    job = replace(make_job(worker=make_role(), **WRONG), generation=3)
    refused = refused_status(Observed(job), GoOn(), NOW)
    [accepted] = refused.conditions
    assert (refused.phase, refused.observed_generation) == (names.PENDING, 3)
    assert (accepted.type, accepted.status, accepted.reason) == ("Accepted", "False", "InvalidSpec")
    assert (accepted.message, accepted.observed_generation) == ("; ".join(job.problems), 3)
    assert [problem.partition(":")[0] for problem in job.problems] == [f"spec.{name}" for name in WRONG]
    assert accepted.last_transition_time == "2026-01-01T00:10:00Z"


def test_a_refused_spec_of_a_running_job_leaves_its_phase() -> None:
    job = replace(make_job(worker=make_role(), **WRONG), status=in_phase(names.RUNNING))
    assert refused_status(Observed(job), GoOn(), NOW).phase == names.RUNNING


def test_the_last_status_is_of_the_last_generation() -> None:
    job = replace(make_job(worker=make_role()), generation=4)
    last = status.deleted_status(Observed(job), NOW)
    assert (last.phase, last.observed_generation) == (names.TERMINATING, 4)
    assert [a.fact for a in last.announcements] == ["JobAccepted", "JobDeleted"]


OPEN = Gate(True, Reason.NOTHING_TO_WAIT_FOR)


@pytest.mark.parametrize(
    ("before", "pods", "start"),
    [
        ("", [], ""),
        ("", ["", "2026-01-01T00:03:00Z", "2026-01-01T00:02:00Z"], "2026-01-01T00:02:00Z"),
        ("2026-01-01T00:05:00Z", ["2026-01-01T00:02:00Z"], "2026-01-01T00:05:00Z"),
    ],
    ids=["never ran", "from its pods", "seen running"],
)
def test_a_job_that_ended_started_with_the_first_pod_that_ran(
    before: str, pods: list[str], start: str
) -> None:
    job = replace(make_job(worker=make_role(3)), status=JobStatus(start_time=before))
    ended = tuple(
        make_pod("worker", i, state=PodState.FAILED, started_at=at, began=bool(at))
        for i, at in enumerate(pods or [""] * 3)
    )
    found = status.active_status(Observed(job, ended), OPEN, End(Reason.POD_FAILED, ""), NOW)
    assert found.phase == names.FAILED
    assert (found.start_time, found.completion_time) == (start, "2026-01-01T00:10:00Z")


# --- children


def test_a_service_has_every_port_and_its_owner() -> None:
    job = make_job(worker=make_role())
    label = {"paddle-res-name": "demo-worker-0"}
    service = render_service(job, PodId("worker", 0), 36000)
    assert {key: value for key, value in service.items() if key != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": label,
            "ports": [
                {"name": f"p-{k}", "port": 36000 + k, "protocol": "TCP"} for k in range(names.PORTS_PER_POD)
            ],
        },
    }
    metadata = service["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == (
        "demo-worker-0",
        "default",
        {**label, "paddlepaddle.org/paddlejob": "demo"},
    )
    assert [(o["kind"], o["name"], o["uid"]) for o in metadata["ownerReferences"]] == [
        ("PaddleJob", "demo", "uid-1")
    ]


def test_a_config_map_has_the_data_and_its_owner() -> None:
    config = render_config_map(make_job(worker=make_role()), {"A": "1"})
    assert (config["apiVersion"], config["kind"], config["data"]) == ("v1", "ConfigMap", {"A": "1"})
    metadata = config["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo", "default")
    assert metadata["labels"] == {"paddle-res-name": "demo", "paddlepaddle.org/paddlejob": "demo"}
    assert [o["controller"] for o in metadata["ownerReferences"]] == [True]
