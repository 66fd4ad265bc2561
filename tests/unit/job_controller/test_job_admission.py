"""The admission of a job: a sensible manifest, a ready data set, free host ports. And its release."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.job_controller.builders import make_job, make_pod

from job_controller.core import names
from job_controller.core.deletion import is_patience_over
from job_controller.core.environment import parse_port
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.model import Observed, Options
from job_controller.core.parse import parse_job
from job_controller.core.parts import PortBlock, PortClaim, SampleSet
from job_controller.features.dataset.rules import decide_gate, needs_sample_set
from job_controller.features.host_ports.rules import claim_ports
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

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
    job = replace(make_job(sampleSetRef=ref, worker=make_role(2)), status=status)
    there = tuple(make_pod("worker", i) for i in range(pods))
    gate = decide_gate(Observed(job, there, sample_set=found))
    assert (gate.is_open, gate.reason) == (is_open, reason)
    assert gate.is_open or "default/set" in gate.message


@pytest.mark.parametrize(
    ("status", "pods", "reason"),
    [
        (JobStatus(), 0, "SampleSetUnreadable"),
        (ADMITTED, 0, "SampleSetReady"),
        (JobStatus(), 1, "SampleSetReady"),
    ],
)
def test_a_set_that_cannot_be_read_holds_only_jobs_that_were_not_admitted(
    status: JobStatus, pods: int, reason: str
) -> None:
    job = replace(make_job(sampleSetRef=REF, worker=make_role(2)), status=status)
    trouble = Trouble("read", "SampleSet", Key("default", "set"), "Unavailable", "HTTP 503")
    there = tuple(make_pod("worker", i) for i in range(pods))
    gate = decide_gate(Observed(job, there, trouble=trouble))
    assert (gate.is_open, gate.reason) == (reason == "SampleSetReady", reason)
    assert gate.is_open or ("default/set" in gate.message and "HTTP 503" in gate.message)


def test_the_data_set_is_read_only_while_pods_are_missing() -> None:
    job = make_job(sampleSetRef=REF, worker=make_role(2))
    pods = tuple(make_pod("worker", index) for index in range(3))
    assert needs_sample_set(Observed(job, pods[:1]))
    assert needs_sample_set(Observed(job, pods[1:])), "there are two, but not the wanted ones"
    assert not needs_sample_set(Observed(job, pods[:2]))
    assert not needs_sample_set(Observed(replace(job, status=JobStatus(phase="Completed"))))
    assert not needs_sample_set(Observed(make_job(worker=make_role(2))))
    done = JobStatus(roles={"worker": RoleStatus(succeeded_indexes=(1,))})
    assert not needs_sample_set(Observed(replace(job, status=done), pods[:1]))


@pytest.mark.parametrize(
    ("job", "fragment"),
    [
        (make_job(cleanPodPolicy="Never"), "spec has no ps, worker or heter"),
        (make_job(worker=make_role(-1), ps=make_role(1)), "spec.worker.replicas: must be at least 0, is -1"),
        (make_job(worker={"replicas": 1}), "spec.worker.template.spec.containers"),
        (
            make_job("a" * 55, worker=make_role(1)),
            "the last pod, <name>-worker-<replicas - 1>, would have more than",
        ),
        (make_job("a" * 54, worker=make_role(11)), "metadata.name: metadata.name is too long"),
        (
            make_job("a.b", intranet="Service", worker=make_role()),
            "metadata.name must begin with a letter and must not contain '.' with spec.intranet Service",
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
    assert any(fragment in problem for problem in job.problems)


def test_a_sensible_job_has_no_problems() -> None:
    for job in (
        make_job(worker=make_role()),
        make_job("a" * 54, worker=make_role(10)),
        make_job("a.b", worker=make_role()),
        make_job("7up", worker=make_role()),
        make_job(worker=make_role(), sampleSetRef={**REF, "namespace": "default"}),
    ):
        assert job.problems == ()


def test_host_ports_are_deterministic_and_never_overlap() -> None:
    job = make_job(intranet="Host", worker=make_role())
    first = claim_ports(Observed(job), (35000, 65000)).port
    assert first is not None
    assert (first - 35000) % 20 == 0
    assert 35020 <= first <= 64980
    assert claim_ports(Observed(job), (35000, 65000)).port == first
    claims = (PortClaim(first + 7, "2026-01-01T00:00:00Z", "other"),)
    other = claim_ports(Observed(job, port_claims=claims), (35000, 65000)).port
    assert other is not None
    assert abs(other - (first + 7)) >= 20


def test_host_ports_run_out() -> None:
    job = make_job(intranet="Host", worker=make_role())
    claims = tuple(PortClaim(p, "", f"u{p}") for p in (40020, 40040))
    assert claim_ports(Observed(job, port_claims=claims), (40000, 40060)).port is None
    assert claim_ports(Observed(job, port_claims=claims[:1]), (40000, 40060)).port == 40040


def with_port(job: Job, port: str) -> Job:
    raw = make_paddle_job(job.key.name, intranet="Host", worker=make_role())
    raw["metadata"] |= {
        "uid": job.uid,
        "creationTimestamp": job.created_at,
        "annotations": {"host-port": port},
    }
    return parse_job(raw)


OLDER = PortClaim(40020, "2025-12-31T00:00:00Z", "other")
YOUNGER = PortClaim(40020, "2026-01-02T00:00:00Z", "other")


@pytest.mark.parametrize("other", [OLDER, YOUNGER])
def test_a_job_without_pods_leaves_a_block_that_another_has_claimed_too(other: PortClaim) -> None:
    job = with_port(make_job(), "40020")
    drawn = claim_ports(Observed(job, port_claims=(other,)), (35000, 65000))
    assert drawn.port not in (None, 40020)
    assert not drawn.is_firm
    pods = (make_pod("worker", 0),)
    kept = claim_ports(Observed(job, pods=pods, port_claims=(other,)), (35000, 65000))
    assert kept == PortBlock(40020)


def test_two_jobs_that_leave_one_block_draw_different_ones() -> None:
    one, two = with_port(make_job("one"), "40020"), replace(with_port(make_job("two"), "40020"), uid="uid-2")
    drawn = [claim_ports(Observed(job, port_claims=(OLDER,)), (35000, 65000)).port for job in (one, two)]
    assert len(set(drawn)) == 2


def test_of_two_jobs_that_claim_the_last_block_the_older_keeps_it() -> None:
    job, last = with_port(make_job(), "40020"), (40000, 40040)
    assert claim_ports(Observed(job, port_claims=(YOUNGER,)), last) == PortBlock(40020, is_exhausted=True)
    assert claim_ports(Observed(job, port_claims=(OLDER,)), last) == PortBlock(None, is_exhausted=True)


def test_a_claim_is_firm_once_the_watch_has_reported_it() -> None:
    job = with_port(make_job(), "40020")
    assert claim_ports(Observed(job), (35000, 65000)) == PortBlock(40020)
    assert claim_ports(Observed(job, is_reported=False), (35000, 65000)) == PortBlock(40020, is_firm=False)


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("40020", 40020),
        ("", None),
        ("x", None),
        ("0", None),
        ("65530", None),
        ("-1", None),
        pytest.param("1" * 5000, None, id="more digits than int() takes"),
    ],
)
def test_port_annotation(text: str, port: int | None) -> None:
    assert parse_port(text) == port


def test_patience_with_the_bus_ends_some_time_after_the_deletion() -> None:
    raw = make_paddle_job()
    raw["metadata"] |= {"finalizers": [names.FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    job, start = parse_job(raw), datetime(2026, 1, 1, tzinfo=UTC)
    assert not is_patience_over(job, Options(), start)
    assert not is_patience_over(job, Options(deletion_patience=5), start + timedelta(seconds=4.9))
    assert is_patience_over(job, Options(deletion_patience=5), start + timedelta(seconds=5))
    assert not is_patience_over(parse_job(make_paddle_job()), Options(), start)
