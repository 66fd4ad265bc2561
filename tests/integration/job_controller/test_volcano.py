"""Gangs of Volcano: its API is real, and the test plays its scheduler and the kubelets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists, NotFound
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, VOLCANO_POD_GROUPS, Object
from paddlewheel.testkit.kubernetes import CRDS, set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "format": "int32"}
_QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_SPEC = {
    "minMember": _COUNT,
    "minResources": {"type": "object", "additionalProperties": _QUANTITY},
    "minTaskMember": {"type": "object", "additionalProperties": _COUNT},
    "priorityClassName": _TEXT,
    "queue": {**_TEXT, "default": "default"},
}
_CONDITION = dict.fromkeys(("type", "status", "reason", "message", "transitionID"), _TEXT)
_STATUS = {
    "phase": _TEXT,
    "running": _COUNT,
    "conditions": {"type": "array", "items": {"type": "object", "properties": _CONDITION}},
}
_PARTS = {
    name: {"type": "object", "properties": fields} for name, fields in (("spec", _SPEC), ("status", _STATUS))
}
POD_GROUP_CRD: Object = {
    "apiVersion": CRDS.api_version,
    "kind": CRDS.kind,
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": VOLCANO_POD_GROUPS.group,
        "names": {"kind": VOLCANO_POD_GROUPS.kind, "plural": VOLCANO_POD_GROUPS.plural},
        "scope": "Namespaced",
        "versions": [
            {
                "name": VOLCANO_POD_GROUPS.version,
                "served": True,
                "storage": True,
                # The published CRD has no subresource either.
                "subresources": {},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": _PARTS}},
            }
        ],
    },
}
"""The fields that matter here, of the same types and with the same default as in the published one."""


async def is_served(cluster: ApiCluster) -> bool:
    try:
        await cluster.list(VOLCANO_POD_GROUPS, "default")
    except NotFound:
        return False
    return True


@asynccontextmanager
async def installed(cluster: ApiCluster) -> AsyncIterator[None]:
    """Within the block, PodGroups of Volcano are served."""
    with suppress(AlreadyExists):
        await cluster.create(CRDS, POD_GROUP_CRD)
    await eventually(lambda: is_served(cluster), what="PodGroups of Volcano are served")
    yield
    await cluster.delete(CRDS, Key("", POD_GROUP_CRD["metadata"]["name"]))

    async def gone() -> bool:
        return not await is_served(cluster)

    await eventually(gone, what="PodGroups of Volcano are gone")


@pytest.fixture
async def volcano(cluster: ApiCluster) -> AsyncIterator[None]:
    async with installed(cluster):
        yield


def volcano_job(name: str, replicas: int = 2, **spec: Any) -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    role = make_role(
        replicas, containers=[container], schedulerName="volcano", terminationGracePeriodSeconds=0
    )
    usual = {"cleanPodPolicy": "Never", "worker": role}
    return make_paddle_job(name, **usual | spec)


async def let_in(jobs: JobServiceHarness, key: Key, phase: str = "Inqueue") -> None:
    await jobs.cluster.patch(VOLCANO_POD_GROUPS, key, {"status": {"phase": phase}})


async def to_running(jobs: JobServiceHarness, key: Key, replicas: int = 2) -> None:
    await jobs.wait_condition(key, "Admitted", "GangNotEnqueued")
    assert await jobs.pods(key) == []
    await let_in(jobs, key)
    await jobs.wait_pods(key, replicas)
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")


@pytest.mark.usefixtures("volcano")
async def test_a_gang_of_volcano_from_its_queue_to_its_end(jobs: JobServiceHarness) -> None:
    await jobs.start()
    policy = {"queue": "gpu", "priorityClass": "high"}
    key = await jobs.create(volcano_job("gang", schedulingPolicy=policy, backoffLimit=1))
    await to_running(jobs, key)
    spec = (await jobs.get(key, VOLCANO_POD_GROUPS))["spec"]
    assert spec == {
        "minMember": 2,
        "minResources": {"cpu": "1", "memory": "2Gi"},
        "queue": "gpu",
        "priorityClassName": "high",
    }
    annotations = [pod["metadata"]["annotations"] for pod in await jobs.objects(PODS)]
    assert {a["volcano.sh/queue-name"] for a in annotations} == {"gpu"}
    assert {a["scheduling.k8s.io/group-name"] for a in annotations} == {"gang"}
    status = await jobs.status(key)
    assert (status["gang"]["kind"], status["gang"]["phase"]) == ("Volcano", "Inqueue")
    await let_in(jobs, key, "Running")
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})

    async def scaled() -> bool:
        spec = (await jobs.get(key, VOLCANO_POD_GROUPS))["spec"]
        return (spec["minMember"], spec["minResources"]["cpu"]) == (3, "1500m")

    await eventually(scaled, what="the PodGroup has the new size")
    await jobs.wait_pods(key, 3)
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    await jobs.to_end(key)
    await jobs.wait_gone(key, VOLCANO_POD_GROUPS)
    assert not [event for event in await jobs.kubernetes_events() if event.type == "Warning"]


@pytest.mark.usefixtures("volcano")
async def test_a_deleted_pod_group_is_made_again_and_anothers_is_left_alone(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(volcano_job("hand"))
    await to_running(jobs, key)
    before = await jobs.get(key, VOLCANO_POD_GROUPS)
    await jobs.cluster.delete(VOLCANO_POD_GROUPS, key)

    async def made_again() -> bool:
        groups = await jobs.objects(VOLCANO_POD_GROUPS)
        return [g["metadata"]["uid"] for g in groups] not in ([], [before["metadata"]["uid"]])

    await eventually(made_again, what="the PodGroup is made again")
    assert (await jobs.status(key))["phase"] == "Running"
    other = await jobs.cluster.create(
        CONFIG_MAPS, {"metadata": {"name": "other", "namespace": jobs.namespace}}
    )
    uid = other["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": True}
    metadata = {"name": "theirs", "namespace": jobs.namespace, "ownerReferences": [owner]}
    theirs = await jobs.cluster.create(VOLCANO_POD_GROUPS, {"metadata": metadata, "spec": {"minMember": 7}})
    blocked = await jobs.create(volcano_job("theirs"))
    await jobs.wait_condition(blocked, "Blocked", "OwnedByAnother")
    assert await jobs.pods(blocked) == []
    assert await jobs.get(blocked, VOLCANO_POD_GROUPS) == theirs


@pytest.mark.usefixtures("volcano")
async def test_a_failed_job_gives_its_place_in_the_queue_up(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(volcano_job("fails"))
    await to_running(jobs, key)
    await set_pod_status(jobs.cluster, jobs.key("fails-worker-1"), "Failed", exit_code=1)
    await jobs.wait_phase(key, "Failed")
    await jobs.wait_gone(key, VOLCANO_POD_GROUPS)


@pytest.mark.usefixtures("volcano")
async def test_the_users_own_pod_group_is_used_as_found(jobs: JobServiceHarness) -> None:
    """The manifests of the original's first releases have one."""
    await jobs.start()
    metadata = {"name": "written", "namespace": jobs.namespace}
    await jobs.cluster.create(VOLCANO_POD_GROUPS, {"metadata": metadata, "spec": {"minMember": 4}})
    key = await jobs.create(volcano_job("written"))
    await to_running(jobs, key)
    await jobs.to_end(key)
    assert (await jobs.get(key, VOLCANO_POD_GROUPS))["spec"] == {"minMember": 4, "queue": "default"}


async def test_volcano_may_come_and_go_while_the_service_runs(jobs: JobServiceHarness) -> None:
    await jobs.start()
    early = await jobs.create(volcano_job("early"))
    await jobs.wait_condition(early, "SchedulingPolicyIgnored", "WithoutEffect")
    await jobs.wait_pods(early, 2)
    async with installed(jobs.cluster):
        first = await jobs.create(volcano_job("probe", suspend=True))

        async def is_noticed() -> bool:
            status = await jobs.status(first)
            return bool(status.get("gang", {}).get("kind") == "Volcano")

        await eventually(is_noticed, what="Volcano is noticed")
        key = await jobs.create(volcano_job("later"))
        await to_running(jobs, key)

    async def is_unblocked() -> bool:
        conditions = (await jobs.status(key))["conditions"]
        return "True" not in {c["status"] for c in conditions if c["type"] == "Blocked"}

    # While its CRD is being deleted, a PodGroup that is made again may be refused.
    await eventually(is_unblocked, what="the job needs no PodGroup any more")
    assert (await jobs.status(key))["phase"] == "Running"
    await jobs.to_end(key)
