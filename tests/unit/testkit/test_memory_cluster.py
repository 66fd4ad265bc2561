"""Only the memory cluster injects faults by hand and shares no object with its callers."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.objects import is_deleting
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster

KEY = Key("team", "a")


def job(**spec: int) -> Object:
    return {"metadata": {"name": "a", "namespace": "team"}, "spec": spec}


async def test_an_intercept_raises_into_the_call() -> None:
    def break_status(verb: str, resource: Resource, key: Key) -> None:
        if verb == "patch-status":
            raise Retry("Http500", "killed here")

    cluster = MemoryCluster(intercept=break_status)
    await cluster.create(PADDLE_JOBS, job())
    with pytest.raises(Retry):
        await cluster.patch(PADDLE_JOBS, KEY, {"status": {"phase": "Running"}}, subresource="status")
    assert "status" not in await cluster.get(PADDLE_JOBS, KEY)
    assert dict(cluster.writes) == {("create", "paddlejobs"): 1}


async def test_callers_and_cluster_share_nothing() -> None:
    cluster = MemoryCluster()
    mine = job(replicas=1)
    made = await cluster.create(PADDLE_JOBS, mine)
    mine["spec"]["replicas"] = made["spec"]["replicas"] = 5
    assert (await cluster.get(PADDLE_JOBS, KEY))["spec"]["replicas"] == 1


async def test_the_generation_counts_changes_of_the_spec_and_the_deletion() -> None:
    cluster = MemoryCluster()
    await cluster.create(PADDLE_JOBS, job(replicas=1))
    generations = []
    for patch in ({"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}}, {"spec": {"replicas": 2}}):
        generations.append((await cluster.patch(PADDLE_JOBS, KEY, patch))["metadata"]["generation"])
    status = await cluster.patch(PADDLE_JOBS, KEY, {"status": {"phase": "x"}}, subresource="status")
    await cluster.delete(PADDLE_JOBS, KEY)
    held = await cluster.get(PADDLE_JOBS, KEY)
    assert [*generations, status["metadata"]["generation"], held["metadata"]["generation"]] == [1, 2, 2, 3]
    assert is_deleting(held)


async def test_a_namespaced_kind_needs_a_namespace() -> None:
    with pytest.raises(Permanent, match=r"metadata\.namespace"):
        await MemoryCluster().create(CONFIG_MAPS, {"metadata": {"name": "a"}})
