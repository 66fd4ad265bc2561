"""Jobs that train with as many workers as there is room for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.job_controller.conftest import GATED, JobHarness, OpenHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[JobHarness]:
    async with open_harness(**GATED) as running:
        yield running


WRONG = {"spec": {"activeDeadlineSeconds": -1}}
"""An edit that makes the spec wrong."""


def elastic(replicas: int = 4, least: int = 2, **spec: Any) -> Object:
    return make_paddle_job(worker={**make_role(replicas), "requests": least}, **spec)


def pod_key(index: int) -> Key:
    return Key("default", f"demo-worker-{index}")


async def place(harness: JobHarness, key: Key, room: int) -> None:
    """Play the scheduler and the kubelet: the first pods find room and run, the others do not."""
    for index, name in enumerate(await harness.pod_names()):
        pod = Key("default", name)
        if index < room:
            await harness.patch(pod, {"spec": {"nodeName": f"node-{index}"}}, PODS)
            await set_pod_status(harness.cluster, pod, "Running", ip=f"10.0.0.{index + 1}")
        else:
            await harness.set_status(pod, {"phase": "Pending", "conditions": [NO_ROOM]}, PODS)
    await harness.settle(key)


async def wait_for_room(harness: JobHarness, key: Key, room: int) -> None:
    """Only nodes are found: nothing has begun."""
    for index, name in enumerate(await harness.pod_names()):
        pod = Key("default", name)
        if index < room:
            await harness.patch(pod, {"spec": {"nodeName": f"node-{index}"}}, PODS)
        else:
            await harness.set_status(pod, {"phase": "Pending", "conditions": [NO_ROOM]}, PODS)
    await harness.settle(key)


async def find_room(harness: JobHarness, index: int) -> None:
    """A node for a pod that waits; there, its gate runs."""
    await harness.patch(pod_key(index), {"spec": {"nodeName": f"node-{index}"}}, PODS)
    gate = {"name": "coord-paddle", "state": {"running": {}}}
    await harness.set_status(
        pod_key(index), {"phase": "Pending", "conditions": None, "initContainerStatuses": [gate]}, PODS
    )


async def shrink(harness: JobHarness, **spec: Any) -> Key:
    """A job of four workers that trains with two."""
    key = await harness.create(elastic(**spec))
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    await harness.advance(30)
    await harness.settle(key)
    await place(harness, key, 2)
    return key


async def shrunk(harness: JobHarness) -> Key:
    """A job of four workers that trains with two, and whose other two wait for room."""
    key = await shrink(harness)
    await harness.advance(60)
    await harness.settle(key)
    await place(harness, key, 2)
    return key


async def world_of(harness: JobHarness, key: Key) -> tuple[int, int]:
    """The number of workers that train, and the wanted number."""
    world = (await harness.status(key))["world"]
    return world["workers"], world["of"]


async def test_a_job_trains_with_the_workers_that_there_is_room_for(harness: JobHarness) -> None:
    key = await harness.create(elastic())
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    assert "world" not in await harness.status(key)
    await harness.advance(30)
    await harness.settle(key)
    status = await harness.status(key)
    assert (await world_of(harness, key), status["epoch"]) == ((2, 4), 1)
    assert status["restarts"] == {"Resized": 1}
    assert status["lastRestart"]["message"] == "there is room for 2 of 4 workers: 0/3 nodes fit"
    assert await harness.pod_names() == ["demo-worker-0", "demo-worker-1"], "workers that train go first"
    await place(harness, key, 2)
    status = await harness.status(key)
    assert (status["phase"], status["ready"]) == ("Running", "2/4")
    config = await harness.config(key)
    assert (config["PADDLE_TRAINERS_NUM"], config["PADDLE_TRAINERS"]) == ("2", "10.0.0.1,10.0.0.2")
    assert "JobStuck" not in harness.facts()
    assert {event.type for event in await harness.kubernetes_events()} == {"Normal"}


async def test_workers_beyond_those_that_train_wait_for_room_and_are_not_let_start(
    harness: JobHarness,
) -> None:
    key = await shrunk(harness)
    assert len(await harness.pod_names()) == 4
    gates = [(await harness.get(pod_key(i), PODS))["spec"]["initContainers"][-1]["command"] for i in (1, 2)]
    assert ["--fallback" in command for command in gates] == [True, False]
    assert (await harness.status(key))["phase"] == "Running"
    await harness.advance(30)
    assert "JobStuck" not in harness.facts(), "the job runs"


async def test_workers_start_while_the_api_server_refuses_those_beyond(harness: JobHarness) -> None:
    key = await harness.create(elastic())
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    await harness.advance(30)
    await harness.settle(key)
    refused = Permanent("Forbidden", "exceeded quota")
    with (
        harness.failing(refused, "create", PODS, name="demo-worker-2"),
        harness.failing(refused, "create", PODS, name="demo-worker-3"),
    ):
        await harness.advance(60)
        await harness.settle(key)
        await place(harness, key, 2)
        assert await world_of(harness, key) == (2, 4)
        assert (await harness.status(key))["phase"] == "Running"


async def test_a_job_grows_when_there_is_room_again(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await find_room(harness, 2)
    await harness.settle(key)
    assert (await harness.status(key))["epoch"] == 1, "one worker has to wait before it is worth two restarts"
    await harness.advance(60)
    await harness.settle(key)
    assert (await world_of(harness, key), (await harness.status(key))["epoch"]) == ((3, 4), 2)
    assert len(await harness.pod_names()) == 3
    await place(harness, key, 3)
    assert (await harness.status(key))["ready"] == "3/4"
    await harness.advance(60)
    await harness.settle(key)
    await find_room(harness, 3)
    await harness.advance(90)
    await harness.settle(key)
    await place(harness, key, 4)
    status = await harness.status(key)
    assert (status["phase"], status["ready"], (await harness.config(key))["PADDLE_TRAINERS_NUM"]) == (
        *("Running", "4/4"),
        "4",
    )


async def test_a_lost_node_shrinks_the_job_to_what_is_left(harness: JobHarness) -> None:
    key = await harness.create(elastic(3, 1))
    await harness.settle(key)
    await place(harness, key, 3)
    assert (await harness.status(key))["phase"] == "Running"
    await harness.delete(pod_key(1), PODS)
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    await harness.advance(30)
    await harness.settle(key)
    await place(harness, key, 2)
    status = await harness.status(key)
    assert (status["phase"], await world_of(harness, key)) == ("Running", (2, 3))
    assert status["restarts"] == {"PodDeleted": 1, "Resized": 1}


async def test_with_less_room_than_the_least_the_job_waits_and_says_so(harness: JobHarness) -> None:
    key = await harness.create(elastic(4, 3))
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    await harness.advance(30)
    await harness.settle(key)
    status = await harness.status(key)
    assert ("world" in status, status["reason"]) == (False, "Unschedulable")
    assert harness.facts()[-1] == "JobStuck"


@pytest.mark.parametrize("spec", [{"elastic": 1}, {}])
async def test_a_job_that_names_no_least_number_wants_all(harness: JobHarness, spec: Object) -> None:
    job = elastic(**spec) if spec else make_paddle_job(worker=make_role(4))
    key = await harness.create(job)
    await harness.settle(key)
    await wait_for_room(harness, key, 2)
    await harness.advance(30)
    await harness.settle(key)
    assert "world" not in await harness.status(key)


async def test_another_number_of_replicas_begins_from_all_of_them(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await harness.patch(key, {"spec": {"worker": {"replicas": 3}}})
    await harness.settle(key)
    await harness.settle(key)
    await place(harness, key, 3)
    status = await harness.status(key)
    assert (status["phase"], status["ready"]) == ("Running", "3/3")
    assert (await harness.config(key))["PADDLE_TRAINERS_NUM"] == "3"


async def test_a_job_that_trains_with_fewer_workers_ends_with_them(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await harness.end_pods("demo-worker-0", "demo-worker-1")
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"
    assert await harness.pod_names() == []


async def test_without_a_gate_no_worker_is_made_that_would_start_by_itself(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        key = await shrunk(harness)
        assert await harness.pod_names() == ["demo-worker-0", "demo-worker-1"]
        assert (await harness.status(key))["phase"] == "Running"


async def test_a_pod_that_its_node_refuses_is_no_room_and_another_one_is_made(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await harness.patch(pod_key(2), {"spec": {"nodeName": "node-2"}}, PODS)
    await harness.set_status(pod_key(2), {"phase": "Failed", "reason": "UnexpectedAdmissionError"}, PODS)
    refused = (await harness.get(pod_key(2), PODS))["metadata"]["uid"]
    await harness.settle(key)
    await harness.advance(60)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], await world_of(harness, key), status["epoch"]) == ("Running", (2, 4), 1)
    assert (await harness.get(pod_key(2), PODS))["metadata"]["uid"] != refused


async def test_servers_that_run_already_do_not_keep_the_workers_from_shrinking(harness: JobHarness) -> None:
    key = await harness.create(elastic(intranet="Service", ps=make_role(1)))
    await harness.settle(key)
    await set_pod_status(harness.cluster, Key("default", "demo-ps-0"), "Running", ip="10.0.0.9")
    for index in range(4):
        if index < 2:
            await harness.patch(pod_key(index), {"spec": {"nodeName": f"node-{index}"}}, PODS)
        else:
            await harness.set_status(pod_key(index), {"phase": "Pending", "conditions": [NO_ROOM]}, PODS)
    await harness.settle(key)
    await harness.advance(30)
    await harness.settle(key)
    assert await world_of(harness, key) == (2, 4)


@pytest.mark.parametrize("loss", ["evicted", "refused"])
async def test_with_a_wrong_spec_the_loss_of_a_worker_that_waits_for_room_breaks_nothing(
    harness: JobHarness, loss: str
) -> None:
    key = await shrunk(harness)
    await harness.patch(key, WRONG)
    await harness.settle(key)
    if loss == "refused":
        await harness.set_status(pod_key(2), {"phase": "Failed", "reason": "OutOfcpu"}, PODS)
    else:
        await harness.delete(pod_key(2), PODS)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["reason"], status["epoch"]) == ("Running", "InvalidSpec", 1)


async def test_with_a_wrong_spec_the_loss_of_a_worker_that_trains_restarts_the_job(
    harness: JobHarness,
) -> None:
    key = await shrunk(harness)
    await harness.patch(key, WRONG)
    await harness.settle(key)
    await harness.delete(pod_key(1), PODS)
    await harness.settle(key)
    assert (await harness.status(key))["epoch"] == 2


async def test_with_a_wrong_spec_too_a_job_has_succeeded_with_the_workers_that_train(
    harness: JobHarness,
) -> None:
    key = await shrunk(harness)
    await harness.patch(key, WRONG)
    await harness.settle(key)
    await harness.end_pods(pod_key(0).name, pod_key(1).name)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"


async def test_a_world_is_forgotten_when_the_user_asks_for_another_number(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await harness.patch(key, {"spec": {"worker": {"replicas": 3, "requests": 3}}})
    await harness.settle(key)
    assert "world" not in await harness.status(key)


async def test_a_growth_that_is_lost_again_doubles_the_time_before_the_next(harness: JobHarness) -> None:
    key = await shrunk(harness)
    for lost in range(2):
        await find_room(harness, 2)
        await find_room(harness, 3)
        await harness.advance(30)
        await harness.settle(key)
        assert await world_of(harness, key) == (4, 4)
        await wait_for_room(harness, key, 2)
        await harness.advance(30)
        await harness.settle(key)
        assert (await harness.status(key))["world"]["lostGrowths"] == lost + 1
        await place(harness, key, 2)
        await harness.advance(60 * 2**lost)
        await harness.settle(key)
        assert len(await harness.pod_names()) == 2, "nothing looks for room yet"
        await harness.advance(60 * 2**lost)
        await harness.settle(key)
        assert len(await harness.pod_names()) == 4


async def test_a_growth_that_has_lasted_is_no_lost_one(harness: JobHarness) -> None:
    key = await shrunk(harness)
    await find_room(harness, 2)
    await find_room(harness, 3)
    await harness.advance(30)
    await harness.settle(key)
    await place(harness, key, 4)
    await harness.advance(600)
    await harness.delete(pod_key(3), PODS)
    await harness.settle(key)
    await wait_for_room(harness, key, 3)
    await harness.advance(30)
    await harness.settle(key)
    assert await world_of(harness, key) == (3, 4)
    assert "lostGrowths" not in (await harness.status(key))["world"]


async def test_scaling_an_elastic_job_of_paddles_own_launcher_tells_all_its_pods(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(elastic=1, worker=make_role(2)))
    await harness.settle(key)
    await place(harness, key, 2)
    await harness.patch(key, {"spec": {"worker": {"replicas": 4}}})
    await harness.settle(key)
    await harness.settle(key)
    pods = [await harness.get(Key("default", name), PODS) for name in await harness.pod_names()]
    env = [{v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]} for pod in pods]
    assert [each["PADDLE_ELASTIC_NP"] for each in env] == ["4"] * 4
    restarted = (await harness.status(key))["lastRestart"]["message"]
    assert restarted == "spec.worker.replicas is now 4; pods counted on 2 by PADDLE_ELASTIC_NP"
    assert (await harness.status(key))["restarts"] == {"Scaled": 1}


async def refuse(harness: JobHarness, seconds: int) -> int:
    """How often worker 2, which does not train, is created while its node refuses it."""
    times = 0
    for _ in range(seconds):
        await harness.drain_queue()
        for name in await harness.pod_names():
            status = (await harness.get(Key("default", name), PODS)).get("status") or {}
            if name == "demo-worker-2" and status.get("phase") != "Failed":
                times += 1
                refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "no room"}
                await harness.set_status(pod_key(2), refused, PODS)
        await harness.advance(1)
    return times


async def test_a_worker_beyond_those_that_train_is_made_again_at_growing_intervals(
    harness: JobHarness,
) -> None:
    """Its node refuses it: the pod keeps its name until the next try."""
    key = await shrunk(harness)
    assert await refuse(harness, 200) in (3, 4)
    assert await refuse(harness, 600) <= 3
    running = await harness.condition(key, "Running")
    assert (running["status"], running["message"]) == (
        "True",
        "2 of 4 workers train: pod demo-worker-2 failed (OutOfcpu): no room",
    )


async def is_waiting(harness: JobHarness, pod: Key) -> bool:
    is_there = await harness.exists(pod, PODS)
    return is_there and (await harness.get(pod, PODS)).get("status", {}).get("phase") != "Failed"


async def test_the_status_says_what_keeps_a_job_from_growing_until_the_next_pod_starts(
    harness: JobHarness,
) -> None:
    key = await shrunk(harness)
    await refuse(harness, 5)
    messages = set[str]()
    for _ in range(40):
        await refuse(harness, 10)
        messages.add((await harness.condition(key, "Running"))["message"])
    assert len(messages) == 1
    while not await is_waiting(harness, pod_key(2)):
        await harness.advance(1)
    await find_room(harness, 2)
    await harness.settle(key)
    assert (await harness.condition(key, "Running"))["message"] == ""


async def test_a_job_with_a_rank_that_has_finished_does_not_grow(harness: JobHarness) -> None:
    """The restart would train that rank again."""
    key = await shrunk(harness)
    await harness.end_pods("demo-worker-0")
    await harness.settle(key)
    await find_room(harness, 2)
    await find_room(harness, 3)
    await harness.advance(90)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["epoch"], status["worker"]["succeededIndexes"]) == (1, [0])


async def test_a_job_that_cannot_be_read_stops_no_other(harness: JobHarness) -> None:
    key = await shrunk(harness)
    bad = await harness.create(make_paddle_job("bad", worker=make_role(2)))
    await harness.set_status(bad, {"world": {"workers": 1, "of": 2}, "phase": "Running"}, PADDLE_JOBS)
    await harness.cluster.patch(PADDLE_JOBS, bad, {"spec": {"worker": {"replicas": "two"}}})
    await harness.end_pods("demo-worker-0", "demo-worker-1")
    for _ in range(3):
        # The pass of the other job raises.
        with suppress(Permanent):
            await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"


async def test_a_pod_of_nobodys_job_does_not_keep_a_job_from_growing(harness: JobHarness) -> None:
    """Users can create pods with our labels."""
    key = await shrunk(harness)
    labels = {"paddle-res-name": "mine", "paddle-res-type": "worker"}
    meta = {"name": "mine", "namespace": "default", "labels": labels}
    await harness.cluster.create(PODS, {"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
    await harness.advance(60)
    await harness.settle(key)
    assert len(await harness.pod_names()) == 5, "four workers and that pod"


async def test_a_worker_on_a_node_with_a_taint_has_its_grace_period(harness: JobHarness) -> None:
    """The node is there, and confirms the end of the pod in time."""
    key = await harness.create(elastic(8, 2))
    await harness.settle(key)
    for index in range(8):
        await harness.patch(pod_key(index), {"spec": {"nodeName": f"node-{index}"}}, PODS)
    await harness.patch(pod_key(3), {"metadata": {"finalizers": ["test/grace"]}}, PODS)
    await harness.settle(key)
    tainted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    await harness.set_status(pod_key(3), {"conditions": [tainted]}, PODS)
    await harness.delete(pod_key(3), PODS)
    await harness.settle(key)
    await harness.advance(1)
    assert "world" not in await harness.status(key)


NEEDY = Key("default", "needy-worker-0")


async def need_a_node(harness: JobHarness) -> None:
    """A pod of another job finds no room."""
    other = await harness.create(make_paddle_job("needy", worker=make_role(1)))
    await harness.settle(other)
    await harness.set_status(NEEDY, {"phase": "Pending", "conditions": [NO_ROOM]}, PODS)
    await harness.drain_queue()


async def test_an_idle_worker_gives_its_node_to_a_pod_that_trains(harness: JobHarness) -> None:
    """Beside 99 workers it would wait 50 minutes until the growth is worth its restart."""
    key = await harness.create(elastic(100, 2))
    await harness.settle(key)
    for round_ in range(2):
        for index in range(99):
            await harness.patch(pod_key(index), {"spec": {"nodeName": f"node-{index}"}}, PODS)
            if round_:
                ip = f"10.0.0.{index + 1}"
                await set_pod_status(harness.cluster, pod_key(index), "Running", ip=ip)
        if not round_:
            await harness.set_status(pod_key(99), {"phase": "Pending", "conditions": [NO_ROOM]}, PODS)
        await harness.settle(key)
        await harness.advance(31)
        await harness.settle(key)
    await harness.advance(61)
    await harness.settle(key)
    await find_room(harness, 99)
    await harness.settle(key)
    idle = (await harness.get(pod_key(99), PODS))["metadata"]["uid"]
    await harness.advance(61)
    await need_a_node(harness)
    await harness.advance(31)
    await harness.settle(key)
    found = await harness.get(pod_key(99), PODS) if await harness.exists(pod_key(99), PODS) else None
    assert found is None or found["metadata"]["uid"] != idle
    assert await world_of(harness, key) == (99, 100), "the others train on"


async def test_an_idle_worker_does_not_give_way_to_a_pod_that_a_scheduler_may_place(
    harness: JobHarness,
) -> None:
    key = await shrunk(harness)
    await find_room(harness, 2)
    idle = (await harness.get(pod_key(2), PODS))["metadata"]["uid"]
    other = await harness.create(make_paddle_job("needy", worker=make_role(1)))
    await harness.settle(other)
    await harness.advance(31)
    await harness.settle(key)
    assert (await harness.get(pod_key(2), PODS))["metadata"]["uid"] == idle
