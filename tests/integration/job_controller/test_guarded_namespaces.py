"""Pods in a namespace with Pod Security `restricted`, a quota and a limit range, on a real API server.

Whatever is added to the pods of a job must be admitted where the template alone is admitted.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.integration.job_controller.conftest import JobServiceHarness

from job_controller.core import names
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.quantities import amount
from paddlewheel.kube.ports import NAMESPACES, PODS, Object, Resource
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)
from paddlewheel.testkit.wait import eventually

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
EACH = {"cpu": "500m", "memory": "256Mi"}
"""The figures of a container that trains, and the default of the namespace."""
SECURITY = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def guard(jobs: JobServiceHarness) -> None:
    """Return when all three are enforced in the namespace of the test."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await jobs.cluster.patch(NAMESPACES, Key("", jobs.namespace), {"metadata": {"labels": labels}})
    limits = {
        "type": "Container",
        "min": {"cpu": "100m", "memory": "64Mi"},
        "max": {"cpu": "2", "memory": "1Gi"},
        "default": EACH,
        "defaultRequest": EACH,
        "maxLimitRequestRatio": {"cpu": "1"},
    }
    await jobs.create({"metadata": {"name": "guard"}, "spec": {"limits": [limits]}}, LIMIT_RANGES)
    counted = (f"{part}.{name}" for part in ("requests", "limits") for name in EACH)
    await jobs.create(
        {"metadata": {"name": "guard"}, "spec": {"hard": dict.fromkeys(counted, "100Gi")}}, QUOTAS
    )
    await eventually(lambda: used(jobs), what="the quota counts")


async def used(jobs: JobServiceHarness) -> dict[str, str]:
    """The figures that the quota counts, none until it does."""
    return dict((await jobs.status(jobs.key("guard"), QUOTAS)).get("used") or {})


def role(replicas: int, *, resources: Object | None = None, **spec: Any) -> Object:
    """A role whose template describes its container fully and leaves the pod out."""
    given = {"requests": EACH, "limits": EACH} if resources is None else resources
    container = {"name": "main", "image": "example/train:1", "securityContext": SECURITY, "resources": given}
    return make_role(replicas, containers=[container], **spec)


ASKS: dict[str, dict[str, Any]] = {
    "asks": {"worker": role(2)},
    "bare": {"worker": role(1, resources={})},
    "data": {"sampleSetRef": {"name": "digits", "mountPath": "/data"}, "worker": role(1)},
    "address": {"worker": role(1, dnsPolicy="None", dnsConfig={"nameservers": ["10.0.0.10"]})},
    "gang": {"schedulingPolicy": {}, "worker": role(2)},
    "named": {"intranet": "Service", "worker": role(2)},
    "servers": {"ps": role(1), "worker": role(1), "heter": role(1)},
    "elastic": {"worker": role(2) | {"requests": 1}},
}
"""By what holds the pods back, or what is added to them."""


async def test_pods_are_admitted_where_namespaces_are_guarded(jobs: JobServiceHarness) -> None:
    """The gate costs no quota, and the pods have the QoS class of their template."""
    await guard(jobs)
    await make_sample_set(jobs.cluster, jobs.key("digits"))
    await set_sample_set_phase(jobs.cluster, jobs.key("digits"), "Ready")
    await jobs.start(GATE_IMAGE="example/gate:1", GATE_URL="http://127.0.0.1:1", PODS_PORT="0")
    wanted = dict[str, int]()
    for name, spec in ASKS.items():
        await jobs.create(make_paddle_job(name, **spec))
        wanted[name] = sum(part["replicas"] for part in spec.values() if "replicas" in part)

    async def all_there() -> list[Object]:
        pods = await jobs.objects(PODS)
        found = [pod["metadata"]["labels"][names.LABEL_JOB] for pod in pods]
        absent = [name for name in wanted if found.count(name) != wanted[name]]
        assert not absent, [(await jobs.status(jobs.key(name))).get("message") for name in absent]
        return pods

    pods = await eventually(all_there, what="every pod of every job is admitted")
    assert {len(pod["spec"]["initContainers"]) for pod in pods} == {1}
    assert {pod["status"]["qosClass"] for pod in pods} == {"Guaranteed"}
    counted = await used(jobs)
    assert {amount(counted[f"{part}.cpu"]) for part in ("requests", "limits")} == {len(pods) * Fraction(1, 2)}
