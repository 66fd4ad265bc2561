"""job-controller on a real API server and a real NATS; the test plays kubelet and data sets."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from job_controller.app import build
from job_controller.config import Settings
from job_controller.timing import POD_CHANGE_BATCH_INTERVAL_SECONDS
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobSucceeded
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.kube import connect
from paddlewheel.kube.ports import CONFIG_MAPS, EVENTS, PADDLE_JOBS, PODS, SERVICES, Object
from paddlewheel.operator.serve import Host
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)
from paddlewheel.testkit.service_harness import running_app
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

LIFE = ("JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")


async def test_a_job_waits_for_its_data_learns_from_the_bus_and_runs_to_its_end(
    jobs: JobServiceHarness,
) -> None:
    digits = jobs.key("digits")
    sample_set = await make_sample_set(jobs.cluster, digits, partitions=2)
    # The timer would find out without the bus.
    await jobs.start(GATE_RECHECK="3600")
    ref = {"name": "digits", "mountPath": "/data"}
    key = await jobs.create(make_paddle_job("train", sampleSetRef=ref, worker=make_role(2)))
    await jobs.wait_facts(key, "JobAccepted", "JobGated")
    assert await jobs.pods(key) == []

    await set_sample_set_phase(jobs.cluster, digits, "Ready")
    uid = sample_set["metadata"]["uid"]
    ready = SampleSetReady(sample_set=ObjectRef(namespace=digits.namespace, name="digits", uid=uid))
    now = datetime.now(UTC)
    await jobs.bus.publish(
        make_event(ready, id=f"{uid}/1", source="test", namespace=digits.namespace, uid=uid, time=now)
    )
    names = await jobs.wait_pods(key, 2)
    assert names == ["train-worker-0", "train-worker-1"]

    await jobs.set_pods(key, "Running")
    status = await jobs.wait_phase(key, "Running")
    assert status["worker"] | {"refs": []} == {
        "pending": 0,
        "starting": 0,
        "running": 2,
        "failed": 0,
        "succeeded": 0,
        "refs": [],
    }
    config = await jobs.cluster.get(CONFIG_MAPS, key)
    assert config["data"]["PADDLE_TRAINER_ENDPOINTS"] == "10.1.0.1:36000,10.1.0.2:36000"

    await jobs.set_pods(key, "Succeeded", message='{"accuracy": 0.97, "epochs": 2}')
    status = await jobs.wait_phase(key, "Completed")
    assert status["results"] == {"accuracy": 0.97, "epochs": 2}
    assert {c["type"] for c in status["conditions"]} == {"Accepted", "Admitted", "Running", "Complete"}
    await jobs.wait_pods(key, 0, within=90)
    await jobs.wait_facts(key, "JobAccepted", "JobGated", *LIFE[1:])
    succeeded = jobs.events[-1].data
    assert isinstance(succeeded, JobSucceeded)
    assert succeeded.results == {"accuracy": 0.97, "epochs": 2.0}
    noted = await jobs.cluster.list(EVENTS, jobs.namespace)
    ours = [e for e in noted if e.get("source", {}).get("component") == "paddlejob-controller"]
    assert {e["involvedObject"]["kind"] for e in ours} == {"PaddleJob"}
    assert {e["type"] for e in ours} == {"Normal"}


async def test_service_network_scaling_failure_and_deletion(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(make_paddle_job("named", intranet="Service", worker=make_role(2)))
    await jobs.wait_pods(key, 2)
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await jobs.wait_pods(key, 3)

    async def are_named() -> bool:
        config = await jobs.cluster.get(CONFIG_MAPS, key)
        return bool(config["data"]["PADDLE_TRAINERS"] == "named-worker-0,named-worker-1,named-worker-2")

    await eventually(are_named, what="the ConfigMap names all three")
    await jobs.wait_objects(SERVICES, 3)

    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    await jobs.set_pods(key, "Failed", exit_code=9, message="first line\nno space left on device\n")
    status = await jobs.wait_phase(key, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    # They fail together: the one that was seen first is named, and what still ran then is removed.
    message = r"pod (named-worker-[0-2]) failed \(Error, exit code 9\): no space left on device"
    told = re.fullmatch(message, failed["message"])
    assert told is not None
    assert told[1] in await jobs.pods(key)

    await jobs.cluster.delete(PADDLE_JOBS, key)
    await jobs.wait_gone(key, within=90)
    await jobs.wait_pods(key, 0, within=90)
    await jobs.wait_facts(key, "JobAccepted", "JobStarting", "JobRunning", "JobFailed", "JobDeleted")


@pytest.mark.long
async def test_replicas_that_start_many_host_jobs_together_give_each_a_block_of_its_own(
    jobs: JobServiceHarness,
) -> None:
    def host_job(index: int) -> Object:
        return make_paddle_job(f"host-{index}", intranet="Host", worker=make_role(1))

    keys = await asyncio.gather(*(jobs.create(host_job(i)) for i in range(20)))
    # 24 blocks for 20 jobs: most of them are wanted by several.
    ports = {"PORT_RANGE_START": "35000", "PORT_RANGE_END": "35500"}
    for replica in ("one", "two"):
        await jobs.start(replica, REPLICAS_SHARE="true", **ports)
    for key in keys:
        await jobs.wait_pods(key, 1, within=90)
    claimed = [(await jobs.cluster.get(PADDLE_JOBS, k))["metadata"]["annotations"]["host-port"] for k in keys]
    assert len(set(claimed)) == len(keys)


async def test_a_foreign_pod_is_refused_and_left_alone(jobs: JobServiceHarness) -> None:
    foreign = {
        "metadata": {"namespace": jobs.namespace, "name": "mine-worker-0"},
        "spec": {"containers": [{"name": "main", "image": "example/other:1"}]},
    }
    before = await jobs.cluster.create(PODS, foreign)
    await jobs.start()
    key = await jobs.create(make_paddle_job("mine", worker=make_role(1)))
    await jobs.wait_condition(key, "Blocked", "OwnedByAnother", within=90)
    pod = await jobs.cluster.get(PODS, jobs.key("mine-worker-0"))
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert "ownerReferences" not in pod["metadata"]


@pytest.mark.long
async def test_a_foreign_service_is_refused(jobs: JobServiceHarness) -> None:
    await jobs.start()
    key = await jobs.create(make_paddle_job("named", intranet="Service", worker=make_role(1)))
    await jobs.wait_pods(key, 1)
    await jobs.take_away(key, SERVICES, jobs.key("named-worker-0"))


@pytest.mark.long
async def test_a_job_whose_pods_have_names_of_63_characters_lives_and_ends(jobs: JobServiceHarness) -> None:
    """They are label values, host names and names of Services too."""
    await jobs.start()
    name = "j" * (63 - len("-worker-1"))
    spec = {"intranet": "Service", "cleanPodPolicy": "Always"}
    key = await jobs.create(make_paddle_job(name, ps=make_role(1), worker=make_role(2), withGloo=1, **spec))
    assert max(map(len, await jobs.wait_pods(key, 3))) == 63
    await jobs.wait_objects(SERVICES, 3)
    pods = await jobs.objects(PODS)
    assert {pod["spec"]["hostname"] for pod in pods} == {pod["metadata"]["name"] for pod in pods}
    found = await jobs.cluster.list(PODS, jobs.namespace, label_selector=f"paddlepaddle.org/paddlejob={name}")
    assert len(found) == 3
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    await jobs.to_end(key)
    await jobs.wait_pods(key, 0)
    await jobs.wait_facts(key, *LIFE)
    config = await jobs.cluster.get(CONFIG_MAPS, key)
    assert config["data"]["PADDLE_TRAINERS"] == f"{name}-worker-0,{name}-worker-1"


@pytest.mark.long
async def test_a_job_deleted_and_applied_again_waits_for_the_pods_of_its_former_self(
    jobs: JobServiceHarness,
) -> None:
    """A pod on a node takes its grace period, which here only the test can end."""
    await jobs.start()
    job = make_paddle_job("again", intranet="Service", worker=make_role(3, nodeName="nowhere"))
    key = await jobs.create(job)
    await jobs.wait_pods(key, 3)
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    await jobs.cluster.delete(PADDLE_JOBS, key)
    await jobs.wait_gone(key, within=90)
    former = {pod["metadata"]["uid"] for pod in await jobs.objects(PODS)}
    assert len(former) == 3

    await jobs.create(job)
    await jobs.wait_condition(key, "Running", "FormerJobEnding", within=90)
    for name in await jobs.pods(key):
        await jobs.cluster.delete(PODS, jobs.key(name), grace_seconds=0)
    await eventually(partial(_has_only_new_pods, jobs, 3, former))
    await jobs.set_pods(key, "Running")
    status = await jobs.wait_phase(key, "Running")
    assert "Blocked" not in {condition["type"] for condition in status["conditions"]}
    noted = await jobs.cluster.list(EVENTS, jobs.namespace)
    noted_types = {e["type"] for e in noted if e["involvedObject"]["kind"] == "PaddleJob"}
    assert "Warning" not in noted_types


async def _has_only_new_pods(jobs: JobServiceHarness, count: int, former: set[str]) -> bool:
    found = {pod["metadata"]["uid"] for pod in await jobs.objects(PODS)}
    return len(found) == count and not found & former


@pytest.mark.long
async def test_a_finished_worker_whose_pod_is_collected_is_not_run_again_and_a_job_scales_to_nothing(
    jobs: JobServiceHarness,
) -> None:
    await jobs.start()
    key = await jobs.to_running("collected")
    first, second = await jobs.pods(key)
    await set_pod_status(jobs.cluster, jobs.key(first), "Succeeded", message='{"accuracy": 0.5}')
    await eventually(partial(_has_succeeded, jobs, key, [0]))
    await jobs.cluster.delete(PODS, jobs.key(first))
    await jobs.wait_pods(key, 1)
    await set_pod_status(jobs.cluster, jobs.key(second), "Succeeded")
    status = await jobs.wait_phase(key, "Completed")
    assert (status["worker"]["succeededIndexes"], status["results"]) == ([0, 1], {"accuracy": 0.5})
    assert await jobs.pods(key) == [second]

    key = await jobs.to_running("paused")
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 0}}})
    await jobs.wait_pods(key, 0)
    await jobs.wait_phase(key, "Pending")
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 1}}})
    await jobs.wait_pods(key, 1)


async def _has_succeeded(jobs: JobServiceHarness, key: Key, indexes: list[int]) -> bool:
    worker = (await jobs.status(key))["worker"]
    return bool(worker.get("succeededIndexes") == indexes)


async def test_killed_at_random_moments_it_creates_no_pod_twice_and_publishes_every_fact_once(
    jobs: JobServiceHarness,
) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}")
    size = 24
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember_pods(jobs, made))
    try:
        service = await jobs.start_process()
        job = make_paddle_job("victim", cleanPodPolicy="Never", worker=make_role(size))
        key = await jobs.create(job)
        # Within the burst of creations: the status is not written before the last of them.
        limit = chance.randrange(1, size)
        await _kill_once(service, lambda: len(made) >= limit)
        await service.start()
        await jobs.wait_pods(key, size)
        for phase in ("Running", "Succeeded"):
            changing = asyncio.create_task(jobs.set_pods(key, phase))
            await asyncio.sleep(chance.uniform(0.0, 1.5))
            await service.kill()
            await changing
            await service.start()
        await jobs.wait_phase(key, "Completed")
        await eventually(lambda: jobs.facts(key)[-1:] == ["JobSucceeded"])
        await eventually(lambda: len(made) >= size, what="all pods were seen")
    finally:
        await end(watching)
    assert sorted(made) == sorted(f"victim-worker-{i}" for i in range(size))
    assert all(len(uids) == 1 for uids in made.values())
    facts = jobs.facts(key)
    assert len(set(facts)) == len(facts)
    # A controller that was dead while all pods ran never saw them run.
    assert facts in (list(LIFE), [f for f in LIFE if f != "JobRunning"])


async def _remember_pods(jobs: JobServiceHarness, made: dict[str, set[str]]) -> None:
    async for change in jobs.cluster.watch(PODS, jobs.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["name"], set()).add(meta["uid"])


async def _kill_once(service: Service, condition: Callable[[], bool]) -> None:
    await eventually(condition, every=0.005)
    await service.kill()


async def test_with_nats_down_from_the_start_jobs_run_and_facts_arrive_when_it_is_back(
    jobs: JobServiceHarness,
) -> None:
    jobs.nats.stop()
    await jobs.start()
    key = await jobs.create(make_paddle_job("deaf", worker=make_role(2), cleanPodPolicy="Never"))
    await jobs.wait_pods(key, 2)
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")
    await jobs.to_end(key)
    assert list((await jobs.announced(key)).values()) == [False] * 4
    jobs.nats.start()
    await jobs.wait_facts(key, *LIFE)
    await eventually(partial(_is_confirmed, jobs, key))


@pytest.mark.long
async def test_writes_for_a_whole_job_stay_few(
    jobs: JobServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts the writes of the client of the service."""
    monkeypatch.setattr("paddlewheel.operator.outbox.CONFIRM_GRACE_SECONDS", 1.0)
    settings = Settings(namespace=jobs.namespace, http_port=0)
    clock = SystemClock()
    began = clock.monotonic()
    async with await connect(jobs.backends.kubeconfig) as api:
        operator = build(settings, Host(api, jobs.bus, clock))
        async with running_app(operator.run):
            key = await jobs.create(make_paddle_job("wide", cleanPodPolicy="Never", worker=make_role(20)))
            await jobs.wait_pods(key, 20)
            await jobs.set_pods(key, "Running")
            await jobs.wait_phase(key, "Running")
            await jobs.to_end(key)
            await jobs.wait_facts(key, *LIFE)
            await eventually(partial(_is_confirmed, jobs, key))
        writes = dict(api.writes)
    print(writes)
    batches = (clock.monotonic() - began) / POD_CHANGE_BATCH_INTERVAL_SECONDS
    assert writes[("create", "pods")] == 20
    assert writes[("create", "configmaps")] == writes[("patch", "paddlejobs")] == 1
    # 60 changes of pods were gathered.
    assert 3 <= writes[("patch-status", "paddlejobs")] <= min(batches + 4, 50)
    assert not {verb for verb, _ in writes} & {"delete"}


async def _is_confirmed(jobs: JobServiceHarness, key: Key) -> bool:
    return all((await jobs.announced(key)).values())


async def test_sigterm_ends_it_cleanly(jobs: JobServiceHarness) -> None:
    service = await jobs.start_process()
    key = await jobs.create(make_paddle_job("any", worker=make_role(1)))
    await jobs.wait_pods(key, 1)
    assert await service.stop() == 0
    # Also in the middle of coming up.
    await service.start()
    await eventually(lambda: service.log.read_text().count("bus connected") == 2)
    assert await service.stop() == 0


@pytest.mark.long
async def test_replicas_share_the_jobs_and_one_takes_over_from_the_other(jobs: JobServiceHarness) -> None:
    one, two = [await jobs.start(name, REPLICAS_SHARE="true") for name in ("one", "two")]
    keys = [await jobs.create(make_paddle_job(f"job-{i}", worker=make_role(1))) for i in range(8)]
    for key in keys:
        await jobs.wait_pods(key, 1)
    # Leaving in order gives its Lease up, so the other takes over at once.
    await one.stop()
    for key in keys:
        await jobs.set_pods(key, "Running")
    for key in keys:
        await jobs.wait_phase(key, "Running")
        await jobs.wait_facts(key, *LIFE[:3])
    await two.stop()
