"""`paddlewheel job explain` on real causes: a real API server and the real scheduler say what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.cli.explain import Explanation, explain
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_JOBS, Object, Resource
from paddlewheel.testkit.kubernetes import toleration
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.usefixtures("nodes")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


async def explained(jobs: JobServiceHarness, job: Object, reason: str) -> Explanation:
    """Once the job shows the reason."""
    key = await jobs.create(job)

    async def says_so() -> Explanation | None:
        said = explain(await jobs.cluster.get(PADDLE_JOBS, key))
        return said if said.reason == reason else None

    found: Explanation = await eventually(says_so, what=f"{key} shows {reason}")
    return found


def asking_for(cpu: str, **template: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": cpu}}}
    return make_role(1, containers=[container], **template)


async def test_a_request_that_fits_on_no_node(jobs: JobServiceHarness) -> None:
    await jobs.start()
    worker = asking_for("64", tolerations=[toleration(jobs.namespace)])
    said = await explained(jobs, make_paddle_job("large", worker=worker), "Unschedulable")
    assert "Insufficient cpu" in said.message
    assert "resources.requests" in said.remedy


@pytest.mark.long
async def test_a_taint_that_is_not_tolerated(jobs: JobServiceHarness) -> None:
    await jobs.start()
    said = await explained(jobs, make_paddle_job("shy", worker=asking_for("1")), "Unschedulable")
    assert "untolerated taint" in said.message
    assert "tolerate the taints" in said.remedy


@pytest.mark.long
async def test_an_affinity_that_no_node_fulfils(jobs: JobServiceHarness) -> None:
    await jobs.start()
    worker = asking_for("1", tolerations=[toleration(jobs.namespace)], nodeSelector={"gpu": "none-such"})
    said = await explained(jobs, make_paddle_job("picky", worker=worker), "Unschedulable")
    assert "node affinity/selector" in said.message


@pytest.mark.long
async def test_a_quota_smaller_than_the_job(jobs: JobServiceHarness) -> None:
    quota = {
        "metadata": {"name": "small", "namespace": jobs.namespace},
        "spec": {"hard": {"requests.cpu": "1"}},
    }
    await jobs.cluster.create(QUOTAS, quota)

    async def is_counted() -> bool:
        found = await jobs.cluster.get(QUOTAS, Key(jobs.namespace, "small"))
        return "hard" in (found.get("status") or {})

    await eventually(is_counted, what="the quota is counted")
    await jobs.start()
    said = await explained(jobs, make_paddle_job("greedy", worker=asking_for("2")), "FailedCreate")
    assert "exceeded quota: small" in said.message
    assert "quota" in said.remedy


@pytest.mark.long
async def test_what_the_user_can_change(jobs: JobServiceHarness) -> None:
    await jobs.start()
    paused = await explained(jobs, make_paddle_job("paused", suspend=True, worker=make_role(1)), "Suspended")
    assert paused.remedy == f"paddlewheel job resume {jobs.namespace}/paused"
    empty = await explained(jobs, make_paddle_job("empty", worker=make_role(0)), "ScaledToZero")
    assert empty.remedy == f"paddlewheel job scale {jobs.namespace}/empty --workers 1"
    ref = {"name": "none-such", "mountPath": "/data"}
    blind = await explained(
        jobs, make_paddle_job("blind", sampleSetRef=ref, worker=make_role(1)), "SampleSetNotFound"
    )
    assert "none-such" in blind.message
    assert "create the SampleSet" in blind.remedy
