"""job-controller as a process on a real API server and a real NATS; the test plays kubelet and data sets."""

from __future__ import annotations

import asyncio
import random
import re
from datetime import UTC, datetime
from typing import Any

from job_controller.cluster import BATCH

from job_controller.app import App
from job_controller.config import Settings
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.kube import connect
from paddlewheel.kube.ports import CONFIG_MAPS, EVENTS, PADDLE_JOBS, PODS, SERVICES
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)
from paddlewheel.testkit.wait import eventually

LIFE = ("JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")


async def test_a_job_waits_for_its_data_hears_of_it_on_the_bus_and_runs_to_its_end(
    bench: Any, service: Any
) -> None:
    digits = bench.key("digits")
    sample_set = await make_sample_set(bench.cluster, digits, partitions=2)
    await service.start()
    ref = {"name": "digits", "mountPath": "/data"}
    key = await bench.create(make_paddle_job("train", sampleSetRef=ref, worker=make_role(2)))
    await bench.wait_facts(key, "JobAccepted", "JobGated")
    assert await bench.pods(key) == []

    await set_sample_set_phase(bench.cluster, digits, "Ready")
    uid = sample_set["metadata"]["uid"]
    ready = SampleSetReady(sample_set=ObjectRef(namespace=digits.namespace, name="digits", uid=uid))
    now = datetime.now(UTC)
    await bench.bus.publish(
        make_event(ready, id=f"{uid}/1", source="test", namespace=digits.namespace, uid=uid, time=now)
    )
    # The timer that would find out without the bus is at 30 s.
    names = await bench.wait_pods(key, 2, within=15)
    assert names == ["train-worker-0", "train-worker-1"]

    await bench.set_pods(key, "Running")
    status = await bench.wait_phase(key, "Running")
    assert status["worker"] | {"refs": []} == {
        "pending": 0,
        "starting": 0,
        "running": 2,
        "failed": 0,
        "succeeded": 0,
        "refs": [],
    }
    config = await bench.cluster.get(CONFIG_MAPS, key)
    assert config["data"]["PADDLE_TRAINER_ENDPOINTS"] == "10.1.0.1:36000,10.1.0.2:36000"

    await bench.set_pods(key, "Succeeded", message='{"accuracy": 0.97, "epochs": 2}')
    status = await bench.wait_phase(key, "Completed")
    assert status["results"] == {"accuracy": 0.97, "epochs": 2}
    assert {c["type"] for c in status["conditions"]} == {"Accepted", "Admitted", "Running", "Complete"}
    await eventually(lambda: _no_pods(bench, key), within=20)
    await bench.wait_facts(key, "JobAccepted", "JobGated", *LIFE[1:])
    assert bench.events[-1].data.results == {"accuracy": 0.97, "epochs": 2.0}
    noted = await bench.cluster.list(EVENTS, bench.namespace)
    ours = [e for e in noted if e.get("source", {}).get("component") == "paddlejob-controller"]
    assert {e["involvedObject"]["kind"] for e in ours} == {"PaddleJob"}
    assert {e["type"] for e in ours} == {"Normal"}


async def _no_pods(bench: Any, key: Key) -> bool:
    return not await bench.pods(key)


async def test_service_network_scaling_failure_and_deletion(bench: Any, service: Any) -> None:
    await service.start()
    key = await bench.create(make_paddle_job("named", intranet="Service", worker=make_role(2)))
    await bench.wait_pods(key, 2)
    await bench.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await bench.wait_pods(key, 3)
    config = await bench.cluster.get(CONFIG_MAPS, key)
    assert config["data"]["PADDLE_TRAINERS"] == "named-worker-0,named-worker-1,named-worker-2"
    assert len(await bench.cluster.list(SERVICES, bench.namespace)) == 3

    await bench.set_pods(key, "Running")
    await bench.wait_phase(key, "Running")
    await bench.set_pods(key, "Failed", exit_code=9, message="first line\nno space left on device\n")
    status = await bench.wait_phase(key, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    # They fail at the same time: the one that was seen first is named.
    assert re.fullmatch(
        r"pod named-worker-[0-2] failed \(Error, exit code 9\): no space left on device", failed["message"]
    )
    assert len(await bench.pods(key)) == 3

    await bench.cluster.delete(PADDLE_JOBS, key)
    await eventually(lambda: bench.is_gone(key), within=20)
    await eventually(lambda: _no_pods(bench, key), within=30, what="garbage collected")
    await bench.wait_facts(key, "JobAccepted", "JobStarting", "JobRunning", "JobFailed", "JobDeleted")


async def test_a_foreign_pod_is_refused_and_left_alone(bench: Any, service: Any) -> None:
    foreign = {
        "metadata": {"namespace": bench.namespace, "name": "mine-worker-0"},
        "spec": {"containers": [{"name": "main", "image": "example/other:1"}]},
    }
    before = await bench.cluster.create(PODS, foreign)
    await service.start()
    key = await bench.create(make_paddle_job("mine", worker=make_role(1)))

    async def blocked() -> bool:
        conditions = (await bench.status(key)).get("conditions") or ()
        return any(c["type"] == "Blocked" and c["reason"] == "OwnedByAnother" for c in conditions)

    await eventually(blocked, within=20)
    pod = await bench.cluster.get(PODS, bench.key("mine-worker-0"))
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert "ownerReferences" not in pod["metadata"]


async def test_killed_at_random_moments_it_makes_no_pod_twice_and_tells_every_fact_once(
    bench: Any, service: Any
) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}")
    size = 24
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember_pods(bench, made))
    key = bench.key("victim")
    try:
        await service.start()
        await bench.create(make_paddle_job("victim", cleanPodPolicy="Never", worker=make_role(size)))
        # Within the burst of creations: the status is not written before the last of them.
        await _kill_once(service, lambda: len(made) >= chance.randrange(1, size))
        await service.start()
        await bench.wait_pods(key, size)
        for phase in ("Running", "Succeeded"):
            changing = asyncio.create_task(bench.set_pods(key, phase))
            await asyncio.sleep(chance.uniform(0.0, 1.5))
            await service.kill()
            await changing
            await service.start()
        await bench.wait_phase(key, "Completed")
        await eventually(lambda: bench.facts(key)[-1:] == ["JobSucceeded"], within=30)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert sorted(made) == sorted(f"victim-worker-{i}" for i in range(size))
    assert all(len(uids) == 1 for uids in made.values())
    facts = bench.facts(key)
    assert len(set(facts)) == len(facts)
    # A controller that was dead while all pods ran never saw them run.
    assert facts in (list(LIFE), [f for f in LIFE if f != "JobRunning"])


async def _remember_pods(bench: Any, made: dict[str, set[str]]) -> None:
    async for change in bench.cluster.watch(PODS, bench.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["name"], set()).add(meta["uid"])


async def _kill_once(service: Any, condition: Any) -> None:
    await eventually(condition, within=40, every=0.005)
    await service.kill()


async def test_with_nats_away_from_the_start_jobs_run_and_facts_arrive_when_it_is_back(
    open_bench: Any, service: Any, nats_server: NatsServer
) -> None:
    nats_server.stop()
    await service.start()
    async with open_bench(nats_server.url) as bench:
        key = await bench.create(make_paddle_job("deaf", worker=make_role(2), cleanPodPolicy="Never"))
        await bench.wait_pods(key, 2)
        await bench.set_pods(key, "Running")
        await bench.wait_phase(key, "Running")
        await bench.set_pods(key, "Succeeded")
        status = await bench.wait_phase(key, "Completed")
        assert [a["announced"] for a in status["announcements"]] == [False] * 4
        nats_server.start()
        await bench.wait_facts(key, *LIFE, within=40)

        async def all_confirmed() -> bool:
            return all(a["announced"] for a in (await bench.status(key))["announcements"])

        await eventually(all_confirmed, within=20)


async def test_writes_for_a_whole_job_stay_few(bench: Any, api_server: str) -> None:
    """The service in this process, so that its client's writes can be counted."""
    settings = Settings(namespace=bench.namespace, http_port=0)
    clock, stop = SystemClock(), asyncio.Event()
    async with await connect(api_server) as api:
        app = asyncio.create_task(App(settings, api, bench.bus, clock).run(stop))
        began = clock.monotonic()
        key = await bench.create(make_paddle_job("wide", cleanPodPolicy="Never", worker=make_role(20)))
        await bench.wait_pods(key, 20)
        await bench.set_pods(key, "Running")
        await bench.wait_phase(key, "Running")
        await bench.set_pods(key, "Succeeded")
        await bench.wait_phase(key, "Completed")
        await bench.wait_facts(key, *LIFE)
        await clock.sleep(1.0)
        writes = dict(api.writes)
        stop.set()
        await app
    print(writes)
    batches = (clock.monotonic() - began) / BATCH
    assert writes[("create", "pods")] == 20
    assert writes[("create", "configmaps")] == writes[("patch", "paddlejobs")] == 1
    # 60 changes of pods were gathered.
    assert 4 <= writes[("patch-status", "paddlejobs")] <= min(batches + 4, 50)
    assert not {verb for verb, _ in writes} & {"delete"}


async def test_sigterm_ends_it_cleanly(bench: Any, service: Any) -> None:
    await service.start()
    key = await bench.create(make_paddle_job("any", worker=make_role(1)))
    await bench.wait_pods(key, 1)
    assert await service.stop() == 0
    # Also in the middle of coming up.
    await service.start()
    await eventually(lambda: service.log.read_text().count("bus connected") == 2, within=20)
    assert await service.stop() == 0


async def test_replicas_share_the_jobs_and_one_takes_over_from_the_other(
    bench: Any, start_replica: Any
) -> None:
    one, two = await start_replica("one"), await start_replica("two")
    keys = [await bench.create(make_paddle_job(f"job-{i}", worker=make_role(1))) for i in range(8)]
    for key in keys:
        await bench.wait_pods(key, 1)
    # Leaving in order gives its Lease up, so the other takes over at once.
    assert await one.stop() == 0
    for key in keys:
        await bench.set_pods(key, "Running")
    for key in keys:
        await bench.wait_phase(key, "Running")
        await bench.wait_facts(key, *LIFE[:3])
    assert await two.stop() == 0
