"""The reconciler over memory adapters: life of a job, counted writes, crashes, foreign children."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from job_controller.cluster import KubernetesJobs

from job_controller.domain.model import Child, ChildKind, Options
from job_controller.domain.parse import parse_job
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

DEMO = Key("default", "demo")
WORKERS = ["demo-worker-0", "demo-worker-1"]


def collective(**spec: Any) -> dict[str, Any]:
    return make_paddle_job(**({"worker": make_role(2)} | spec))


async def test_a_job_from_manifest_to_completed(desk: Any) -> None:
    key = await desk.create(collective(cleanPodPolicy="Never"))
    await desk.settle(key)
    status = await desk.status(key)
    assert (status["phase"], status["mode"]) == ("Pending", "Collective")
    assert status["worker"]["pending"] == 2
    assert [r["name"] for r in status["worker"]["refs"]] == WORKERS
    assert (await desk.job(key))["metadata"]["finalizers"] == ["finalizers.paddlepaddle.org"]

    await desk.run_pods()
    await desk.settle(key)
    assert (await desk.config(key))["PADDLE_TRAINER_ENDPOINTS"] == "10.0.0.1:36000,10.0.0.2:36000"
    assert (await desk.status(key))["startTime"] == "2026-01-01T00:00:00Z"
    assert await desk.service_names() == []

    await desk.clock.advance(90)
    await desk.end_pods(message='{"accuracy": 0.97}')
    await desk.settle(key)
    status = await desk.status(key)
    assert status["phase"] == "Completed"
    assert status["completionTime"] == "2026-01-01T00:01:30Z"
    assert status["results"] == {"accuracy": 0.97}
    assert status["worker"]["succeeded"] == 2
    assert (await desk.condition(key, "Complete"))["status"] == "True"
    assert (await desk.condition(key, "Running"))["status"] == "False"
    assert desk.facts() == ["JobAccepted", "JobStarting", "JobRunning", "JobSucceeded"]
    succeeded: Any = desk.bus.events("PW_JOBS")[-1].data
    assert (succeeded.seconds, succeeded.results) == (90.0, {"accuracy": 0.97})
    assert all(a["announced"] for a in status["announcements"])


async def test_nothing_is_written_when_nothing_changed(desk: Any) -> None:
    key = await desk.to_running(collective())
    before = Counter(desk.cluster.writes)
    for _ in range(3):
        await desk.reconcile(key)
    assert desk.cluster.writes == before
    assert len(desk.facts()) == 3


async def test_writes_of_a_whole_life_are_counted(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(worker=make_role(20), cleanPodPolicy="Never"))
    await desk.end_pods()
    await desk.settle(key)
    ours = {k: n for k, n in desk.cluster.writes.items() if k[1] != "events"}
    # Kubelet's part: each pod is run once and ended once.
    assert ours.pop(("patch-status", "pods")) == 40
    assert ours == {
        ("create", "paddlejobs"): 1,
        ("patch", "paddlejobs"): 1,
        ("create", "pods"): 20,
        ("create", "configmaps"): 1,
        ("patch-status", "paddlejobs"): 4,
    }


async def test_all_pods_are_made_in_one_pass_and_only_once_though_the_caches_lag(desk: Any) -> None:
    key = await desk.create(make_paddle_job(worker=make_role(30)))
    await desk.catch_up()
    for _ in range(3):
        # Not a turn of the loop between the passes but what the calls themselves take.
        await desk.reconciler.reconcile(key)
    assert desk.cluster.writes["create", "pods"] == 30
    assert len(await desk.pod_names()) == 30


async def test_a_crash_between_pods_and_status_neither_doubles_nor_loses(open_desk: Any) -> None:
    async with open_desk() as first:
        key = await first.create(collective())

        def die(verb: str, resource: Any, _: Key) -> None:
            if (verb, resource) == ("patch-status", PADDLE_JOBS):
                raise Retry("Killed")

        first.cluster.intercept = die
        with pytest.raises(Retry):
            await first.reconcile(key)
        assert await first.pod_names() == WORKERS
    async with open_desk() as second:
        second.cluster.intercept = lambda *_: None
        await second.settle(key)
        await second.run_pods()
        await second.settle(key)
        assert second.cluster.writes["create", "pods"] == 2
        assert second.facts() == ["JobAccepted", "JobStarting", "JobRunning"]


async def test_a_crash_in_the_middle_of_the_pods_goes_on_where_it_stopped(open_desk: Any) -> None:
    async with open_desk() as first:
        key = await first.create(make_paddle_job(worker=make_role(6)))

        def die(verb: str, resource: Any, target: Key) -> None:
            if (verb, resource) == ("create", PODS) and target.name in ("demo-worker-2", "demo-worker-4"):
                raise Retry("Killed")

        first.cluster.intercept = die
        with pytest.raises(Retry):
            await first.reconcile(key)
    async with open_desk() as second:
        second.cluster.intercept = lambda *_: None
        await second.settle(key)
        assert second.cluster.writes["create", "pods"] == 6
        assert len(await second.pod_names()) == 6


async def test_our_own_pod_from_before_a_crash_is_taken_as_created(desk: Any, memory_cluster: Any) -> None:
    key = await desk.create(collective())
    await desk.settle(key)
    job = parse_job(await desk.job(key))
    manifest = await memory_cluster.get(PODS, Key("default", "demo-worker-0"))
    # Just started, its caches still empty.
    blind = KubernetesJobs(memory_cluster, memory_cluster, "", desk.clock)
    assert await blind.create(job, Child(ChildKind.POD, "demo-worker-0", manifest)) is None
    assert [p["metadata"]["uid"] for p in blind.children(job.uid).pods] == [manifest["metadata"]["uid"]]
    assert desk.cluster.writes["create", "pods"] == 2


@pytest.mark.parametrize(("resource", "name"), [(PODS, "demo-worker-1"), (CONFIG_MAPS, "demo")])
async def test_a_foreign_child_is_refused_and_left_alone(desk: Any, resource: Any, name: str) -> None:
    foreign = {
        "metadata": {"namespace": "default", "name": name, "labels": {"paddle-res-name": name}},
        "spec": {"containers": []},
    }
    before = await desk.cluster.create(resource, foreign)
    key = await desk.create(collective())
    await desk.settle(key)
    await desk.run_pods()
    result = await desk.settle(key)
    condition = await desk.condition(key, "Blocked")
    assert (condition["status"], condition["reason"]) == ("True", "OwnedByAnother")
    assert f"{resource.kind} {name}" in condition["message"]
    assert result.requeue_after is not None
    assert (await desk.cluster.get(resource, Key("default", name)))["metadata"]["uid"] == before["metadata"][
        "uid"
    ]
    assert [e for e in await desk.events() if e[:2] == ("Warning", "Create")]

    await desk.cluster.delete(resource, Key("default", name))
    await desk.settle(key)
    assert (await desk.condition(key, "Blocked"))["status"] == "False"
    await desk.run_pods()
    await desk.settle(key)
    assert (await desk.status(key))["phase"] == "Running"


async def test_a_pod_the_api_server_refuses_is_shown_and_tried_again(desk: Any) -> None:
    def refuse(verb: str, resource: Any, _: Key) -> None:
        if (verb, resource) == ("create", PODS):
            raise Permanent("Forbidden", "exceeded quota: gpus")

    desk.cluster.intercept = refuse
    key = await desk.create(collective())
    result = await desk.settle(key)
    condition = await desk.condition(key, "Blocked")
    assert (condition["reason"], "exceeded quota" in condition["message"]) == ("Forbidden", True)
    assert result.requeue_after == 30.0
    assert "JobStarting" not in desk.facts()


async def test_scaling_up_and_down_keeps_the_config_in_step(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(intranet="Service", worker=make_role(2)))
    await desk.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 4}}})
    await desk.settle(key)
    assert len(await desk.pod_names()) == len(await desk.service_names()) == 4
    assert (await desk.config(key))["PADDLE_TRAINERS_NUM"] == "4"
    assert ("Normal", "Scaled", "created 2 pods") in await desk.events()

    await desk.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 1}}})
    await desk.settle(key)
    assert await desk.pod_names() == await desk.service_names() == ["demo-worker-0"]
    config = await desk.config(key)
    assert (config["PADDLE_TRAINERS_NUM"], config["PADDLE_TRAINERS"]) == ("1", "demo-worker-0")
    assert (await desk.status(key))["observedGeneration"] == 3
    assert ("Normal", "Scaled", "deleted 3 pods") in await desk.events()


async def test_new_pods_never_start_with_the_old_lists(desk: Any) -> None:
    key = await desk.to_running(make_paddle_job(intranet="Service", worker=make_role(2)))
    order: list[tuple[str, str]] = []
    desk.cluster.intercept = lambda verb, resource, _: order.append((verb, resource.plural))
    await desk.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await desk.settle(key)
    writes = [o for o in order if o in (("patch", "configmaps"), ("create", "services"), ("create", "pods"))]
    assert writes == [("patch", "configmaps"), ("create", "services"), ("create", "pods")]


async def test_children_wake_their_job(desk: Any) -> None:
    key = await desk.to_running(collective())
    desk.woken.clear()
    await desk.end_pods("demo-worker-0")
    await desk.catch_up()
    assert set(desk.woken) == {key}


async def test_config_keys_that_no_longer_hold_are_removed(desk: Any) -> None:
    role = make_role(1)
    key = await desk.to_running(make_paddle_job(intranet="Service", withGloo=1, ps=role, worker=make_role(2)))
    await desk.cluster.patch(PADDLE_JOBS, key, {"spec": {"withGloo": 0}})
    await desk.settle(key)
    assert not [k for k in await desk.config(key) if "GLOO" in k]


async def test_a_running_jobs_pod_deleted_by_hand_comes_back(desk: Any) -> None:
    key = await desk.to_running(collective())
    await desk.cluster.delete(PODS, Key("default", "demo-worker-1"))
    await desk.settle(key)
    assert await desk.pod_names() == WORKERS
    await desk.run_pods()
    await desk.settle(key)
    assert (await desk.status(key))["phase"] == "Running"
    assert desk.facts().count("JobRunning") == 1


async def test_an_impossible_job_is_told_so_once(desk: Any) -> None:
    key = await desk.create(make_paddle_job("a" * 60, worker=make_role(1)))
    await desk.settle(key)
    condition = await desk.condition(key, "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
    assert "metadata.name" in condition["message"]
    assert await desk.pod_names() == []
    assert desk.facts() == []
    events = await desk.events()
    assert [e[:2] for e in events] == [("Warning", "Create")]


async def test_unknown_words_are_shown_as_conditions_until_mended(desk: Any) -> None:
    key = await desk.create(collective(intranet="Podip", cleanPodPolicy="OnFailed"))
    await desk.settle(key)
    assert (await desk.condition(key, "NetworkWordUnknown"))["status"] == "True"
    assert (await desk.condition(key, "CleanPodPolicyUnknown"))["status"] == "True"
    await desk.cluster.patch(PADDLE_JOBS, key, {"spec": {"intranet": "PodIP"}})
    await desk.settle(key)
    assert (await desk.condition(key, "NetworkWordUnknown"))["status"] == "False"


async def test_pods_are_released_after_the_config_map_stands(open_desk: Any) -> None:
    async with open_desk(Options(gate_image="example/gate:1")) as desk:
        key = await desk.create(collective())
        await desk.settle(key)
        assert desk.cluster.writes["patch", "pods"] == 0
        order: list[tuple[str, str]] = []
        desk.cluster.intercept = lambda verb, resource, _: order.append((verb, resource.plural))
        await desk.run_pods()
        await desk.settle(key)
        assert order.index(("create", "configmaps")) < order.index(("patch", "pods"))
        assert desk.cluster.writes["patch", "pods"] == 2
        pod = await desk.cluster.get(PODS, Key("default", "demo-worker-0"))
        assert pod["metadata"]["annotations"]["paddlepaddle.org/released"] == "true"


async def test_two_jobs_on_the_hosts_network_get_different_blocks(desk: Any) -> None:
    ports = []
    for name in ("one", "two"):
        key = await desk.create(make_paddle_job(name, intranet="Host", worker=make_role(1)))
        await desk.settle(key)
        ports.append((await desk.job(key))["metadata"]["annotations"]["host-port"])
    assert len(set(ports)) == 2
    assert await desk.service_names() == []


async def test_concurrent_edits_are_seen_again_not_overwritten(
    desk: Any, memory_cluster: MemoryCluster
) -> None:
    key = await desk.create(collective())
    await desk.catch_up()
    await memory_cluster.patch(PADDLE_JOBS, key, {"metadata": {"labels": {"edited": "1"}}})
    with pytest.raises(Conflict):
        await desk.reconciler.reconcile(key)
    await asyncio.sleep(0)
    await desk.settle(key)
    assert await desk.pod_names() == WORKERS
