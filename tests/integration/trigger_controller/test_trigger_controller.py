"""trigger-controller as a process on a real API server and a real NATS."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import nats

from paddlewheel.bus.streams import SOURCES
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated
from paddlewheel.contracts.wire import MESSAGE_ID, encode
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.triggers import (
    SAMPLE_JOB_SUCCEEDED,
    make_job_succeeded,
    make_ready,
    make_store_trigger,
    make_trigger,
    s3_body,
    s3_record,
)
from paddlewheel.testkit.wait import eventually

MARK = "events.paddlepaddle.org/event"
COUNT = "events.paddlepaddle.org/events"


async def publish_again(url: str, bench: Any, event: Any) -> None:
    """The same event as another message, as once the stream has forgotten its id."""
    data, headers = encode(event)
    client = await nats.connect(url)
    kept = {name: value for name, value in headers.items() if name != MESSAGE_ID}
    await client.jetstream().publish(event.subject, data, headers=kept)
    await client.close()


async def test_a_fact_starts_a_job_exactly_once_under_repetition(
    bench: Any, service: Any, nats_url: str
) -> None:
    await service.start()
    key = await bench.create(make_trigger())
    event = await bench.ready("e-1")
    [job] = await bench.wait_jobs(1)
    assert job["metadata"]["annotations"][MARK] == "e-1"
    await bench.wait_status(key, fired=1)
    # Repeated while its job is there, and after it is gone.
    await publish_again(nats_url, bench, event)
    await bench.ready("e-2")
    await bench.wait_jobs(2)
    await bench.cluster.delete(SAMPLE_JOBS, bench.key(job["metadata"]["name"]))
    await publish_again(nats_url, bench, event)
    await bench.ready("e-3")
    jobs = await bench.wait_jobs(2)
    assert {j["metadata"]["annotations"][MARK] for j in jobs} == {"e-2", "e-3"}
    await bench.wait_status(key, fired=3, events=3)
    await eventually(lambda: bench.facts() == ["TriggerFired"] * 3, within=20)
    reasons = {e["reason"] for e in await bench.notes()}
    assert reasons == {"Fired"}


async def test_killed_at_random_moments_every_event_starts_one_job(
    bench: Any, service: Any, namespace: str
) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}")
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember(bench, made))
    total = 120
    try:
        await service.start()
        key = await bench.create(make_trigger())
        for start in range(0, total, 20):
            for number in range(start, start + 20):
                await bench.ready(f"e-{number}", name=f"set-{number}")
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            await service.kill()
            await service.start()
        await bench.wait_jobs(total, within=90)
        await bench.wait_status(key, fired=total, events=total, within=60)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert len(made) == total
    assert all(len(uids) == 1 for uids in made.values())
    await eventually(lambda: len(bench.events) >= total, within=30)
    ids = [e.id for e in bench.events]
    assert len(ids) == len(set(ids)) == total


async def _remember(bench: Any, made: dict[str, set[str]]) -> None:
    async for change in bench.cluster.watch(SAMPLE_JOBS, bench.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["annotations"][MARK], set()).add(meta["uid"])


async def test_nats_is_killed_and_replicas_come_and_go_and_nothing_is_doubled(
    bench: Any, start_replica: Any, nats_server: NatsServer
) -> None:
    replicas = [await start_replica("one"), await start_replica("two")]
    key = await bench.create(make_trigger())
    total = 60
    for number in range(total):
        await bench.ready(f"e-{number}", name=f"set-{number}")
        if number == 15:
            await asyncio.to_thread(nats_server.restart)
        if number == 30:
            await replicas[0].kill()
        if number == 40:
            await replicas[0].start()
    jobs = await bench.wait_jobs(total, within=90)
    assert len({j["metadata"]["annotations"][MARK] for j in jobs}) == total
    await bench.wait_status(key, fired=total, events=total, within=60)
    await eventually(lambda: len(bench.events) >= total, within=30)
    assert len({e.id for e in bench.events}) == len(bench.events) == total


async def test_the_bus_loses_its_data_and_old_facts_told_anew_start_nothing(
    bench: Any, service: Any, nats_server: NatsServer
) -> None:
    await service.start()
    key = await bench.create(make_trigger(successfulJobsHistoryLimit=0))
    event = await bench.ready("e-1")
    [job] = await bench.wait_jobs(1)
    await bench.end(job)
    await eventually(lambda: _none(bench), within=30)
    await asyncio.to_thread(nats_server.lose_data)
    # As `paddlewheel bus rebuild` does.
    await bench.publish(event)
    await bench.ready("e-2")
    [job] = await bench.wait_jobs(1)
    assert job["metadata"]["annotations"][MARK] == "e-2"
    await bench.wait_status(key, fired=2, events=2)


async def _none(bench: Any) -> bool:
    return not await bench.jobs()


async def test_suspended_old_and_foreign_events_start_nothing(bench: Any, service: Any) -> None:
    await service.start()
    suspended = await bench.create(make_trigger("off", suspend=True))
    key = await bench.create(make_trigger("on"))
    old = make_ready("old", bench.namespace)
    await bench.publish(
        make_event(
            old.data,
            id="old",
            source="test",
            namespace=bench.namespace,
            uid="u",
            time=old.time - timedelta(hours=1),
        )
    )
    await bench.publish(make_ready("foreign", "kube-public"))
    await bench.ready("e-1")
    await bench.wait_status(key, fired=1, events=1)
    await bench.wait_status(suspended, fired=0, events=1, skipped=1)
    assert len(await bench.jobs()) == 1


async def test_a_refused_template_keeps_its_events_until_it_is_mended(bench: Any, service: Any) -> None:
    await service.start()
    containers = [{"name": "main", "image": "x"}]
    worker = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    foreign = {"name": "digits", "namespace": "kube-public", "mountPath": "/data"}
    spec = {"sampleSetRef": foreign, "worker": worker}
    key = await bench.create(make_trigger(create={"paddleJob": {"spec": spec}}))
    await bench.ready("e-1")
    ready = await bench.wait_condition(key, "Ready", "TemplateRefused")
    assert "spec.sampleSetRef.namespace kube-public is another namespace" in ready["message"]
    await bench.ready("e-2")
    await eventually(lambda: _waits(bench, key, 2), within=30)
    assert await bench.jobs("PaddleJob") == []
    mended = {"create": {"paddleJob": {"spec": {"sampleSetRef": {"namespace": None}}}}}
    await bench.cluster.patch(TRIGGERS, key, {"spec": mended})
    [job] = await bench.wait_jobs(1, "PaddleJob")
    assert job["metadata"]["annotations"] | {COUNT: "2", MARK: "e-2"} == job["metadata"]["annotations"]
    await bench.wait_condition(key, "Ready", "Active")
    await eventually(lambda: bench.facts() == ["TriggerFailed", "TriggerFired"], within=20)
    types = {(e["type"], e["reason"]) for e in await bench.notes()}
    assert ("Warning", "TemplateRefused") in types


async def _waits(bench: Any, key: Any, events: int) -> bool:
    return bool(((await bench.status(key)).get("waiting") or {}).get("events") == events)


async def test_the_examples_sync_warm_and_train(bench: Any, service: Any) -> None:
    """examples/triggers as they stand, but for a quiet time that suits a test."""
    await service.start()
    await bench.wait_serving()
    sync = await bench.example("sync-new-images", batch={"quietSeconds": 1})
    warm = await bench.example("warm-after-sync")
    train = await bench.example("train-when-ready")

    keys = [f"digits/{i}.png" for i in range(50)]
    for key in keys:
        status, text = await bench.post(s3_body(s3_record(key), s3_record(f"other/{key}")))
        assert (status, text) == (204, "")
    [copy] = await bench.wait_jobs(1)
    assert copy["spec"] == {
        "type": "sync",
        "sampleSetRef": {"name": "digits"},
        "secretRef": {"name": "digits-source"},
        "syncOptions": {"update": True},
    }
    assert copy["metadata"]["annotations"][COUNT] == "50"
    assert copy["metadata"]["annotations"]["example.org/newest"] == keys[-1]

    # While it runs more come: for the next one.
    await bench.post(s3_body(s3_record("digits/late.png")))
    await eventually(lambda: _waits(bench, sync, 1), within=20)
    await bench.end(copy)
    await bench.publish(make_job_succeeded("s-1", copy))
    jobs = await bench.wait_jobs(3)
    assert sorted(j["spec"]["type"] for j in jobs) == ["sync", "sync", "warmup"]
    await bench.wait_status(warm, fired=1)
    [warmup] = [j for j in jobs if j["spec"]["type"] == "warmup"]
    await bench.publish(make_job_succeeded("s-2", warmup))

    await bench.ready("e-1")
    await bench.ready("e-1b", name="mnist")
    [job] = await bench.wait_jobs(1, "PaddleJob")
    container = job["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "STARTED_BY", "value": "e-1"}]
    assert job["spec"]["sampleSetRef"]["name"] == "digits"
    await bench.ready("e-2")
    await bench.wait_status(train, fired=2, active=1)
    [job] = await bench.wait_jobs(1, "PaddleJob")
    assert job["metadata"]["annotations"][MARK] == "e-2"
    await bench.wait_status(warm, events=1, fired=1)


async def test_a_notification_posted_twice_counts_once(bench: Any, service: Any) -> None:
    await service.start()
    await bench.wait_serving()
    key = await bench.create(make_store_trigger())
    for _ in range(3):
        assert (await bench.post(s3_body(s3_record("a b/ü.png"))))[0] == 204
    await bench.post(s3_body(s3_record("a b/ü.png", n=2), s3_record("x", bucket="other")))
    await bench.wait_jobs(2)
    await bench.wait_status(key, fired=2, events=2)


async def test_a_notification_published_by_hand_is_heard(bench: Any, service: Any) -> None:
    await service.start()
    key = await bench.create(make_store_trigger())
    told = ObjectCreated(source="images", bucket="images", key="a.png")
    event = make_event(
        told, id="mine-1", source="me", namespace="images", uid="d1", time=make_ready("x").time
    )
    assert event.subject.startswith("pw.src.objectstore.object.created.v1.images.")
    assert SOURCES.subjects == ("pw.src.>",)
    await bench.publish(event)
    await bench.wait_status(key, fired=1)


async def test_its_own_work_never_fires_a_trigger_again(bench: Any, service: Any) -> None:
    await service.start()
    key = await bench.create(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    mine = {
        "metadata": {"namespace": bench.namespace, "name": "mine"},
        "spec": {"type": "warmup", "sampleSetRef": {"name": "digits"}},
    }
    first = await bench.cluster.create(SAMPLE_JOBS, mine)
    await bench.publish(make_job_succeeded("s-1", first))
    jobs = await bench.wait_jobs(2)
    [child] = [j for j in jobs if j["metadata"]["name"] != "mine"]
    await bench.publish(make_job_succeeded("s-2", child))
    loop = await bench.wait_condition(key, "LoopGuarded", "OwnWork")
    assert "spec.when.fact.object" in loop["message"]
    await bench.wait_status(key, fired=1, skipped=1, events=2)


async def test_a_hundred_triggers_need_three_durables(bench: Any, service: Any, nats_url: str) -> None:
    await service.start()
    await bench.wait_serving()
    await bench.create(make_trigger("first"))
    triggers = [make_trigger(f"t-{i}", bench.namespace) for i in range(100)]
    await asyncio.gather(*(bench.cluster.create(TRIGGERS, t) for t in triggers))
    client = await nats.connect(nats_url)
    try:
        js = client.jetstream()
        durables = [
            consumer.name
            for stream in ("PW_JOBS", "PW_DATASETS", "PW_SOURCES", "PW_TRIGGERS", "PW_CACHE")
            for consumer in await js.consumers_info(stream)
            if consumer.config.durable_name
        ]
    finally:
        await client.close()
    assert sorted(durables) == [f"trigger-controller-{n}" for n in ("datasets", "jobs", "sources")]
    await bench.ready("e-1")
    await bench.wait_jobs(101, within=60)
