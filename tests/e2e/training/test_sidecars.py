"""Trainers beside a container that never ends by itself, such as a service mesh or a log shipper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.training.live_job import IMAGE, WITHIN, LiveJob, Manifest, Status

from paddlewheel.cli.target import Target
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Case:
    """A program of rank 1, and the end of its job. Rank 0 trains for two seconds.

    Args:
        phase, reason: in the status at the end.
        message: part of the message in the status.
        job: fields of the job's spec.
    """

    program: str
    phase: str
    reason: str
    restarts: dict[str, int]
    message: str = ""
    job: tuple[tuple[str, Any], ...] = ()


CASES = {
    "exit-0": Case("exit 0", "Completed", "Completed", {}),
    "exit-1": Case("echo no bucket; exit 1", "Failed", "PodFailed", {}, "exit code 1"),
    "exit-1-once": Case(
        "exit $((1 - PADDLEWHEEL_EPOCH))",
        "Completed",
        "Completed",
        {"PodFailed": 1},
        job=(("backoffLimit", 1),),
    ),
}


def pod_of(program: str) -> Manifest:
    script = f'sleep 2; [ "$PADDLE_TRAINER_ID" = 1 ] || exit 0; {program}'
    return {
        # The end of a container counts after this and a grace.
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]},
            {"name": "mesh", "image": IMAGE, "command": ["sleep", "infinity"]},
        ],
    }


@pytest.mark.parametrize("name", CASES)
async def test_the_first_container_decides(paddlewheel_cluster: Target, name: str) -> None:
    case, job = CASES[name], LiveJob(paddlewheel_cluster, f"sidecar-{name}")
    spec = {"cleanPodPolicy": "Always", "worker": {"replicas": 2, "template": {"spec": pod_of(case.program)}}}
    await job.make_namespace()
    await job.apply(
        {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "metadata": {"name": job.name},
            "spec": spec | dict(case.job),
        }
    )

    async def has_ended() -> Status | None:
        status = await job.status()
        return status if status.get("phase") in ("Completed", "Failed") else None

    status = await eventually(has_ended, within=WITHIN, every=0.5, what=f"{job.name} ends")
    assert (status["phase"], status["reason"]) == (case.phase, case.reason)
    assert status.get("restarts", {}) == case.restarts
    assert case.message in status.get("message", "")

    async def is_cleaned() -> bool:
        return await job.pods() == []

    await eventually(is_cleaned, within=WITHIN, every=0.5, what="the other containers end with the job")
