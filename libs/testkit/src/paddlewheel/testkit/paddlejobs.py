"""Builders of PaddleJobs, of their pods' status, and the manifests that contract.md H names."""

from __future__ import annotations

import copy
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import SAMPLE_SETS, Cluster, Object


def make_template(**spec: Any) -> Object:
    """A pod template with one container `main`; keywords go into its spec."""
    return {"spec": {"containers": [{"name": "main", "image": "example/train:1"}], **spec}}


def make_role(replicas: int = 1, **template_spec: Any) -> Object:
    """A role of `replicas` pods."""
    return {"replicas": replicas, "template": make_template(**template_spec)}


def make_paddle_job(name: str = "demo", namespace: str = "default", **spec: Any) -> Object:
    """A PaddleJob as a user writes it; without `spec` it has one worker."""
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec or {"worker": make_role()},
    }


def parameter_server_example() -> Object:
    """The least PS job."""
    role = {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "example/ctr:1"}]}}}
    return make_paddle_job("ctr", withGloo=1, ps=copy.deepcopy(role), worker=role)


def collective_example() -> Object:
    """Collective, Service network, gang, cached data."""
    container = {
        "name": "main",
        "image": "example/train:1",
        "command": ["python"],
        "args": ["-m", "paddle.distributed.launch", "train.py"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    worker = {
        "replicas": 4,
        "requests": 2,
        "limits": 8,
        "template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"schedulerName": "volcano", "containers": [container]},
        },
    }
    return make_paddle_job(
        "resnet",
        "team-a",
        intranet="Service",
        cleanPodPolicy="OnCompletion",
        schedulingPolicy={
            "minAvailable": 4,
            "queue": "gpu",
            "priorityClass": "high",
            "minResources": {"cpu": 8, "nvidia.com/gpu": "4"},
        },
        sampleSetRef={"name": "imagenet", "mountPath": "/data"},
        worker=worker,
    )


def old_habits_example() -> Object:
    """Unknown policy word, unknown field, host network, elastic."""
    return make_paddle_job(
        "legacy",
        cleanPodPolicy="OnFailed",
        cleanPolicy="OnCompletion",
        intranet="Host",
        elastic=1,
        worker=make_role(3, restartPolicy="Never"),
    )


def running_status(ip: str, *, ready: bool = True, container: str = "main") -> Object:
    """Status of a pod whose container runs."""
    state = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
    return {
        "phase": "Running",
        "podIP": ip,
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": container, "ready": ready, "state": state}],
    }


def ended_status(
    ip: str = "10.0.0.1",
    *,
    exit_code: int = 0,
    message: str = "",
    reason: str = "",
    finished_at: str = "2026-01-01T00:10:00Z",
) -> Object:
    """Status of a pod whose container `main` has ended."""
    ended = {
        "exitCode": exit_code,
        "message": message,
        "reason": reason or ("Error" if exit_code else "Completed"),
        "finishedAt": finished_at,
    }
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "podIP": ip,
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": "main", "ready": False, "state": {"terminated": ended}}],
    }


async def make_sample_set(cluster: Cluster, key: Key, *, partitions: int = 1) -> Object:
    """Create a SampleSet that has no phase yet."""
    spec = {
        "partitions": partitions,
        "source": {"uri": "s3://bucket.s3.example.com/data"},
        "secretRef": {"name": key.name},
    }
    metadata = {"namespace": key.namespace, "name": key.name}
    return await cluster.create(SAMPLE_SETS, {"metadata": metadata, "spec": spec})


async def set_sample_set_phase(
    cluster: Cluster, key: Key, phase: str, message: str = "", reason: str = ""
) -> None:
    """Write the status of a SampleSet as dataset-controller does."""
    status = {"phase": phase, "message": message, "reason": reason or phase}
    await cluster.patch(SAMPLE_SETS, key, {"status": status}, subresource="status")
