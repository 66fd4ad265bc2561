"""Objects and texts of one user that must not affect the jobs of others."""

from __future__ import annotations

from typing import Any

from tests.unit.job_controller.conftest import JobHarness
from tests.unit.job_controller.test_job_losses import deleted

from job_controller.core import names
from job_controller.core.parse_pod import parse_pod
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Object
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role

LARGEST = 2**63 - 1
FIRST = Key("default", "demo-worker-0")
STRANGER = Key("evil", "fake-worker-0")


def owned_by(job: Object, kind: str, **content: Any) -> Object:
    """An object of another namespace that names the job as its owner."""
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    name = FIRST.name if kind == PODS.kind else job["metadata"]["name"]
    labels = {names.LABEL_NAME: name, names.LABEL_TYPE: "worker"}
    metadata = {"name": name, "namespace": "evil", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, **content}


async def test_a_pod_of_another_namespace_is_not_a_child(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    spec = {"containers": [{"name": "main", "image": "example/any"}]}
    await harness.cluster.create(PODS, owned_by(await harness.get(key), PODS.kind, spec=spec))
    await harness.set_status(Key("evil", FIRST.name), ended_status(exit_code=1, message="evil"), PODS)
    await harness.drain_queue()
    await harness.settle(key)
    await harness.delete(Key("evil", FIRST.name), PODS)
    await harness.drain_queue()
    assert (await harness.status(key))["phase"] == "Running"


async def test_a_config_map_of_another_namespace_is_not_a_child(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    config = owned_by(await harness.get(key), CONFIG_MAPS.kind, data={"x": "y"})
    await harness.cluster.create(CONFIG_MAPS, config)
    await harness.run_pods()
    await harness.settle(key)
    assert "PADDLE_TRAINERS" in await harness.config(key)


def stranger() -> Object:
    """A pod with our label and the longest grace period that Kubernetes accepts: no date is so far away."""
    ended = ended_status(exit_code=1)
    status: Object = {
        "phase": "Running",
        "containerStatuses": [
            {**ended["containerStatuses"][0], "name": "main"},
            {"name": "proxy", "ready": True, "state": {"running": {}}},
        ],
    }
    containers = [{"name": name, "image": "example/any"} for name in ("main", "proxy")]
    return {
        "metadata": {
            "name": STRANGER.name,
            "namespace": STRANGER.namespace,
            "labels": {names.LABEL_NAME: STRANGER.name, names.LABEL_TYPE: "worker"},
            "ownerReferences": [{"kind": "PaddleJob", "name": "fake", "uid": "any", "controller": True}],
        },
        "spec": {
            "containers": containers,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": LARGEST,
        },
        "status": status,
    }


async def test_a_pod_with_the_longest_grace_period_stops_no_job(harness: JobHarness) -> None:
    await harness.cluster.create(PODS, stranger())
    await harness.set_status(STRANGER, stranger()["status"], PODS)
    await harness.drain_queue()
    key = await harness.create(make_paddle_job(worker=make_role(1)))
    await harness.settle(key)
    await harness.run_pods(FIRST.name)
    await harness.end_pods(FIRST.name)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"


def test_a_deleted_pod_with_such_a_period_is_read() -> None:
    assert parse_pod(deleted(ended_status(exit_code=1), "00:11:31", LARGEST))


async def test_half_a_character_in_a_report_is_no_report(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(1), outputModel={"uri": "s3://m/1"}))
    report = '{"model": {"uri": "s3://m/1", "digest": "\\ud800"}}'
    await harness.set_status(FIRST, ended_status(message=report), PODS)
    await harness.drain_queue()
    await harness.settle(key)
    assert (await harness.condition(key, "Complete"))["reason"] == "ModelNotReported"
    for event in await harness.kubernetes_events():
        event.message.encode()
