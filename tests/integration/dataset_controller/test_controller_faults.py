"""The service is killed, or its bus cut, in the middle of each step of a set and of a job.

What was asked for comes about all the same: no fact is lost or doubled, no run repeated, nothing left behind.
The faults of agents and stores are in `cache_runtime/test_matrix.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from tests.integration.dataset_controller.conftest import DataServiceHarness

from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import set_pattern
from paddlewheel.kube import ports
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Objects, Resource
from paddlewheel.testkit.samplesets import make_sample_job
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
JOBS = ports.SAMPLE_JOBS
CHILDREN = (ports.STATEFUL_SETS, ports.PERSISTENT_VOLUME_CLAIMS, ports.SERVICES, ports.PODS)
SET = "digits"


class Fault(StrEnum):
    """What happens to the service."""

    KILLED = "killed"
    CUT_OFF = "cut off from the bus"
    BOTH = "killed while cut off"


Moment = Callable[[DataServiceHarness], Awaitable[bool]]
"""Whether it has come; asked again and again."""
Hit = Callable[[], Awaitable[None]]
"""Wait for the moment of a case, and let the fault happen."""
Step = Callable[[DataServiceHarness, Hit], Awaitable[None]]
"""What is asked for, and what must be true in the end."""


async def strike(data: DataServiceHarness, service: Service, fault: Fault) -> None:
    """The service is back, or has its bus again, when this returns."""
    if fault is not Fault.KILLED:
        data.nats.kill()
    if fault is not Fault.CUT_OFF:
        await service.kill()
    said = service.log.stat().st_size
    if fault is not Fault.CUT_OFF:
        await service.start()
    if fault is not Fault.KILLED:
        # A process that has not begun would find the bus as it was.
        await eventually(lambda: service.log.stat().st_size > said, what="it notices")
        data.nats.start()


# Moments


def there_is(resource: Resource) -> Moment:
    """In the test's namespace, or of it."""

    async def has_come(data: DataServiceHarness) -> bool:
        return bool(await of_test(data, resource))

    return has_come


def is_gone(resource: Resource) -> Moment:
    async def has_come(data: DataServiceHarness) -> bool:
        return not await of_test(data, resource)

    return has_come


def has(resource: Resource, name: str, *path: str) -> Moment:
    """The object has something at this path."""

    async def has_come(data: DataServiceHarness) -> bool:
        found = next((o for o in await data.objects(resource) if o["metadata"]["name"] == name), {})
        for part in path:
            found = found.get(part) or {}
        return bool(found)

    return has_come


def has_phase(*phases: str) -> Moment:
    """The set is, or was, in one of these."""

    async def has_come(data: DataServiceHarness) -> bool:
        return bool(set(phases) & set(data.phases()))

    return has_come


def runs(operation: str) -> Moment:
    """Agents have taken such a run."""

    async def has_come(data: DataServiceHarness) -> bool:
        return bool(data.runtime.runs(operation))

    return has_come


def asks_for(replicas: int) -> Moment:
    """The StatefulSet does."""

    async def has_come(data: DataServiceHarness) -> bool:
        return [each["spec"]["replicas"] for each in await data.objects(ports.STATEFUL_SETS)] == [replicas]

    return has_come


async def cancels_others(data: DataServiceHarness) -> bool:
    conditions = (await data.status(data.key("ends"), JOBS)).get("conditions") or ()
    return any(each["type"] == "OthersCancelled" for each in conditions)


async def at_once(_: DataServiceHarness) -> bool:
    return True


# Steps


async def binds_a_set(data: DataServiceHarness, hit: Hit) -> None:
    key = await data.create_set(SET, partitions=2)
    await hit()
    await expect_ready(data, key, 2, *FACTS)
    assert len(started(data, "sync")) == 1


async def begins_a_run(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 1)
    job = await data.create(make_sample_job("warm"), JOBS)
    await hit()
    await data.wait_phase(job, "Succeeded", resource=JOBS)
    await data.wait_facts(job, "SampleJobStarted", "SampleJobSucceeded")
    assert len(started(data, "warmup")) == 1
    await expect_ready(data, key, 1, *FACTS)


async def cancels_a_run(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 1)
    job = await running_job(data)
    await data.cluster.delete(JOBS, job)
    await hit()
    await data.wait_gone(job, JOBS)
    await data.wait_facts(job, "SampleJobStarted", "SampleJobFailed", "SampleJobDeleted")
    [run] = started(data, "warmup")

    async def is_forgotten() -> bool:
        left = await data.bus.key_value(RUNS_BUCKET).entries(set_pattern(run.set_uid))
        return not [entry.key for entry in left if run.run_id in entry.key]

    await eventually(is_forgotten, what="no record of the run is left")
    await expect_ready(data, key, 1, *FACTS)


async def cancels_the_runs_of_others(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 1)
    other = await running_job(data)
    spec: dict[str, Any] = {"type": "rmr", "rmrOptions": {"paths": ["old"]}, "terminate": True}
    job = await data.create(make_sample_job("ends", **spec), JOBS)
    await hit()
    failed = await data.wait_phase(other, "Failed", resource=JOBS)
    assert failed["reason"] == "Cancelled"
    await data.wait_phase(job, "Succeeded", resource=JOBS)
    await data.wait_facts(other, "SampleJobStarted", "SampleJobFailed")
    await data.wait_facts(job, "SampleJobStarted", "SampleJobSucceeded")
    assert [len(started(data, operation)) for operation in ("warmup", "remove")] == [1, 1]
    await expect_ready(data, key, 1, *FACTS)


async def deletes_a_set(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 2)
    uid = uid_of(await data.get(key))
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await hit()
    await data.wait_gone(key)
    await data.wait_facts(key, *FACTS, "SampleSetDeleted")
    assert len(started(data, "clear")) == 1
    for resource in (*CHILDREN, ports.PERSISTENT_VOLUMES):
        await eventually(partial(is_gone(resource), data), what=f"no {resource.plural} is left")

    async def is_forgotten() -> bool:
        assert [o["metadata"]["name"] for o in await data.objects(ports.SECRETS)] == [SET]
        assert await data.labels() == []
        assert await data.bus.key_value(RUNS_BUCKET).entries(set_pattern(uid)) == []
        return True

    await eventually(is_forgotten, what="only the user's own is left")
    expect_no_double(data)


async def adds_partitions(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 1)
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 3}})
    await hit()
    await expect_ready(data, key, 3, *FACTS, "SampleSetDegraded", "SampleSetReady")


async def takes_partitions_away(data: DataServiceHarness, hit: Hit) -> None:
    key = await ready_set(data, 3)
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 1}})
    await hit()
    await expect_ready(data, key, 1, *FACTS, "SampleSetDegraded", "SampleSetReady")
    assert [run.clear.partitions for run in started(data, "clear") if run.clear] == [[1, 2]]


CLAIMS, VOLUMES = ports.PERSISTENT_VOLUME_CLAIMS, ports.PERSISTENT_VOLUMES
DELETED = ("metadata", "deletionTimestamp")
STEPS: dict[Step, dict[str, Moment]] = {
    binds_a_set: {
        "its claim is there": there_is(CLAIMS),
        "its volume is there": there_is(VOLUMES),
        "it is bound": has_phase("Bound", "Mount"),
        "its runtime is there": there_is(ports.STATEFUL_SETS),
        "its first sync is decided on": has_phase("Syncing"),
    },
    begins_a_run: {
        "the run is decided on": has(JOBS, "warm", "status", "jobName"),
        "the run is on the bus": runs("warmup"),
    },
    cancels_a_run: {"its job is deleted": at_once},
    cancels_the_runs_of_others: {
        "the job is there": at_once,
        "the others are named": cancels_others,
        "its own run is decided on": has(JOBS, "ends", "status", "jobName"),
    },
    deletes_a_set: {
        "it is deleted": has(ports.SAMPLE_SETS, SET, *DELETED),
        "its caches are emptied": runs("clear"),
        "its runtime is gone": is_gone(ports.STATEFUL_SETS),
        "its claim is gone": is_gone(CLAIMS),
    },
    adds_partitions: {"it is wanted": at_once, "pods are wanted": asks_for(3)},
    takes_partitions_away: {
        "it is wanted": at_once,
        "their caches are emptied": runs("clear"),
        "pods are wanted no more": asks_for(1),
    },
}


def cases() -> list[tuple[Step, str, Fault]]:
    """A kill in every moment; the bus is cut in the first of a step, with a kill and without in turn."""
    kills = [(step, moment, Fault.KILLED) for step, moments in STEPS.items() for moment in moments]
    cuts = zip(STEPS.items(), cycle((Fault.BOTH, Fault.CUT_OFF)), strict=False)
    return [*kills, *((step, next(iter(moments)), fault) for (step, moments), fault in cuts)]


def named(value: object) -> str:
    """For the id of a test."""
    return str(getattr(value, "__name__", value)).replace(" ", "-")


@pytest.mark.parametrize(("step", "moment", "fault"), cases(), ids=named)
async def test_what_is_asked_for_comes_about(
    data: DataServiceHarness, step: Step, moment: str, fault: Fault
) -> None:
    service, has_come = await data.start_process(), STEPS[step][moment]

    async def hit() -> None:
        await eventually(lambda: has_come(data), every=0.01, what=moment)
        await strike(data, service, fault)

    await step(data, hit)


# What must be true


def started(data: DataServiceHarness, operation: str) -> list[RunSpec]:
    """The runs that agents have taken, each once: after an outage of the bus they read its spec again."""
    return list({run.run_id: run for run in data.runtime.runs(operation)}.values())


async def ready_set(data: DataServiceHarness, partitions: int) -> Key:
    key = await data.create_set(SET, partitions=partitions)
    await expect_ready(data, key, partitions, *FACTS)
    return key


async def running_job(data: DataServiceHarness) -> Key:
    """A warmup that does not end by itself."""
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    job = await data.create(make_sample_job("warm"), JOBS)
    await data.wait_phase(job, "Running", resource=JOBS)
    await data.wait_facts(job, "SampleJobStarted")
    return job


async def expect_ready(data: DataServiceHarness, key: Key, partitions: int, *facts: str) -> None:
    """The set with its facts, and one of each child."""

    async def is_ready() -> bool:
        status = await data.status(key)
        count = (status.get("runtimeStatus") or {}).get("runtimeReady")
        return (status.get("phase"), count) == ("Ready", f"{partitions}/{partitions}")

    await eventually(is_ready, what=f"{key} is ready with {partitions} partitions")
    await data.wait_facts(key, *facts)
    expect_no_double(data)
    [claim], [volume] = await data.objects(CLAIMS), await of_test(data, VOLUMES)
    assert volume["spec"]["claimRef"]["uid"] == uid_of(claim)
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    counts = [len(await data.objects(each)) for each in (ports.STATEFUL_SETS, ports.SERVICES)]
    assert counts == [1, 1]
    await data.wait_objects(ports.PODS, partitions)
    await eventually(lambda: has_labels(data, partitions), what="one node for each partition is labelled")


async def has_labels(data: DataServiceHarness, count: int) -> bool:
    return len(await data.labels(SET)) == count


def expect_no_double(data: DataServiceHarness) -> None:
    assert len({event.id for event in data.events}) == len(data.events)


async def of_test(data: DataServiceHarness, resource: Resource) -> Objects:
    """Those of the test's namespace, and volumes of its claims."""
    if resource.namespaced:
        return await data.objects(resource)
    found = await data.cluster.list(resource)
    return [o for o in found if o["spec"].get("claimRef", {}).get("namespace") == data.namespace]
