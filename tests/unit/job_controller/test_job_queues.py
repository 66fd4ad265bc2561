"""Jobs in queues of Kueue: a Workload is made, its admission obeyed, and its quota given back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core.parse import parse_job
from job_controller.core.parts import Workload
from job_controller.features.kueue.rules import fits, workload_digest
from paddlewheel.contracts.conditions import find, parse_conditions
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Retry
from paddlewheel.kube.ports import (
    PADDLE_JOBS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    SAMPLE_SETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Object,
)
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, make_sample_set

WORKLOAD = Key("default", "paddlejob-demo")
QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
FULL = "insufficient unused quota for cpu in flavor spot, 1 more needed"


def queued(**spec: Any) -> Object:
    job = make_paddle_job(**({"worker": make_role(2)} | spec))
    job["metadata"]["labels"] = dict(QUEUE)
    return job


def condition(type_: str, status: bool, reason: str, message: str = "") -> Object:
    return {"type": type_, "status": str(status), "reason": reason, "message": message}


async def decide(harness: JobHarness, *conditions: Object, flavor: str = "") -> None:
    """The status that Kueue writes."""
    assigned = {"name": "worker", "count": 2, "flavors": {"cpu": flavor}}
    admission = {"clusterQueue": "all", "podSetAssignments": [assigned]} if flavor else None
    await harness.set_status(WORKLOAD, {"admission": admission, "conditions": [*conditions]}, WORKLOADS)


RESERVED = condition("QuotaReserved", True, "QuotaReserved")
ADMITTED = condition("Admitted", True, "Admitted")
EVICTED = condition("Evicted", True, "Preempted", "to make room")
LEAVE_THE_QUEUE = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}


async def admit(harness: JobHarness) -> None:
    await decide(harness, RESERVED, ADMITTED, flavor="spot")


@pytest.fixture
async def flavor(harness: JobHarness) -> None:
    spec = {
        "nodeLabels": {"capacity": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    await harness.cluster.create(RESOURCE_FLAVORS, {"metadata": {"name": "spot"}, "spec": spec})


async def evict(harness: JobHarness) -> None:
    await decide(harness, RESERVED, ADMITTED, EVICTED, flavor="spot")


async def holds_quota(harness: JobHarness) -> bool:
    """By its Workload, while there is one."""
    if not await harness.names(WORKLOADS):
        return False
    return bool((await harness.get(WORKLOAD, WORKLOADS))["status"].get("admission"))


async def warnings(harness: JobHarness) -> list[str]:
    return [f"{e.reason}: {e.message}" for e in await harness.kubernetes_events() if e.type == "Warning"]


async def hold_pods(harness: JobHarness, *finalizers: str) -> None:
    """Their deletion takes until the finalizers are removed, as it does while a program ends."""
    for name in await harness.pod_names():
        patch = {"metadata": {"finalizers": [*finalizers] or None}}
        await harness.cluster.patch(PODS, Key("default", name), patch)


async def to_running(harness: JobHarness, **spec: Any) -> Key:
    key = await harness.create(queued(**spec))
    await harness.settle(key)
    await admit(harness)
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    return key


async def test_a_job_without_a_queue_has_no_workload(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(1)))
    await harness.settle(key)
    assert await harness.names(WORKLOADS) == []
    assert await harness.pod_names() == ["demo-worker-0"]


async def test_a_queued_job_waits_with_what_kueue_says(harness: JobHarness) -> None:
    key = await harness.create(queued(ps=make_role(1)))
    await harness.settle(key)
    workload = await harness.get(WORKLOAD, WORKLOADS)
    assert workload["spec"]["queueName"] == "gpus"
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [
        ("ps", 1),
        ("worker", 2),
    ]
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "PaddleJob"
    await decide(harness, condition("QuotaReserved", False, "Pending", FULL))
    await harness.settle(key)
    status = await harness.status(key)
    message = f"pods are created when Kueue has admitted the job in queue gpus: {FULL}"
    assert (status["phase"], status["reason"], status["message"]) == ("Pending", "WaitingInQueue", message)
    assert await harness.pod_names() == []


@pytest.mark.usefixtures("flavor")
async def test_an_admitted_job_runs_where_its_quota_is(harness: JobHarness) -> None:
    key = await to_running(harness)
    for pod in await harness.objects(PODS):
        assert pod["spec"]["nodeSelector"] == {"capacity": "spot"}
        assert [each["key"] for each in pod["spec"]["tolerations"]] == ["spot"]
    await harness.end_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"
    assert await harness.names(WORKLOADS) == [], "a job that has ended holds no quota"


PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KUEUE_CLASS, CLASS = "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"


@pytest.mark.parametrize(
    ("label", "policy", "template", "expected"),
    [
        ("", "", "", ()),
        ("urgent", "high", "low", (KUEUE_CLASS, "urgent", 7)),
        ("", "high", "low", (CLASS, "high", 1000)),
        ("", "", "low", (CLASS, "low", -5)),
    ],
)
async def test_a_workload_has_the_priority_that_label_policy_or_pods_name(
    harness: JobHarness, label: str, policy: str, template: str, expected: tuple[object, ...]
) -> None:
    await harness.cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 7})
    for name, value in (("high", 1000), ("low", -5)):
        await harness.cluster.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    worker = make_role(2, priorityClassName=template) if template else make_role(2)
    job = queued(worker=worker, **({"schedulingPolicy": {"priorityClass": policy}} if policy else {}))
    if label:
        job["metadata"]["labels"][PRIORITY_LABEL] = label
    key = await harness.create(job)
    await harness.settle(key)
    spec = (await harness.get(WORKLOAD, WORKLOADS))["spec"]
    fields = ("priorityClassSource", "priorityClassName", "priority")
    assert tuple(spec[field] for field in fields if field in spec) == expected


async def test_a_job_whose_priority_class_does_not_exist_says_so_and_is_queued_when_it_comes(
    harness: JobHarness,
) -> None:
    job = queued()
    job["metadata"]["labels"][PRIORITY_LABEL] = "urgent"
    key = await harness.create(job)
    await harness.settle(key)
    assert await harness.names(WORKLOADS) == []
    status = await harness.status(key)
    assert (status["reason"], "WorkloadPriorityClass urgent" in status["message"]) == ("QueueNotUsable", True)
    await harness.cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 7})
    await harness.advance(60)
    await harness.settle(key)
    assert (await harness.get(WORKLOAD, WORKLOADS))["spec"]["priority"] == 7
    assert (await harness.status(key))["reason"] == "WaitingInQueue"


async def test_a_job_whose_flavor_is_gone_waits_and_says_so(harness: JobHarness) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await admit(harness)
    await harness.settle(key)
    assert await harness.pod_names() == []
    blocked = await harness.condition(key, "Blocked")
    assert (blocked["status"], "ResourceFlavor" in blocked["message"]) == ("True", True)


@pytest.mark.usefixtures("flavor")
@pytest.mark.parametrize(("cause", "requeued"), [("Preempted", "True"), ("ClusterQueueStopped", "False")])
async def test_an_evicted_job_ends_its_pods_then_gives_its_quota_back_and_comes_again(
    harness: JobHarness, cause: str, requeued: str
) -> None:
    key = await to_running(harness)
    first = {pod["metadata"]["uid"] for pod in await harness.objects(PODS)}
    evicted = condition("Evicted", True, cause, "to make room")
    await decide(harness, RESERVED, ADMITTED, evicted, flavor="spot")
    await harness.reconcile(key)
    await harness.reconcile(key)
    held = await harness.get(WORKLOAD, WORKLOADS)
    assert held["status"]["admission"], "as long as its pods may run"

    await harness.settle(key)
    assert await harness.pod_names() == []
    given = (await harness.get(WORKLOAD, WORKLOADS))["status"]
    conditions = parse_conditions(given["conditions"])
    assert not given.get("admission")
    states = {
        type_: found.status for type_ in ("QuotaReserved", "Admitted") if (found := find(conditions, type_))
    }
    assert states == {"QuotaReserved": "False", "Admitted": "False"}
    again = find(conditions, "Requeued")
    assert again is not None
    assert (again.status, again.reason) == (requeued, cause)
    assert await harness.restarts(key) == (1, {"EvictedByQueue": 1})
    assert (await harness.status(key)).get("budgets", {}) == {}, "it is no failure"
    assert "to make room" in (await harness.status(key))["message"]

    await admit(harness)
    await harness.settle(key)
    pods = await harness.objects(PODS)
    assert len(pods) == 2
    assert first.isdisjoint(pod["metadata"]["uid"] for pod in pods)


@pytest.mark.usefixtures("flavor")
async def test_a_job_of_another_size_is_admitted_anew(harness: JobHarness) -> None:
    key = await to_running(harness)
    before = (await harness.get(WORKLOAD, WORKLOADS))["metadata"]["uid"]
    await harness.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(key)
    after = await harness.get(WORKLOAD, WORKLOADS)
    assert after["metadata"]["uid"] != before
    assert after["spec"]["podSets"][0]["count"] == 3
    assert await harness.pod_names() == []
    assert (await harness.status(key))["reason"] == "WaitingInQueue"


@pytest.mark.usefixtures("flavor")
async def test_a_suspended_job_gives_its_place_up(harness: JobHarness) -> None:
    key = await to_running(harness)
    await harness.cluster.patch(PADDLE_JOBS, key, {"spec": {"suspend": True}})
    await harness.settle(key)
    assert (await harness.pod_names(), await harness.names(WORKLOADS)) == ([], [])
    await harness.cluster.patch(PADDLE_JOBS, key, {"spec": {"suspend": False}})
    await harness.settle(key)
    assert await harness.names(WORKLOADS) == [WORKLOAD.name]


async def test_a_deactivated_job_says_how_to_go_on(harness: JobHarness) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await harness.cluster.patch(WORKLOADS, WORKLOAD, {"spec": {"active": False}})
    await decide(harness, condition("Evicted", True, "Deactivated", "The workload is deactivated"))
    await harness.settle(key)
    assert "set its spec.active to true" in (await harness.status(key))["message"]


async def test_where_kueue_is_not_installed_its_label_has_no_effect(harness: JobHarness) -> None:
    harness.fakes.cluster.uninstall(WORKLOADS)
    await harness.catch_up()
    key = await harness.create(queued())
    await harness.settle(key)
    assert len(await harness.pod_names()) == 2


async def test_anothers_workload_of_the_name_is_left_alone(harness: JobHarness) -> None:
    metadata = {"name": WORKLOAD.name, "namespace": "default"}
    await harness.cluster.create(WORKLOADS, {"metadata": metadata, "spec": {"queueName": "theirs"}})
    key = await harness.create(queued())
    await harness.settle(key)
    assert (await harness.condition(key, "Blocked"))["reason"] == "OwnedByAnother"
    assert (await harness.get(WORKLOAD, WORKLOADS))["spec"]["queueName"] == "theirs"


@pytest.mark.usefixtures("flavor")
async def test_quota_is_given_back_while_the_job_waits_for_something_else(harness: JobHarness) -> None:
    data = Key("default", "set")
    await make_sample_set(harness.cluster, data, partitions=2)
    await harness.set_status(data, {"phase": "Ready"}, SAMPLE_SETS)
    key = await to_running(harness, sampleSetRef={"name": "set", "mountPath": "/data"})
    await harness.set_status(data, {"phase": "PartialReady"}, SAMPLE_SETS)
    await evict(harness)
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "SampleSetNotReady"
    assert (await harness.pod_names(), await holds_quota(harness)) == ([], False)
    assert await harness.names(WORKLOADS) == [WORKLOAD.name], "it keeps its place"


@pytest.mark.usefixtures("flavor")
async def test_a_running_job_that_leaves_its_queue_gives_its_quota_back_and_runs_without(
    harness: JobHarness,
) -> None:
    key = await to_running(harness)
    first = {pod["metadata"]["uid"] for pod in await harness.objects(PODS)}
    await harness.cluster.patch(PADDLE_JOBS, key, LEAVE_THE_QUEUE)
    await harness.settle(key)
    pods = await harness.objects(PODS)
    assert await harness.names(WORKLOADS) == []
    assert len(pods) == 2
    assert first.isdisjoint(pod["metadata"]["uid"] for pod in pods), "those ran on quota"
    assert await harness.restarts(key) == (1, {"NotAdmitted": 1})


async def test_a_waiting_job_that_leaves_its_queue_takes_no_quota(harness: JobHarness) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await harness.cluster.patch(PADDLE_JOBS, key, LEAVE_THE_QUEUE)
    await harness.settle(key)
    assert (await harness.names(WORKLOADS), len(await harness.pod_names())) == ([], 2)


@pytest.mark.usefixtures("flavor")
async def test_a_job_whose_spec_is_wrong_obeys_an_eviction_too(harness: JobHarness) -> None:
    key = await to_running(harness)
    await harness.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": -3}}})
    await harness.settle(key)
    assert len(await harness.pod_names()) == 2
    await evict(harness)
    await harness.settle(key)
    assert (await harness.pod_names(), await holds_quota(harness)) == ([], False)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Pending", "InvalidSpec")
    assert await harness.restarts(key) == (1, {"EvictedByQueue": 1})


@pytest.mark.usefixtures("flavor")
async def test_a_job_that_ends_keeps_its_quota_until_pods_of_the_former_epoch_are_gone(
    harness: JobHarness,
) -> None:
    key = await to_running(harness, activeDeadlineSeconds=100)
    await hold_pods(harness, "test/ends-slowly")
    again = {"metadata": {"annotations": {"paddlepaddle.org/restart": "1"}}}
    await harness.cluster.patch(PADDLE_JOBS, key, again)
    await harness.settle(key)
    await harness.clock.advance(200)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Failed"
    assert (len(await harness.pod_names()), await holds_quota(harness)) == (2, True)
    await hold_pods(harness)
    await harness.settle(key)
    assert (await harness.pod_names(), await harness.names(WORKLOADS)) == ([], [])


@pytest.mark.usefixtures("flavor")
async def test_a_deleted_job_keeps_its_quota_until_its_pods_are_gone(harness: JobHarness) -> None:
    key = await to_running(harness)
    await hold_pods(harness, "test/ends-slowly")
    await harness.cluster.delete(PADDLE_JOBS, key)
    await harness.settle(key)
    assert (await harness.names(PADDLE_JOBS), await holds_quota(harness)) == (["demo"], True)
    assert all("deletionTimestamp" in pod["metadata"] for pod in await harness.objects(PODS))
    await hold_pods(harness)
    await harness.settle(key)
    assert await harness.names(PADDLE_JOBS) == []


async def test_the_workload_of_a_deleted_job_of_the_same_name_is_waited_for_quietly(
    harness: JobHarness,
) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    owner = (await harness.get(WORKLOAD, WORKLOADS))["metadata"]["ownerReferences"][0]
    former = {"metadata": {"ownerReferences": [{**owner, "uid": "former"}]}}
    await harness.cluster.patch(WORKLOADS, WORKLOAD, former)
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "FormerJobEnding"
    assert await warnings(harness) == []
    await harness.cluster.delete(WORKLOADS, WORKLOAD)
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "WaitingInQueue"
    assert await harness.names(WORKLOADS) == [WORKLOAD.name]


@pytest.mark.usefixtures("flavor")
async def test_a_workload_that_has_changed_meanwhile_is_given_back_later_and_quietly(
    harness: JobHarness,
) -> None:
    key = await to_running(harness)
    await evict(harness)
    refused = list[str]()

    def refuse_once(verb: str, resource: object, _: object) -> None:
        if verb.startswith("patch") and resource == WORKLOADS and not refused:
            refused.append(verb)
            raise Conflict("the object has been modified")

    with harness.intercepted(refuse_once):
        await harness.settle(key)
    assert refused
    assert await warnings(harness) == []
    conditions = parse_conditions((await harness.status(key))["conditions"])
    assert find(conditions, "Blocked") is None
    await harness.clock.advance(5)
    await harness.settle(key)
    assert not await holds_quota(harness)


@pytest.mark.usefixtures("flavor")
async def test_a_change_of_what_was_admitted_is_no_eviction(harness: JobHarness) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await admit(harness)
    await harness.settle(key)
    await harness.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"NotAdmitted": 1})
    last = (await harness.status(key))["lastRestart"]
    assert (
        last["message"] == "the job now asks for other pods or another queue than Kueue has admitted it with"
    )


async def test_a_queue_that_does_not_exist_is_what_the_job_is_stuck_on(harness: JobHarness) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await decide(harness, condition("QuotaReserved", False, "Inadmissible", "LocalQueue gpus doesn't exist"))
    await harness.settle(key)
    status = await harness.status(key)
    message = "pods are created when Kueue has admitted the job in queue gpus: LocalQueue gpus doesn't exist"
    assert (status["reason"], status["message"]) == ("QueueNotUsable", message)
    assert status["stuckOn"] == ["QueueNotUsable"]
    assert await warnings(harness) == [f"QueueNotUsable: {message}"]
    await harness.cluster.patch(
        PADDLE_JOBS, key, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}}
    )
    await harness.settle(key)
    assert (await harness.get(WORKLOAD, WORKLOADS))["spec"]["queueName"] == "gpu"
    assert (await harness.status(key))["reason"] == "WaitingInQueue"


@pytest.mark.parametrize("words", ["ClusterQueue all is inactive", "LocalQueue gpus is stopped"])
async def test_a_job_in_a_queue_that_is_held_waits_without_being_stuck(
    harness: JobHarness, words: str
) -> None:
    key = await harness.create(queued())
    await harness.settle(key)
    await decide(harness, condition("QuotaReserved", False, "Inadmissible", words))
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["reason"], words in status["message"]) == ("WaitingInQueue", True)
    assert (status.get("stuckOn"), await warnings(harness)) == (None, [])


@pytest.mark.usefixtures("flavor")
async def test_a_set_that_cannot_be_read_is_not_said_to_be_missing(harness: JobHarness) -> None:
    data = Key("default", "set")
    await make_sample_set(harness.cluster, data, partitions=2)
    await harness.set_status(data, {"phase": "Ready"}, SAMPLE_SETS)
    key = await harness.create(queued(sampleSetRef={"name": "set", "mountPath": "/data"}))
    await harness.settle(key)
    await admit(harness)

    def refuse(verb: str, resource: object, _: object) -> None:
        if verb == "get" and resource in (SAMPLE_SETS, RESOURCE_FLAVORS):
            raise Retry("Unreachable", "no answer")

    with harness.intercepted(refuse):
        await harness.settle(key)
    assert (await harness.status(key))["reason"] == "SampleSetUnreadable"


def test_a_workload_of_another_version_of_ours_is_not_taken_for_outdated() -> None:
    job = parse_job(queued())
    other = Workload("u", "1", "0-0123456789abcdef")
    assert fits(job, other)
    assert not fits(job, Workload("u", "1", workload_digest(parse_job(queued(worker=make_role(3))))))


async def config_reads(harness: JobHarness, seconds: float) -> int:
    """The number of GETs of ConfigMaps in this time."""
    with harness.recorded_calls() as calls:
        await harness.advance(seconds)
    return sum((verb, plural) == ("get", "configmaps") for verb, plural, _ in calls)


@pytest.mark.usefixtures("flavor")
async def test_a_job_that_waits_in_its_queue_reads_no_config_map(harness: JobHarness) -> None:
    """The name is looked at when pods are about to be created."""
    key = await harness.create(queued())
    await harness.settle(key)
    assert await config_reads(harness, 300) == 0
    with harness.recorded_calls() as calls:
        await admit(harness)
        await harness.settle(key)
    assert len(await harness.pod_names()) == 2
    assert [plural for verb, plural, _ in calls if verb == "get"].count("configmaps") == 1
