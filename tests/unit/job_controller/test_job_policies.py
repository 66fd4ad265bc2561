"""The rules of job-controller as tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from job_controller.domain import names
from job_controller.domain.model import (
    Failure,
    Job,
    JobSpec,
    JobStatus,
    Observed,
    Options,
    Plan,
    Pod,
    PodId,
    PodState,
    PortClaim,
    RoleStatus,
    SampleSet,
)
from job_controller.domain.parse import parse_job, parse_spec
from job_controller.domain.policies.clean_up import deletes_children, is_known_policy
from job_controller.domain.policies.dataset_gate import decide_gate, needs_sample_set
from job_controller.domain.policies.deletion import may_go
from job_controller.domain.policies.failure import failure_message, first_failure
from job_controller.domain.policies.host_ports import base_port, parse_port
from job_controller.domain.policies.phase import decide_phase
from job_controller.domain.policies.placement import preferred_node
from job_controller.domain.policies.restart import restart_policy
from job_controller.domain.policies.results import read_results
from job_controller.domain.policies.validation import find_problems
from job_controller.domain.policies.words import unknown_words
from paddlewheel.contracts.announcements import declare
from paddlewheel.contracts.conditions import Condition
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

P, S, R, F, D = (
    PodState.PENDING,
    PodState.STARTING,
    PodState.RUNNING,
    PodState.FAILED,
    PodState.SUCCEEDED,
)


def make_spec(**spec: object) -> JobSpec:
    return parse_spec(spec, "default")


def make_job(name: str = "demo", namespace: str = "default", **spec: object) -> Job:
    raw = make_paddle_job(name, namespace, **spec)
    raw["metadata"] |= {"uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return parse_job(raw)


@pytest.mark.parametrize(
    ("policy", "at_failed", "at_completed"),
    [
        ("", False, True),
        ("Always", True, True),
        ("OnFailure", True, False),
        ("OnCompletion", False, True),
        ("Never", False, False),
        ("OnFailed", False, False),
        ("Nerver", False, False),
    ],
)
def test_clean_up_table(policy: str, at_failed: bool, at_completed: bool) -> None:
    assert deletes_children(policy, names.FAILED) is at_failed
    assert deletes_children(policy, names.COMPLETED) is at_completed
    assert not deletes_children(policy, names.RUNNING)


def test_unknown_words_are_told_and_known_ones_are_not() -> None:
    odd = make_spec(intranet="Pod", cleanPodPolicy="OnFailed", worker=make_role())
    assert [w.condition for w in unknown_words(odd)] == ["NetworkWordUnknown", "CleanPodPolicyUnknown"]
    assert all("use " in w.message for w in unknown_words(odd))
    assert odd.network.value == "PodIP"
    assert not is_known_policy("Nerver")
    for word in ("", "PodIP", "Service", "Host"):
        assert not list(unknown_words(make_spec(intranet=word, worker=make_role())))


@pytest.mark.parametrize(
    ("spec", "role", "expected"),
    [
        ({"worker": make_role()}, "worker", "Never"),
        ({"worker": make_role(restartPolicy="Always")}, "worker", "Always"),
        ({"intranet": "Service", "worker": make_role()}, "worker", "OnFailure"),
        ({"intranet": "Service", "worker": make_role(restartPolicy="Never")}, "worker", "Never"),
        ({"intranet": "Service", "ps": make_role(), "worker": make_role()}, "ps", "Never"),
        ({"elastic": 1, "worker": make_role(restartPolicy="Never")}, "worker", "OnFailure"),
        ({"elastic": 0, "worker": make_role()}, "worker", "Never"),
    ],
)
def test_restart_policy(spec: dict[str, object], role: str, expected: str) -> None:
    parsed = make_spec(**spec)
    assert restart_policy(parsed, next(r for r in parsed.roles if r.role == role)) == expected


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"ps": make_role(), "worker": make_role(2)}, "PS"),
        ({"worker": make_role(2)}, "Collective"),
        ({"worker": make_role(1)}, "Single"),
        ({"heter": make_role(2)}, "Single"),
        ({"worker": make_role(2), "heter": make_role(2)}, "Collective"),
    ],
)
def test_mode(spec: dict[str, object], mode: str) -> None:
    assert make_spec(**spec).mode.value == mode


@pytest.mark.parametrize(
    ("replicas", "states", "expected"),
    [
        ({"worker": 2}, {"worker": []}, "Pending"),
        ({"worker": 2}, {"worker": [P, P]}, "Pending"),
        ({"worker": 2}, {"worker": [P, S]}, "Starting"),
        ({"worker": 2}, {"worker": [R, S]}, "Starting"),
        ({"worker": 2}, {"worker": [R, P]}, "Pending"),
        ({"worker": 2}, {"worker": [R]}, "Pending"),
        ({"worker": 2}, {"worker": [R, R]}, "Running"),
        ({"worker": 2}, {"worker": [R, D]}, "Running"),
        ({"worker": 2}, {"worker": [D, D]}, "Completed"),
        ({"worker": 2}, {"worker": [D, F]}, "Failed"),
        ({"worker": 2}, {"worker": [P, F]}, "Failed"),
        ({"ps": 1, "worker": 1}, {"ps": [R], "worker": [R]}, "Running"),
        ({"ps": 1, "worker": 1}, {"ps": [R], "worker": [D]}, "Completed"),
        ({"ps": 1, "worker": 1}, {"ps": [F], "worker": [R]}, "Failed"),
        ({"ps": 1, "worker": 1}, {"ps": [F], "worker": [D]}, "Completed"),
        ({"ps": 1, "worker": 1}, {"ps": [S], "worker": [F]}, "Failed"),
        ({"ps": 1, "worker": 1}, {"ps": [P], "worker": [S]}, "Starting"),
        ({"ps": 1}, {"ps": [D]}, "Completed"),
        ({"ps": 1, "worker": 0}, {"ps": [R], "worker": []}, "Running"),
        ({"worker": 1, "heter": 1}, {"worker": [R], "heter": [F]}, "Failed"),
        ({"worker": 1, "heter": 1}, {"worker": [D], "heter": [R]}, "Completed"),
    ],
)
def test_phase_is_a_function_of_the_pods_alone(
    replicas: dict[str, int], states: dict[str, list[PodState]], expected: str
) -> None:
    spec = make_spec(**{role: make_role(n) for role, n in replicas.items()})
    roles = {
        role: RoleStatus({state: found.count(state) for state in PodState}) for role, found in states.items()
    }
    assert decide_phase(spec, roles) == expected
    assert decide_phase(spec, dict(reversed(roles.items()))) == expected


def make_pod(role: str, index: int, **fields: object) -> Pod:
    name = names.pod_name("demo", role, index)
    base: dict[str, object] = {"id": PodId(role, index), "name": name, "uid": f"u-{name}", "state": R}
    return Pod(**(base | fields))  # type: ignore[arg-type]


def test_the_first_failure_is_told_with_pod_code_and_last_line() -> None:
    late = Failure("demo-worker-0", "Error", 1, "peer gone", "2026-01-01T00:00:09Z")
    early = Failure("demo-worker-1", "OOMKilled", 137, "loading", "2026-01-01T00:00:05Z")
    evicted = Failure("demo-worker-2", "Evicted", None, "")
    pods = [
        make_pod("worker", 2, failure=evicted),
        make_pod("worker", 0, failure=late),
        make_pod("worker", 1, failure=early),
    ]
    assert first_failure(pods) == early
    assert failure_message(early) == "pod demo-worker-1 failed (OOMKilled, exit code 137): loading"
    assert failure_message(evicted) == "pod demo-worker-2 failed (Evicted)"
    assert first_failure([make_pod("ps", 0)]) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", {}),
        ("done", {}),
        ("[1]", {}),
        ('{"accuracy": 0.98, "epochs": 3, "ok": true, "name": "x"}', {"accuracy": 0.98, "epochs": 3.0}),
        ('{"loss": NaN, "best": Infinity, "step": 1}', {"step": 1.0}),
    ],
)
def test_results_are_the_numbers_of_worker_zero(message: str, expected: dict[str, float]) -> None:
    other = make_pod("worker", 1, termination_message=json.dumps({"wrong": 1}))
    server = make_pod("ps", 0, termination_message=json.dumps({"wrong": 1}))
    assert read_results((server, other, make_pod("worker", 0, termination_message=message))) == expected
    assert read_results(()) == {}


REF = {"name": "set", "mountPath": "/data"}
ADMITTED = JobStatus(conditions=(Condition("Admitted", "True", "SampleSetReady"),))


@pytest.mark.parametrize(
    ("ref", "status", "pods", "found", "is_open", "reason"),
    [
        (None, JobStatus(), 0, None, True, "NothingToWaitFor"),
        (REF, JobStatus(), 0, None, False, "SampleSetNotFound"),
        (REF, JobStatus(), 0, SampleSet("Syncing", 2), False, "SampleSetNotReady"),
        (REF, JobStatus(), 0, SampleSet("PartialReady", 2), False, "SampleSetNotReady"),
        (REF, JobStatus(), 0, SampleSet("Ready", 2), True, "SampleSetReady"),
        (REF, ADMITTED, 0, SampleSet("PartialReady", 2), True, "SampleSetReady"),
        (REF, JobStatus(), 1, SampleSet("PartialReady", 2), True, "SampleSetReady"),
    ],
)
def test_gate(
    ref: object, status: JobStatus, pods: int, found: SampleSet | None, is_open: bool, reason: str
) -> None:
    spec = make_spec(sampleSetRef=ref, worker=make_role(2))
    gate = decide_gate(spec, status, pods, found)
    assert (gate.is_open, gate.reason) == (is_open, reason)
    assert gate.is_open or (gate.sample_set == "set" and "default/set" in gate.message)


def test_the_data_set_is_read_only_while_pods_are_missing() -> None:
    spec = make_spec(sampleSetRef=REF, worker=make_role(2))
    assert needs_sample_set(spec, JobStatus(), 1)
    assert not needs_sample_set(spec, JobStatus(), 2)
    assert not needs_sample_set(spec, JobStatus(phase="Completed"), 0)
    assert not needs_sample_set(make_spec(worker=make_role(2)), JobStatus(), 0)


def test_only_workers_within_the_partitions_have_a_place_and_it_is_preferred() -> None:
    spec = make_spec(sampleSetRef=REF, worker=make_role(3), ps=make_role(1))
    ready = SampleSet("Ready", 2)
    term = preferred_node(spec, PodId("worker", 1), ready)
    assert term == {
        "weight": 100,
        "preference": {
            "matchExpressions": [
                {"key": "paddlepaddle.org/juicefs-default.set", "operator": "In", "values": ["1"]}
            ]
        },
    }
    assert preferred_node(spec, PodId("worker", 2), ready) is None
    assert preferred_node(spec, PodId("ps", 0), ready) is None
    assert preferred_node(spec, PodId("worker", 0), None) is None
    assert preferred_node(make_spec(worker=make_role()), PodId("worker", 0), ready) is None


@pytest.mark.parametrize(
    ("job", "fragment"),
    [
        (make_job(worker=make_role(0)), "spec: give at least one"),
        (make_job(cleanPodPolicy="Never"), "spec: give at least one"),
        (make_job(worker=make_role(-1), ps=make_role(1)), "spec.worker.replicas: -1 is negative"),
        (make_job(worker={"replicas": 1}), "spec.worker.template.spec.containers"),
        (make_job("a" * 55, worker=make_role(1)), "use at most 54"),
        (make_job("a" * 54, worker=make_role(11)), "use at most 53"),
        (
            make_job("a.b", intranet="Service", worker=make_role()),
            "metadata.name: with spec.intranet Service",
        ),
        (
            make_job(worker=make_role(), sampleSetRef={"name": "", "mountPath": "/d"}),
            "spec.sampleSetRef.name",
        ),
        (make_job(worker=make_role(), sampleSetRef={"name": "s"}), "spec.sampleSetRef.mountPath"),
        (
            make_job(worker=make_role(), sampleSetRef={"name": "s", "mountPath": "/a:b"}),
            "spec.sampleSetRef.mountPath",
        ),
        (make_job(worker=make_role(), sampleSetRef={**REF, "namespace": "far"}), "another namespace"),
    ],
)
def test_what_can_never_work_is_named(job: Job, fragment: str) -> None:
    assert any(fragment in problem for problem in find_problems(job))


def test_a_sensible_job_has_no_problems() -> None:
    for job in (
        make_job(worker=make_role()),
        make_job("a" * 54, worker=make_role(10)),
        make_job("a.b", worker=make_role()),
        make_job("7up", intranet="Service", worker=make_role()),
        make_job(worker=make_role(), sampleSetRef={**REF, "namespace": "default"}),
    ):
        assert find_problems(job) == ()


def test_host_ports_are_deterministic_and_never_overlap() -> None:
    job = make_job(intranet="Host", worker=make_role())
    first = base_port(Observed(job), (35000, 65000))
    assert first is not None
    assert (first - 35000) % 20 == 0
    assert 35020 <= first <= 64980
    assert base_port(Observed(job), (35000, 65000)) == first
    claims = (PortClaim(first + 7, "2026-01-01T00:00:00Z", "other"),)
    other = base_port(Observed(job, port_claims=claims), (35000, 65000))
    assert other is not None
    assert abs(other - (first + 7)) >= 20


def test_other_networks_use_the_base_port() -> None:
    assert base_port(Observed(make_job(worker=make_role())), (35000, 65000)) == 36000


def test_host_ports_run_out() -> None:
    job = make_job(intranet="Host", worker=make_role())
    claims = tuple(PortClaim(p, "", f"u{p}") for p in (40020, 40040))
    assert base_port(Observed(job, port_claims=claims), (40000, 40060)) is None
    assert base_port(Observed(job, port_claims=claims[:1]), (40000, 40060)) == 40040


def with_port(job: Job, port: str) -> Job:
    raw = make_paddle_job(job.key.name, intranet="Host", worker=make_role())
    raw["metadata"] |= {
        "uid": job.uid,
        "creationTimestamp": job.created_at,
        "annotations": {"host-port": port},
    }
    return parse_job(raw)


def test_of_two_jobs_with_one_block_the_younger_draws_again_before_it_has_pods() -> None:
    job = with_port(make_job(), "40020")
    older = (PortClaim(40020, "2025-12-31T00:00:00Z", "other"),)
    younger = (PortClaim(40020, "2026-01-02T00:00:00Z", "other"),)
    assert base_port(Observed(job, port_claims=younger), (35000, 65000)) == 40020
    assert base_port(Observed(job, port_claims=older), (35000, 65000)) != 40020
    pods = (make_pod("worker", 0),)
    assert base_port(Observed(job, pods=pods, port_claims=older), (35000, 65000)) == 40020


@pytest.mark.parametrize(
    ("text", "port"), [("40020", 40020), ("", None), ("x", None), ("0", None), ("65530", None), ("-1", None)]
)
def test_port_annotation(text: str, port: int | None) -> None:
    assert parse_port(text) == port


def test_a_deleted_job_goes_when_the_fact_is_out_or_patience_is_over() -> None:
    raw = make_paddle_job()
    raw["metadata"] |= {"finalizers": [names.FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    job = parse_job(raw)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    untold = Plan(JobStatus(announcements=declare((), "JobDeleted", "t")))
    assert may_go(job, Plan(JobStatus()), Options(), start)
    assert not may_go(job, untold, Options(), start)
    assert may_go(job, untold, Options(deletion_patience=5), start + timedelta(seconds=5))
    assert not may_go(parse_job(make_paddle_job()), Plan(JobStatus()), Options(), start)
