"""A job's PodGroup from its making to its end, in both kinds, and beside those of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness, OpenHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.ports import PADDLE_JOBS, POD_GROUPS, PODS, VOLCANO_POD_GROUPS, Object, Resource
from paddlewheel.testkit.harness import Fakes
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

KEY = Key("default", "demo")
WORKERS = ["demo-worker-0", "demo-worker-1"]
PROTECTED = "scheduling.k8s.io/podgroup-protection"


def native(replicas: int = 2, **spec: Any) -> Object:
    return make_paddle_job(worker=make_role(replicas), **{"schedulingPolicy": {}} | spec)


def volcano(replicas: int = 2, **spec: Any) -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "500m"}}}
    role = make_role(replicas, schedulerName="volcano", containers=[container])
    return make_paddle_job(worker=role, **spec)


async def let_in(harness: JobHarness, phase: str = "Inqueue") -> None:
    """Play Volcano."""
    await harness.set_status(KEY, {"phase": phase}, VOLCANO_POD_GROUPS)
    await harness.settle(KEY)


async def protect(harness: JobHarness) -> None:
    """Play the API server: the PodGroup stays as long as it has pods."""
    await harness.patch(KEY, {"metadata": {"finalizers": [PROTECTED]}}, POD_GROUPS)


async def release(harness: JobHarness) -> None:
    """Play the controller manager once the pods are gone."""
    await harness.patch(KEY, {"metadata": {"finalizers": []}}, POD_GROUPS)


async def uid(harness: JobHarness, resource: Resource) -> str:
    return str((await harness.get(KEY, resource))["metadata"]["uid"])


async def gang(harness: JobHarness) -> Object:
    return dict((await harness.status(KEY)).get("gang") or {})


async def test_a_native_gang_is_made_with_its_pods_and_goes_at_the_end(harness: JobHarness) -> None:
    await harness.to_running(native(cleanPodPolicy="Never"))
    group = await harness.get(KEY, POD_GROUPS)
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    pods = await harness.objects(PODS)
    assert [pod["spec"]["schedulingGroup"] for pod in pods] == [{"podGroupName": "demo"}] * 2
    assert await harness.names(VOLCANO_POD_GROUPS) == []
    status = await gang(harness)
    assert (status["kind"], status["podGroup"], status["minAvailable"]) == ("Native", "demo", 2)
    await harness.end_pods()
    await harness.settle(KEY)
    assert (await harness.status(KEY))["phase"] == "Completed"
    assert await harness.names(POD_GROUPS) == []
    assert not [event for event in await harness.kubernetes_events() if event.type == "Warning"]


async def test_a_gang_costs_one_write_more_and_none_while_it_runs(harness: JobHarness) -> None:
    with harness.counted_writes() as before:
        await harness.begin(make_paddle_job("plain", worker=make_role(8)))
    await harness.create(native(8))
    with harness.counted_writes() as writes:
        await harness.settle(KEY)
    # A gang's first status does not wait.
    assert writes - before == {("create", "podgroups"): 1, ("patch-status", "paddlejobs"): 1}
    await harness.run_pods()
    await harness.settle(KEY)
    with harness.counted_writes() as writes:
        await harness.reconcile(KEY)
    assert not writes


async def test_a_restart_uses_the_same_native_pod_group_again(harness: JobHarness) -> None:
    await harness.to_running(native(backoffLimit=1))
    before = await uid(harness, POD_GROUPS)
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(KEY)
    assert (await harness.status(KEY))["epoch"] == 1
    assert await uid(harness, POD_GROUPS) == before
    pods = await harness.objects(PODS)
    assert [pod["spec"]["schedulingGroup"] for pod in pods] == [{"podGroupName": "demo"}] * 2


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_native_gang_is_made_anew_in_its_new_size(
    harness: JobHarness, replicas: int, is_running: bool
) -> None:
    await harness.create(native())
    await harness.settle(KEY)
    if is_running:
        await harness.run_pods()
        await harness.settle(KEY)
    await protect(harness)
    before = {pod["metadata"]["uid"] for pod in await harness.objects(PODS)}
    await harness.patch(KEY, {"spec": {"worker": {"replicas": replicas}}})
    await harness.settle(KEY)
    assert await harness.pod_names() == [], "the PodGroup of the former size is still there"
    assert (await harness.status(KEY))["reason"] == "Restarting"
    await release(harness)
    await harness.settle(KEY)
    group = await harness.get(KEY, POD_GROUPS)
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == replicas
    pods = await harness.objects(PODS)
    assert len(pods) == replicas
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    assert (await harness.status(KEY))["restarts"] == {"Scaled": 1}


async def test_a_pod_that_takes_the_place_of_another_is_not_held_for_a_gang_that_has_partly_succeeded(
    harness: JobHarness,
) -> None:
    await harness.to_running(native(3, backoffLimit=1, failurePolicy={"restartScope": "Pod"}))
    await harness.end_pods("demo-worker-0")
    await harness.settle(KEY)
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(KEY)
    replaced = await harness.get(Key("default", "demo-worker-1"), PODS)
    assert "schedulingGroup" not in replaced["spec"]


@pytest.mark.parametrize("resource", [POD_GROUPS, VOLCANO_POD_GROUPS])
async def test_a_pod_group_that_was_deleted_by_hand_is_made_again(
    harness: JobHarness, resource: Resource
) -> None:
    await harness.create(native() if resource is POD_GROUPS else volcano())
    await harness.settle(KEY)
    if resource is VOLCANO_POD_GROUPS:
        await let_in(harness)
    await harness.run_pods()
    await harness.settle(KEY)
    before, pods = await uid(harness, resource), await harness.objects(PODS)
    await harness.delete(KEY, resource)
    await harness.drain_queue()
    assert await uid(harness, resource) != before
    now = await harness.objects(PODS)
    assert [pod["metadata"]["uid"] for pod in now] == [pod["metadata"]["uid"] for pod in pods]
    assert (await harness.status(KEY))["phase"] == "Running"


async def test_volcano_lets_a_job_in_before_it_has_pods(harness: JobHarness) -> None:
    await harness.create(volcano())
    await harness.settle(KEY)
    assert await harness.pod_names() == []
    status = await harness.status(KEY)
    assert (status["phase"], status["reason"]) == ("Pending", "GangNotEnqueued")
    assert "queue default" in status["message"]
    group = await harness.get(KEY, VOLCANO_POD_GROUPS)
    assert group["spec"] == {"minMember": 2, "minResources": {"cpu": "1"}}
    await let_in(harness)
    assert await harness.pod_names() == WORKERS
    assert (await gang(harness))["phase"] == "Inqueue"
    assert harness.facts() == ["JobAccepted", "JobGated", "JobStarting"]
    assert not [event for event in await harness.kubernetes_events() if event.type == "Warning"]


async def test_scaling_changes_the_pod_group_of_volcano_and_its_own_way_of_writing_does_not(
    harness: JobHarness,
) -> None:
    await harness.create(volcano(schedulingPolicy={"queue": "gpu"}))
    await harness.settle(KEY)
    await let_in(harness)
    await harness.patch(KEY, {"spec": {"minResources": {"cpu": "1000m"}}}, VOLCANO_POD_GROUPS)
    with harness.counted_writes() as writes:
        await harness.settle(KEY)
    assert not writes["patch", "podgroups"]
    changed = {"worker": {"replicas": 4}, "schedulingPolicy": {"queue": None, "priorityClass": "high"}}
    await harness.patch(KEY, {"spec": changed})
    await harness.settle(KEY)
    spec = (await harness.get(KEY, VOLCANO_POD_GROUPS))["spec"]
    assert spec == {
        "minMember": 4,
        "minResources": {"cpu": "2"},
        "queue": "default",
        "priorityClassName": "high",
    }


async def test_a_restarted_job_waits_in_volcanos_queue_again_and_its_deadline_goes_on(
    harness: JobHarness,
) -> None:
    await harness.create(volcano(backoffLimit=1))
    await harness.settle(KEY)
    await let_in(harness, "Running")
    await harness.run_pods()
    await harness.settle(KEY)
    await let_in(harness, "Pending")
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1)
    await harness.settle(KEY)
    assert await harness.pod_names() == []
    status = await harness.status(KEY)
    assert (status["phase"], status["epoch"]) == ("Restarting", 1)
    assert (await harness.condition(KEY, "Admitted"))["status"] == "True"
    await let_in(harness)
    assert await harness.pod_names() == WORKERS


@pytest.mark.parametrize("resource", [POD_GROUPS, VOLCANO_POD_GROUPS])
async def test_suspension_gives_the_place_up(harness: JobHarness, resource: Resource) -> None:
    await harness.create(native() if resource is POD_GROUPS else volcano())
    await harness.settle(KEY)
    await harness.patch(KEY, {"spec": {"suspend": True}})
    await harness.settle(KEY)
    assert await harness.names(resource) == []
    assert await harness.pod_names() == []
    await harness.patch(KEY, {"spec": {"suspend": False}})
    await harness.settle(KEY)
    assert await harness.names(resource) == ["demo"]


async def test_volcanos_pod_group_is_deleted_when_the_job_has_failed(harness: JobHarness) -> None:
    await harness.create(volcano(cleanPodPolicy="Never"))
    await harness.settle(KEY)
    await let_in(harness)
    await harness.end_pods(phase="Failed", exit_code=1)
    await harness.settle(KEY)
    assert (await harness.status(KEY))["phase"] == "Failed"
    assert await harness.names(VOLCANO_POD_GROUPS) == []


@pytest.mark.parametrize("resource", [POD_GROUPS, VOLCANO_POD_GROUPS])
async def test_a_pod_group_of_another_owner_is_left_alone_and_named(
    harness: JobHarness, resource: Resource
) -> None:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "demo",
        "uid": "x",
        "controller": True,
    }
    metadata = {"name": "demo", "namespace": "default", "ownerReferences": [owner]}
    foreign = await harness.cluster.create(resource, {"metadata": metadata, "spec": {"minMember": 9}})
    await harness.create(native() if resource is POD_GROUPS else volcano())
    await harness.settle(KEY)
    assert await harness.pod_names() == []
    blocked = await harness.condition(KEY, "Blocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "OwnedByAnother")
    await harness.delete(KEY)
    await harness.settle(KEY)
    assert await harness.get(KEY, resource) == foreign


async def test_a_pod_group_that_the_user_has_written_for_volcano_is_used_as_found(
    harness: JobHarness,
) -> None:
    metadata = {"name": "demo", "namespace": "default"}
    written = {"metadata": metadata, "spec": {"minMember": 4}}
    await harness.cluster.create(VOLCANO_POD_GROUPS, written)
    await harness.create(volcano())
    await harness.settle(KEY)
    assert await harness.pod_names() == []
    await harness.catch_up()
    harness.forget_woken()
    await harness.set_status(KEY, {"phase": "Inqueue"}, VOLCANO_POD_GROUPS)
    await harness.drain_queue()
    pods = await harness.objects(PODS)
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods} == {"demo"}
    await harness.end_pods()
    await harness.settle(KEY)
    assert (await harness.status(KEY))["phase"] == "Completed"
    assert (await harness.get(KEY, VOLCANO_POD_GROUPS))["spec"] == {"minMember": 4}


@pytest.fixture
async def bare(open_harness: OpenHarness, fakes: Fakes) -> AsyncIterator[JobHarness]:
    """A cluster without any PodGroups."""
    fakes.cluster.uninstall(POD_GROUPS)
    fakes.cluster.uninstall(VOLCANO_POD_GROUPS)
    async with open_harness() as running:
        yield running


async def test_without_a_gang_scheduler_the_job_runs_and_says_so_once(bare: JobHarness) -> None:
    await bare.to_running(native())
    ignored = await bare.condition(KEY, "SchedulingPolicyIgnored")
    assert (ignored["status"], ignored["reason"]) == ("True", "WithoutEffect")
    assert "install Volcano" in ignored["message"]
    assert (await gang(bare))["kind"] == "None"
    warnings = [event.reason for event in await bare.kubernetes_events() if event.type == "Warning"]
    assert warnings == ["WithoutEffect"]


async def test_a_gang_scheduler_that_comes_later_schedules_the_next_pods(bare: JobHarness) -> None:
    await bare.to_running(native())
    bare.forget_woken()
    bare.fakes.cluster.install(POD_GROUPS)
    await bare.catch_up()
    await bare.advance(1.0)
    assert await bare.names(POD_GROUPS) == []
    assert "no effect yet" in (await bare.condition(KEY, "SchedulingPolicyIgnored"))["message"]
    await bare.patch(KEY, {"metadata": {"annotations": {"paddlepaddle.org/restart": "1"}}})
    await bare.settle(KEY)
    assert await bare.names(POD_GROUPS) == ["demo"]
    assert (await bare.condition(KEY, "SchedulingPolicyIgnored"))["status"] == "False"
    assert (await gang(bare))["kind"] == "Native"


async def test_a_waiting_job_is_started_when_its_gang_scheduler_is_installed(bare: JobHarness) -> None:
    await bare.create(volcano(suspend=True))
    await bare.settle(KEY)
    bare.forget_woken()
    bare.fakes.cluster.install(VOLCANO_POD_GROUPS)
    await bare.catch_up()
    await bare.advance(1.0)
    assert (await gang(bare))["kind"] == "Volcano"


async def test_a_gang_scheduler_that_goes_leaves_running_pods_alone(harness: JobHarness) -> None:
    await harness.to_running(native())
    harness.fakes.cluster.uninstall(POD_GROUPS)
    await harness.catch_up()
    await harness.advance(1.0)
    await harness.settle(KEY)
    assert await harness.pod_names() == WORKERS
    status = await harness.status(KEY)
    assert status["phase"] == "Running"
    assert "Blocked" not in {c["type"] for c in status["conditions"]}


async def test_a_kind_that_the_administrator_demands_and_that_is_missing_blocks(
    open_harness: OpenHarness, fakes: Fakes
) -> None:
    fakes.cluster.uninstall(VOLCANO_POD_GROUPS)
    async with open_harness(gang_scheduling="Volcano") as harness:
        await harness.create(make_paddle_job(worker=make_role(2)))
        await harness.settle(KEY)
        assert await harness.pod_names() == []
        blocked = await harness.condition(KEY, "Blocked")
        assert (blocked["status"], blocked["reason"]) == ("True", "FailedCreate")
        assert "Volcano PodGroup default/demo" in blocked["message"]


async def test_a_running_job_shows_at_once_that_its_gang_is_possible_now(open_harness: OpenHarness) -> None:
    async with open_harness(gang_scheduling="None") as harness:
        await harness.to_running(make_paddle_job(worker=make_role(2), schedulingPolicy={}))
    async with open_harness(gang_scheduling="Volcano") as harness:
        await harness.settle(KEY)
        ignored = await harness.condition(KEY, "SchedulingPolicyIgnored")
        assert ignored["status"] == "True"
        assert "spec.schedulingPolicy has no effect yet" in ignored["message"]


async def test_a_running_job_without_a_policy_gets_no_warning_about_it(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        await harness.to_running(make_paddle_job(worker=make_role(2)))
    async with open_harness(gang_scheduling="Volcano") as harness:
        await harness.settle(KEY)
        assert "SchedulingPolicyIgnored" not in {c["type"] for c in (await harness.status(KEY))["conditions"]}


async def test_what_is_not_wanted_is_not_even_watched(open_harness: OpenHarness) -> None:
    async with open_harness(gang_scheduling="None") as harness:
        with harness.recorded_calls() as calls:
            await harness.to_running(volcano(schedulingPolicy={}))
        assert "podgroups" not in {plural for _, plural, _ in calls}
        assert "switched off" in (await harness.condition(KEY, "SchedulingPolicyIgnored"))["message"]


async def test_the_pod_group_of_a_deleted_job_of_the_same_name_is_waited_for(harness: JobHarness) -> None:
    former = await harness.create(native())
    await harness.settle(former)
    await protect(harness)
    group = await harness.get(KEY, POD_GROUPS)
    await harness.delete(former)
    await harness.settle(former)
    with pytest.raises(NotFound):
        await harness.get(former, PADDLE_JOBS)
    await harness.create(native(3))
    await harness.settle(KEY)
    assert (await harness.status(KEY))["reason"] == "FormerJobEnding"
    assert await harness.pod_names() == []
    await release(harness)
    await harness.settle(KEY)
    assert len(await harness.pod_names()) == 3
    assert await uid(harness, POD_GROUPS) != group["metadata"]["uid"]


async def test_a_gang_larger_than_its_job_is_named_as_stuck(harness: JobHarness) -> None:
    await harness.create(native(schedulingPolicy={"minAvailable": 3}))
    await harness.settle(KEY)
    status = await harness.status(KEY)
    assert (status["phase"], status["reason"], status["stuckOn"]) == (
        "Pending",
        "GangTooLarge",
        ["GangTooLarge"],
    )
    assert await harness.names(POD_GROUPS) == []
    await harness.patch(KEY, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(KEY)
    assert len(await harness.pod_names()) == 3


async def test_a_short_gang_is_stuck_after_a_while(harness: JobHarness) -> None:
    await harness.create(native())
    await harness.settle(KEY)
    words = "0/1 nodes are available: 1 Insufficient cpu. preemption: none."
    lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    for name in WORKERS:
        await harness.set_status(Key("default", name), {"conditions": [lacking]}, PODS)
    await harness.settle(KEY)
    status = await harness.status(KEY)
    assert status["reason"] == "GangUnschedulable"
    assert status["message"].startswith("the gang of 2 is short by 2 pods on cpu")
    assert "stuckOn" not in status
    await harness.advance(31.0)
    await harness.settle(KEY)
    assert (await harness.status(KEY))["stuckOn"] == ["GangUnschedulable"]
    warnings = [event.reason for event in await harness.kubernetes_events() if event.type == "Warning"]
    assert warnings == ["GangUnschedulable"]


async def test_a_job_that_volcano_has_not_let_in_reads_no_config_map(harness: JobHarness) -> None:
    await harness.create(volcano())
    await harness.settle(KEY)
    assert (await harness.status(KEY))["reason"] == "GangNotEnqueued"
    with harness.recorded_calls() as calls:
        await harness.advance(300)
    assert ("get", "configmaps") not in [(verb, plural) for verb, plural, _ in calls]
    await let_in(harness)
    assert await harness.pod_names() == WORKERS
