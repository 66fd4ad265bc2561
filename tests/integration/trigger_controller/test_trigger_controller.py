"""trigger-controller on a real API server and a real NATS."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest
from tests.integration.trigger_controller.conftest import EVENT, EVENTS, TriggerServiceHarness

from paddlewheel.bus.streams import SOURCES
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated
from paddlewheel.contracts.wire import MESSAGE_ID, encode
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Resource
from paddlewheel.testkit import bare_client
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.rebuilds import rebuild
from paddlewheel.testkit.triggers import (
    JOB_SUCCEEDED,
    SAMPLE_JOB_SUCCEEDED,
    WARMUP,
    make_job_succeeded,
    make_ready,
    make_store_trigger,
    make_trigger,
    s3_body,
    s3_record,
)
from paddlewheel.testkit.wait import eventually

TRAINING = make_paddle_job("training", worker=make_role(1))["spec"]


async def publish_again(url: str, event: Event) -> None:
    """The same event as another message, as once the stream has forgotten its id."""
    data, headers = encode(event)
    client = await bare_client.connect(url)
    kept = {name: value for name, value in headers.items() if name != MESSAGE_ID}
    await client.jetstream().publish(event.subject, data, headers=kept)
    await client.close()


async def test_a_fact_starts_a_job_exactly_once_under_repetition(harness: TriggerServiceHarness) -> None:
    await harness.start()
    key = await harness.watched(make_trigger())
    event = await harness.publish_ready("e-1")
    [job] = await harness.wait_jobs(1)
    assert job["metadata"]["annotations"][EVENT] == "e-1"
    await harness.wait_status(key, {"fired": 1})
    # Repeated while its job is there, and after it is gone.
    await publish_again(harness.nats.url, event)
    await harness.publish_ready("e-2")
    await harness.wait_jobs(2)
    await harness.cluster.delete(SAMPLE_JOBS, harness.key(job["metadata"]["name"]))
    await publish_again(harness.nats.url, event)
    await harness.publish_ready("e-3")
    jobs = await harness.wait_jobs(2)
    assert {j["metadata"]["annotations"][EVENT] for j in jobs} == {"e-2", "e-3"}
    await harness.wait_status(key, {"fired": 3, "events": 3})
    await harness.wait_facts(key, *["TriggerFired"] * 3)

    async def is_reported() -> bool:
        return {event.reason for event in await harness.kubernetes_events()} == {"SuccessfulCreate"}

    await eventually(is_reported, what="events of Kubernetes")


@pytest.mark.long
@pytest.mark.parametrize("resource", [SAMPLE_JOBS, PADDLE_JOBS], ids=lambda resource: str(resource.kind))
async def test_a_new_event_replaces_what_the_last_one_started(
    harness: TriggerServiceHarness, resource: Resource
) -> None:
    create = {"sampleJob": WARMUP} if resource == SAMPLE_JOBS else {"paddleJob": {"spec": TRAINING}}
    await harness.start()
    await harness.watched(make_trigger(create=create, concurrencyPolicy="Replace"))
    await harness.publish_ready("e-1")
    [first] = await harness.wait_jobs(1, resource)
    await harness.publish_ready("e-2")

    async def is_replaced() -> bool:
        return [job["metadata"]["annotations"][EVENT] for job in await harness.objects(resource)] == ["e-2"]

    await eventually(is_replaced, what=f"{first['metadata']['name']} is replaced")


async def test_killed_at_random_moments_every_event_starts_one_job(harness: TriggerServiceHarness) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}")
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember(harness, made))
    total = 120
    try:
        service = await harness.start_process()
        key = await harness.watched(make_trigger())
        for start in range(0, total, 20):
            for number in range(start, start + 20):
                await harness.publish_ready(f"e-{number}", name=f"set-{number}")
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            await service.kill()
            await service.start()
        await harness.wait_jobs(total, within=90)
        await harness.wait_status(key, {"fired": total, "events": total})
        await eventually(lambda: len(made) >= total, what="all jobs were seen")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert len(made) == total
    assert all(len(uids) == 1 for uids in made.values())
    await eventually(lambda: len(harness.events) >= total)
    ids = [e.id for e in harness.events]
    assert len(ids) == len(set(ids)) == total


async def _remember(harness: TriggerServiceHarness, made: dict[str, set[str]]) -> None:
    async for change in harness.cluster.watch(SAMPLE_JOBS, harness.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["annotations"][EVENT], set()).add(meta["uid"])


@pytest.mark.long
async def test_nats_is_killed_and_replicas_come_and_go_and_nothing_is_doubled(
    harness: TriggerServiceHarness,
) -> None:
    replicas = [await harness.start_process(name) for name in ("one", "two")]
    key = await harness.watched(make_trigger())
    total = 60
    for number in range(total):
        await harness.publish_ready(f"e-{number}", name=f"set-{number}")
        if number == 15:
            await asyncio.to_thread(harness.nats.restart)
        if number == 30:
            await replicas[0].kill()
        if number == 40:
            await replicas[0].start()
    jobs = await harness.wait_jobs(total, within=90)
    assert len({j["metadata"]["annotations"][EVENT] for j in jobs}) == total
    await harness.wait_status(key, {"fired": total, "events": total})
    await eventually(lambda: len(harness.events) >= total)
    assert len({e.id for e in harness.events}) == len(harness.events) == total


async def test_the_bus_loses_its_data_and_old_facts_published_again_start_nothing(
    harness: TriggerServiceHarness,
) -> None:
    await harness.start()
    key = await harness.watched(make_trigger(successfulJobsHistoryLimit=0))
    event = await harness.publish_ready("e-1")
    [job] = await harness.wait_jobs(1)
    await harness.end(job)
    await harness.wait_jobs(0, within=90)
    await asyncio.to_thread(harness.nats.lose_data)
    # As `paddlewheel bus rebuild` does.
    await harness.publish(event)
    await harness.publish_ready("e-2")
    [job] = await harness.wait_jobs(1)
    assert job["metadata"]["annotations"][EVENT] == "e-2"
    await harness.wait_status(key, {"fired": 2, "events": 2})
    # The lost stream's last fact is back, and the next one follows it.
    await eventually(lambda: len(harness.events) == 3, what="three facts")
    ids = [e.id.partition("/")[2] for e in harness.events]
    assert ids == ["TriggerFired/0", "TriggerFired/0", "TriggerFired/1"]


async def test_suspended_old_and_foreign_events_start_nothing(harness: TriggerServiceHarness) -> None:
    await harness.start()
    suspended = await harness.watched(make_trigger("off", suspend=True))
    key = await harness.watched(make_trigger("on"))
    old = make_ready("old", harness.namespace)
    await harness.publish(
        make_event(
            old.data,
            id="old",
            source="test",
            namespace=harness.namespace,
            uid="u",
            time=old.time - timedelta(hours=1),
        )
    )
    await harness.publish(make_ready("foreign", "kube-public"))
    await harness.publish_ready("e-1")
    await harness.wait_status(key, {"fired": 1, "events": 1})
    await harness.wait_status(suspended, {"fired": 0, "events": 1, "skipped": 1})
    assert len(await harness.objects(SAMPLE_JOBS)) == 1


async def test_a_refused_template_keeps_its_events_until_it_is_changed(
    harness: TriggerServiceHarness,
) -> None:
    await harness.start()
    containers = [{"name": "main", "image": "x"}]
    worker = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    foreign = {"name": "digits", "namespace": "kube-public", "mountPath": "/data"}
    spec = {"sampleSetRef": foreign, "worker": worker}
    key = await harness.watched(make_trigger(create={"paddleJob": {"spec": spec}}))
    await harness.publish_ready("e-1")
    ready = await harness.wait_condition(key, "Ready", "TemplateRefused")
    assert "spec.sampleSetRef.namespace kube-public is another namespace" in ready["message"]
    await harness.publish_ready("e-2")
    await harness.wait_waiting(key, 2)
    assert await harness.objects(PADDLE_JOBS) == []
    fixed = {"create": {"paddleJob": {"spec": {"sampleSetRef": {"namespace": None}}}}}
    await harness.cluster.patch(TRIGGERS, key, {"spec": fixed})
    [job] = await harness.wait_jobs(1, PADDLE_JOBS)
    assert job["metadata"]["annotations"] | {EVENTS: "2", EVENT: "e-2"} == job["metadata"]["annotations"]
    await harness.wait_condition(key, "Ready", "Active")
    await harness.wait_facts(key, "TriggerFailed", "TriggerFired")

    async def is_reported() -> bool:
        types = {(event.type, event.reason) for event in await harness.kubernetes_events()}
        return ("Warning", "TemplateRefused") in types

    await eventually(is_reported, what="the warning")


@pytest.mark.long
async def test_the_examples_sync_warm_and_train(harness: TriggerServiceHarness) -> None:
    """examples/triggers unchanged, except for a shorter quiet time, which no post takes."""
    await harness.serve()
    sync = await harness.example("sync-new-images", batch={"quietSeconds": 10})
    warm = await harness.example("warm-after-sync")
    train = await harness.example("train-when-ready")

    keys = [f"train/{i}.png" for i in range(50)]
    for key in keys:
        status, text = await harness.post(
            s3_body(s3_record(key, bucket="digits"), s3_record(key, bucket="other"))
        )
        assert (status, text) == (204, "")
    [copy] = await harness.wait_jobs(1)
    assert copy["spec"] == {
        "type": "sync",
        "sampleSetRef": {"name": "digits"},
        "secretRef": {"name": "digits-source"},
        "syncOptions": {"update": True},
    }
    assert copy["metadata"]["annotations"][EVENTS] == "50"
    assert copy["metadata"]["annotations"]["example.org/newest"] == keys[-1]

    # While it runs more come: for the next one.
    await harness.post(s3_body(s3_record("train/late.png", bucket="digits")))
    await harness.wait_waiting(sync, 1)
    await harness.end(copy)
    await harness.publish(make_job_succeeded("s-1", copy))
    jobs = await harness.wait_jobs(3)
    assert sorted(j["spec"]["type"] for j in jobs) == ["sync", "sync", "warmup"]
    await harness.wait_status(warm, {"fired": 1})
    [warmup] = [j for j in jobs if j["spec"]["type"] == "warmup"]
    await harness.publish(make_job_succeeded("s-2", warmup))

    await harness.publish_ready("e-1")
    await harness.publish_ready("e-1b", name="mnist")
    [job] = await harness.wait_jobs(1, PADDLE_JOBS)
    container = job["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "STARTED_BY", "value": "e-1"}]
    assert job["spec"]["sampleSetRef"]["name"] == "digits"
    await harness.publish_ready("e-2")
    await harness.wait_status(train, {"fired": 2, "active": 1})
    [job] = await harness.wait_jobs(1, PADDLE_JOBS)
    assert job["metadata"]["annotations"][EVENT] == "e-2"
    await harness.wait_status(warm, {"events": 1, "fired": 1})


@pytest.mark.long
async def test_a_notification_posted_twice_counts_once(harness: TriggerServiceHarness) -> None:
    await harness.serve()
    key = await harness.watched(make_store_trigger())
    for _ in range(3):
        assert (await harness.post(s3_body(s3_record("a b/ü.png"))))[0] == 204
    await harness.post(s3_body(s3_record("a b/ü.png", n=2), s3_record("x", bucket="other")))
    await harness.wait_jobs(2)
    await harness.wait_status(key, {"fired": 2, "events": 2})


@pytest.mark.long
async def test_a_notification_published_by_hand_counts(harness: TriggerServiceHarness) -> None:
    await harness.start()
    key = await harness.watched(make_store_trigger())
    change = ObjectCreated(source="images", bucket="images", key="a.png")
    event = make_event(
        change, id="mine-1", source="me", namespace="images", uid="d1", time=make_ready("x").time
    )
    assert event.subject.startswith("pw.src.objectstore.object.created.v1.images.")
    assert SOURCES.subjects == ("pw.src.>",)
    await harness.publish(event)
    await harness.wait_status(key, {"fired": 1})


@pytest.mark.long
async def test_its_own_work_never_fires_a_trigger_again(harness: TriggerServiceHarness) -> None:
    await harness.start()
    key = await harness.watched(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    mine = {
        "metadata": {"namespace": harness.namespace, "name": "mine"},
        "spec": {"type": "warmup", "sampleSetRef": {"name": "digits"}},
    }
    first = await harness.cluster.create(SAMPLE_JOBS, mine)
    await harness.publish(make_job_succeeded("s-1", first))
    jobs = await harness.wait_jobs(2)
    [child] = [j for j in jobs if j["metadata"]["name"] != "mine"]
    await harness.publish(make_job_succeeded("s-2", child))
    loop = await harness.wait_condition(key, "LoopGuarded", "OwnWork")
    assert "spec.when.fact.object" in loop["message"]
    await harness.wait_status(key, {"fired": 1, "skipped": 1, "events": 2})


@pytest.mark.long
async def test_the_end_of_a_job_that_no_trigger_made_fires(harness: TriggerServiceHarness) -> None:
    """It is in no cache of the service, which therefore reads whether triggers led to it."""
    await harness.start()
    key = await harness.watched(make_trigger(when={"fact": {"type": JOB_SUCCEEDED}}))
    mine = await harness.cluster.create(PADDLE_JOBS, make_paddle_job("mine", harness.namespace))
    await harness.publish(make_job_succeeded("s-1", mine))
    await harness.wait_jobs(1)
    await harness.wait_status(key, {"fired": 1, "events": 1})


@pytest.mark.long
async def test_a_hundred_triggers_need_three_durables(harness: TriggerServiceHarness) -> None:
    await harness.serve()
    await harness.watched(make_trigger("first"))
    # An event is for the triggers that the service has seen by then.
    await asyncio.gather(*(harness.watched(make_trigger(f"t-{i}")) for i in range(100)))
    client = await bare_client.connect(harness.nats.url)
    try:
        js = client.jetstream()
        durables = [
            consumer.name
            for stream in ("PW_JOBS", "PW_DATASETS", "PW_SOURCES", "PW_TRIGGERS", "PW_CACHE")
            for consumer in await js.consumers_info(stream)
            if (consumer.config.durable_name or "").startswith("trigger-controller")
        ]
    finally:
        await client.close()
    assert sorted(durables) == [f"trigger-controller-{n}" for n in ("datasets", "jobs", "sources")]
    await harness.publish_ready("e-1")
    await harness.wait_jobs(101)


@pytest.mark.long
async def test_the_command_rebuild_is_answered_by_the_real_service(harness: TriggerServiceHarness) -> None:
    """As `paddlewheel bus rebuild` asks; the last fact of each trigger is looked up, and not stored twice."""
    await harness.start()
    key = await harness.watched(make_trigger())
    await harness.publish_ready("e-1")
    await harness.publish_ready("e-2", name="other")
    await harness.wait_status(key, {"fired": 2})
    await harness.wait_facts(key, *["TriggerFired"] * 2)
    for _ in range(2):
        [report] = await rebuild(harness.bus, "trigger-controller", replicas=1, within=90)
        assert (report.service, report.objects, report.facts_published) == ("trigger-controller", 1, 0)
    await asyncio.to_thread(harness.nats.lose_data)
    await eventually(lambda: len(harness.events) == 3, what="the last fact is back")
    assert harness.events[-1].id == harness.events[1].id
