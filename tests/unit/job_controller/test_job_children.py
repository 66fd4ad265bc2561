"""A job's pods, Services and ConfigMap: scaled, replaced, released, and never another's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.job_controller.conftest import GATED, JobHarness, OpenHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, SERVICES, Object, Resource
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

WORKERS = ["demo-worker-0", "demo-worker-1"]


def collective(**spec: Any) -> Object:
    return make_paddle_job(**({"worker": make_role(2)} | spec))


@pytest.mark.parametrize(("resource", "name"), [(PODS, "demo-worker-1"), (CONFIG_MAPS, "demo")])
async def test_a_foreign_child_is_refused_and_left_alone(
    harness: JobHarness, resource: Resource, name: str
) -> None:
    foreign = {
        "metadata": {"namespace": "default", "name": name, "labels": {"paddle-res-name": name}},
        "spec": {"containers": []},
    }
    before = await harness.cluster.create(resource, foreign)
    key = await harness.create(collective())
    await harness.settle(key)
    await harness.run_pods()
    result = await harness.settle(key)
    condition = await harness.condition(key, "Blocked")
    assert (condition["status"], condition["reason"]) == ("True", "OwnedByAnother")
    assert f"{resource.kind} default/{name}" in condition["message"]
    assert result.requeue_after is not None
    assert uid_of(await harness.get(Key("default", name), resource)) == uid_of(before)
    assert [e for e in await harness.kubernetes_events() if e[:2] == ("Warning", "OwnedByAnother")]

    await harness.delete(Key("default", name), resource)
    await harness.clock.advance(60)
    await harness.settle(key)
    assert (await harness.condition(key, "Blocked"))["status"] == "False"
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"


async def test_a_pod_the_api_server_refuses_is_shown_and_tried_again(harness: JobHarness) -> None:
    with harness.failing(Permanent("Forbidden", "exceeded quota: gpus"), "create", PODS):
        key = await harness.create(collective())
        result = await harness.settle(key)
    condition = await harness.condition(key, "Blocked")
    assert condition["reason"] == "FailedCreate"
    assert condition["message"] == "Pod default/demo-worker-0: Forbidden: exceeded quota: gpus"
    assert result.requeue_after == 1.0
    assert "JobStarting" not in harness.facts()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("paddlepaddle.org/paddlejob=demo", ["demo-ps-0", *WORKERS]),
        ("paddlepaddle.org/paddlejob=demo,paddle-res-type=worker", WORKERS),
        ("paddlepaddle.org/paddlejob=other", ["other-worker-0"]),
    ],
)
async def test_a_jobs_pods_are_found_by_its_name(
    harness: JobHarness, selector: str, found: list[str]
) -> None:
    for job in (collective(ps=make_role(1)), make_paddle_job("other", worker=make_role(1))):
        await harness.settle(await harness.create(job))
    pods = await harness.cluster.list(PODS, label_selector=selector)
    assert sorted(pod["metadata"]["name"] for pod in pods) == found


async def test_scaling_up_and_down_keeps_the_config_in_step(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(intranet="Service", worker=make_role(2)))
    await harness.patch(key, {"spec": {"worker": {"replicas": 4}}})
    await harness.settle(key)
    assert len(await harness.pod_names()) == len(await harness.service_names()) == 4
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "4"
    assert await harness.restarts(key) == (1, {"Scaled": 1})

    await harness.run_pods()
    await harness.settle(key)
    await harness.patch(key, {"spec": {"worker": {"replicas": 1}}})
    await harness.settle(key)
    assert await harness.pod_names() == await harness.service_names() == ["demo-worker-0"]
    config = await harness.config(key)
    assert (config["PADDLE_TRAINERS_NUM"], config["PADDLE_TRAINERS"]) == ("1", "demo-worker-0")
    assert (await harness.status(key))["observedGeneration"] == 3
    assert await harness.restarts(key) == (2, {"Scaled": 2})
    assert {event.type for event in await harness.kubernetes_events()} == {"Normal"}


async def test_a_job_that_has_not_begun_is_scaled_pod_by_pod(harness: JobHarness) -> None:
    key = await harness.begin(make_paddle_job(intranet="Service", worker=make_role(2)))
    await harness.patch(key, {"spec": {"worker": {"replicas": 4}}})
    await harness.settle(key)
    assert len(await harness.pod_names()) == 4
    assert ("Normal", "Scaled", "created 2 pods") in await harness.kubernetes_events()
    await harness.patch(key, {"spec": {"worker": {"replicas": 1}}})
    await harness.settle(key)
    assert await harness.pod_names() == ["demo-worker-0"]
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "1"
    assert ("Normal", "Scaled", "deleted 3 pods") in await harness.kubernetes_events()
    assert await harness.restarts(key) == (0, {})


async def test_a_job_scaled_to_nothing_keeps_no_pod_and_goes_on_when_it_is_scaled_up(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job(intranet="Service", worker=make_role(2)))
    await harness.patch(key, {"spec": {"worker": {"replicas": 0}}})
    await harness.settle(key)
    assert await harness.pod_names() == await harness.service_names() == []
    status = await harness.status(key)
    assert (status["phase"], status["ready"], status["reason"]) == ("Pending", "0/0", "ScaledToZero")
    assert (await harness.condition(key, "Running"))["status"] == "False"
    assert {event.type for event in await harness.kubernetes_events()} == {"Normal"}
    with harness.counted_writes() as writes:
        await harness.reconcile(key)
    assert not writes

    await harness.patch(key, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["ready"]) == ("Running", "3/3")
    first = ["JobAccepted", "JobStarting", "JobRunning"]
    assert harness.facts() == [*first, "JobRestarted", "JobGated", "JobStarting", "JobRunning"]


async def test_a_job_scaled_to_nothing_does_not_end_by_the_pods_it_gives_up(harness: JobHarness) -> None:
    key = await harness.to_running(collective(ps=make_role(1)))
    await harness.patch(key, {"spec": {"worker": {"replicas": 0}, "ps": {"replicas": 0}}})
    await harness.end_pods("demo-worker-0", phase="Failed", exit_code=1)
    await harness.end_pods("demo-worker-1")
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Pending"
    assert await harness.pod_names() == []


async def test_a_pod_that_still_goes_when_its_place_is_wanted_again_is_not_lost(harness: JobHarness) -> None:
    """Before any of them has begun, so that no new epoch sets them apart."""
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.create(collective(worker=worker, backoffLimit=0))
    await harness.settle(key)
    for replicas in (0, 1):
        await harness.patch(key, {"spec": {"worker": {"replicas": replicas}}})
        await harness.settle(key)
    refused = {"phase": "Failed", "reason": "Evicted"}
    await harness.set_status(Key("default", "demo-worker-0"), refused, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {})
    assert (await harness.status(key))["phase"] == "Pending"


async def test_a_spec_without_roles_deletes_nothing(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, {"spec": {"worker": None}})
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "InvalidSpec"
    assert await harness.pod_names() == WORKERS


async def test_new_pods_never_start_with_the_old_lists(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(intranet="Service", worker=make_role(2)))
    with harness.recorded_calls() as calls:
        await harness.patch(key, {"spec": {"worker": {"replicas": 3}}})
        await harness.settle(key)
    of = ("configmaps", "services", "pods")
    writes = [(verb, plural) for verb, plural, _ in calls if plural in of and verb in ("create", "delete")]
    assert [write for write in dict.fromkeys(writes) if write[1] != "services"] == [
        ("delete", "configmaps"),
        ("delete", "pods"),
        ("create", "configmaps"),
        ("create", "pods"),
    ]


async def test_config_keys_that_no_longer_hold_are_removed(harness: JobHarness) -> None:
    role = make_role(1)
    key = await harness.to_running(
        make_paddle_job(intranet="Service", withGloo=1, ps=role, worker=make_role(2))
    )
    await harness.patch(key, {"spec": {"withGloo": 0}})
    await harness.settle(key)
    assert not [k for k in await harness.config(key) if "GLOO" in k]


async def test_a_running_jobs_pod_deleted_by_hand_restarts_it(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    assert await harness.restarts(key) == (1, {"PodDeleted": 1})
    assert harness.facts()[-3:] == ["JobRestarted", "JobStarting", "JobRunning"]


POD_BY_POD: Object = {"restartScope": "Pod"}


async def lose_workers(harness: JobHarness, key: Key) -> None:
    """Worker 0 finishes; then the pods of both are gone."""
    await harness.end_pods("demo-worker-0")
    await harness.settle(key)
    for name in WORKERS:
        await harness.delete(Key("default", name), PODS)
    await harness.settle(key)


@pytest.mark.parametrize("network", ["PodIP", "Host"])
async def test_a_lost_worker_comes_back_though_the_address_of_a_finished_one_is_gone(
    open_harness: OpenHarness, network: str
) -> None:
    async with open_harness(**GATED) as harness:
        spec: Object = {"ps": make_role(1), "worker": make_role(2), "failurePolicy": POD_BY_POD}
        job = make_paddle_job(intranet=network, **spec)
        key = await harness.to_running(job)
        await lose_workers(harness, key)
        assert await harness.pod_names() == ["demo-ps-0", "demo-worker-1"]
        await harness.run_pods()
        await harness.settle(key)
        config = await harness.config(key)
        assert (config["PADDLE_TRAINERS_NUM"], config["PADDLE_TRAINERS"]) == ("2", "demo-worker-0,10.0.0.2")


async def test_a_deleted_pod_that_does_not_go_is_named_with_the_remedy(harness: JobHarness) -> None:
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.to_running(collective(worker=worker))
    await harness.patch(Key("default", "demo-worker-0"), {"metadata": {"finalizers": None}}, PODS)
    pod = Key("default", "demo-worker-1")
    await harness.delete(pod, PODS)
    await harness.catch_up()
    await harness.advance(0.2)
    assert (await harness.status(key))["reason"] == "Restarting", "it has its grace period"
    # Nothing more happens, so only the clock can wake the job.
    await harness.advance(31)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Restarting", "PodStuckTerminating")
    assert status["message"] == (
        "pod demo-worker-1 was deleted and should be gone since 2026-01-01T00:00:00Z, but has the finalizers"
        " example.com/held, which their owners have to remove"
    )
    warnings = [event for event in await harness.kubernetes_events() if event.type == "Warning"]
    lost = "all pods are replaced: pod demo-worker-1 was deleted"
    assert {(event.reason, event.message) for event in warnings} == {
        ("Restarted", lost),
        (status["reason"], status["message"]),
    }
    assert harness.facts()[-1] == "JobStuck"
    # The fact is confirmed.
    await harness.advance(CONFIRM_GRACE_SECONDS)
    with harness.counted_writes() as writes:
        await harness.advance(600)
    assert not writes
    await harness.patch(pod, {"metadata": {"finalizers": None}}, PODS)
    await harness.catch_up()
    for _ in range(2):
        await harness.advance(0.2)
    assert (await harness.status(key))["reason"] == "PodsPending"
    assert await harness.pod_names() == WORKERS


async def test_two_jobs_on_the_hosts_network_get_different_blocks(harness: JobHarness) -> None:
    ports = []
    for name in ("one", "two"):
        key = await harness.create(make_paddle_job(name, intranet="Host", worker=make_role(1)))
        await harness.settle(key)
        ports.append((await harness.get(key))["metadata"]["annotations"]["host-port"])
    assert len(set(ports)) == 2
    assert await harness.service_names() == []


@pytest.mark.parametrize(
    "idle",
    [
        {"intranet": "Host", "suspend": True},
        {"intranet": "Host", "managedBy": "example.com/other"},
        {"intranet": "Host", "worker": make_role(0)},
        {"intranet": "Host", "activeDeadlineSeconds": -1},
        {"intranet": "PodIP"},
        {"intranet": "Host"},
    ],
)
async def test_a_claim_on_a_job_that_creates_no_pods_takes_no_ports(
    open_harness: OpenHarness, idle: dict[str, Any]
) -> None:
    """Users can write the annotation. The last of these jobs has finished."""
    async with open_harness(port_range_start=35000, port_range_end=35060) as harness:
        for number, port in enumerate((35020, 35040)):
            job = make_paddle_job(f"idle-{number}", **{"worker": make_role(1)} | idle)
            job["metadata"]["annotations"] = {"host-port": str(port)}
            other = await harness.create(job)
            if idle == {"intranet": "Host"}:
                ended = {"phase": "Completed", "completionTime": "2026-01-01T12:00:00Z"}
                await harness.set_status(other, ended)
        key = await harness.create(make_paddle_job("real", intranet="Host", worker=make_role(1)))
        await harness.settle(key)
        assert await ports_of(harness, [key]) in ([35020], [35040])


async def test_jobs_that_wait_for_data_hold_no_ports(open_harness: OpenHarness) -> None:
    async with open_harness(port_range_start=35000, port_range_end=35060) as harness:
        for number in range(2):
            role, ref = make_role(1), {"name": "none", "mountPath": "/data"}
            waiting = make_paddle_job(f"w-{number}", intranet="Host", worker=role, sampleSetRef=ref)
            key = await harness.create(waiting)
            await harness.settle(key)
            assert (await harness.status(key))["reason"] == "SampleSetNotFound"
        key = await harness.create(make_paddle_job("real", intranet="Host", worker=make_role(1)))
        await harness.settle(key)
        assert await ports_of(harness, [key]) in ([35020], [35040])


async def test_a_job_that_goes_on_leaves_the_ports_that_another_has_taken_meanwhile(
    open_harness: OpenHarness,
) -> None:
    async with open_harness(port_range_start=35000, port_range_end=35060) as harness:
        keys = []
        for name in ("one", "two", "three"):
            key = await harness.create(make_paddle_job(name, intranet="Host", worker=make_role(1)))
            await harness.settle(key)
            if name == "one":
                await harness.patch(key, {"spec": {"suspend": True}})
                await harness.settle(key)
            keys.append(key)
        await harness.patch(keys[1], {"spec": {"suspend": True}})
        await harness.settle(keys[1])
        await harness.patch(keys[0], {"spec": {"suspend": False}})
        await settle_together(harness, keys)
        ports = await ports_of(harness, [keys[0], keys[2]])
        assert len(set(ports)) == 2


async def settle_together(harness: JobHarness, keys: list[Key]) -> None:
    """Passes that run at the same time, until nothing is left to do."""
    await harness.catch_up()
    await asyncio.gather(*(harness.reconcile_stale(key) for key in keys))
    for key in keys:
        await harness.settle(key)


async def ports_of(harness: JobHarness, keys: list[Key]) -> list[int]:
    """First port of each job, which is that of its pod too."""
    ports = []
    for key in keys:
        claimed = int((await harness.get(key))["metadata"]["annotations"]["host-port"])
        await harness.get(Key("default", f"{key.name}-worker-0"), PODS)
        ports.append(claimed)
    return ports


async def test_jobs_whose_passes_run_at_the_same_time_get_different_blocks(open_harness: OpenHarness) -> None:
    async with open_harness(port_range_start=35000, port_range_end=37000) as harness:
        jobs = [make_paddle_job(f"job-{i}", intranet="Host", worker=make_role(1)) for i in range(40)]
        keys = [await harness.create(job) for job in jobs]
        await settle_together(harness, keys)
        ports = await ports_of(harness, keys)
        assert len(set(ports)) == 40
        assert all(port % 20 == 0 for port in ports)


async def test_replicas_that_claim_at_the_same_time_get_different_blocks(open_harness: OpenHarness) -> None:
    small = {"port_range_start": 35000, "port_range_end": 35200}
    async with open_harness(**small) as first, open_harness(**small) as second:
        jobs = [make_paddle_job(f"job-{i}", intranet="Host", worker=make_role(1)) for i in range(8)]
        keys = [await first.create(job) for job in jobs]
        await first.catch_up()
        replicas = [(first, key) for key in keys[:4]] + [(second, key) for key in keys[4:]]
        await asyncio.gather(*(replica.reconcile_stale(key) for replica, key in replicas))
        for replica, key in replicas * 3:
            await replica.settle(key)
        assert len(set(await ports_of(first, keys))) == 8


async def test_no_pod_of_a_host_job_is_created_before_its_claim_was_reported(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(intranet="Host", worker=make_role(1)))
    await harness.catch_up()
    await harness.reconcile_stale(key)
    await harness.reconcile_stale(key)
    assert await harness.pod_names() == []
    await harness.drain_queue()
    assert await harness.pod_names() == ["demo-worker-0"]


async def test_more_pods_of_a_job_on_one_node_than_its_block_has_ports_wait_and_say_so(
    harness: JobHarness,
) -> None:
    key = await harness.create(make_paddle_job(intranet="Host", worker=make_role(19)))
    await harness.settle(key)
    for name in await harness.pod_names():
        await harness.run_pods(name)
    await harness.settle(key)
    condition = await harness.condition(key, "Blocked")
    assert (condition["status"], condition["reason"]) == ("True", "HostPortsExhausted")
    assert "19 pods of the job are on node 10.0.0.1" in condition["message"]
    assert "demo" not in await harness.names(CONFIG_MAPS)

    await harness.patch(key, {"spec": {"worker": {"replicas": 18}}})
    await harness.settle(key)
    assert (await harness.condition(key, "Blocked"))["status"] == "False"
    assert len(set((await harness.config(key))["PADDLE_TRAINER_ENDPOINTS"].split(","))) == 18


async def old_service(harness: JobHarness, key: Key, name: str) -> None:
    """Services like those of the original operator, for every pod in every network, without labels."""
    job = await harness.get(key)
    owner = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "name": key.name,
        "uid": uid_of(job),
        "controller": True,
    }
    metadata = {"namespace": key.namespace, "name": name, "ownerReferences": [owner]}
    spec = {"clusterIP": "None", "selector": {"paddle-res-name": name}}
    await harness.cluster.create(SERVICES, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize("intranet", ["Service", "PodIP"])
async def test_services_of_the_original_operator_are_kept_while_pods_may_need_them_and_cleaned_up(
    harness: JobHarness, intranet: str
) -> None:
    key = await harness.create(collective(intranet=intranet, cleanPodPolicy="Always"))
    for name in WORKERS:
        await old_service(harness, key, name)
    await harness.settle(key)
    await harness.restart()
    await harness.run_pods()
    with harness.recorded_calls() as calls:
        await harness.settle(key)
    assert not [call for call in calls if call[1] == "services"]
    assert await harness.service_names() == WORKERS

    await harness.patch(key, {"spec": {"worker": {"replicas": 1}}})
    await harness.settle(key)
    assert await harness.service_names() == WORKERS[:1]
    await harness.end_pods()
    await harness.settle(key)
    assert await harness.service_names() == []
    assert not [e for e in await harness.kubernetes_events() if e[0] == "Warning"]


async def test_a_foreign_config_map_is_noticed_before_there_are_pods_that_could_never_start(
    harness: JobHarness,
) -> None:
    await harness.cluster.create(CONFIG_MAPS, {"metadata": {"name": "demo", "namespace": "default"}})
    key = await harness.create(collective())
    await harness.settle(key)
    assert await harness.pod_names() == []
    status = await harness.status(key)
    assert (status["reason"], status["message"]) == (
        "OwnedByAnother",
        "ConfigMap default/demo: exists and does not belong to this job; delete it or rename the job",
    )
    await harness.delete(key, CONFIG_MAPS)
    await harness.advance(60)
    assert await harness.pod_names() == WORKERS
    assert (await harness.condition(key, "Blocked"))["status"] == "False"


@pytest.mark.parametrize("network", ["PodIP", "Service"])
async def test_a_config_map_that_is_deleted_by_hand_is_made_again_and_restarts_nothing(
    harness: JobHarness, network: str
) -> None:
    key = await harness.to_running(collective(intranet=network, backoffLimit=1))
    before, pods = await harness.config(key), await harness.objects(PODS)
    await harness.delete(key, CONFIG_MAPS)
    await harness.settle(key)
    assert await harness.config(key) == before
    assert await harness.restarts(key) == (0, {})
    assert list(map(uid_of, await harness.objects(PODS))) == list(map(uid_of, pods))
    # A container that is started now finds what the others have read, so a lost pod restarts them as before.
    await harness.delete(key, CONFIG_MAPS)
    await harness.delete(Key("default", WORKERS[0]), PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodDeleted": 1})


async def test_a_job_that_waits_for_host_ports_reads_no_config_map(open_harness: OpenHarness) -> None:
    async with open_harness(port_range_start=35000, port_range_end=35059) as harness:
        for name in ("one", "two"):
            key = await harness.create(make_paddle_job(name, intranet="Host", worker=make_role(1)))
            await harness.settle(key)
        assert (await harness.status(key))["reason"] == "HostPortsExhausted"
        with harness.recorded_calls() as calls:
            await harness.advance(300)
        assert ("get", "configmaps") not in [(verb, plural) for verb, plural, _ in calls]
