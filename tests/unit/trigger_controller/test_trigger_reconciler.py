"""From events to work over fakes: once for each event, whatever is repeated, killed or refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.trigger_controller.conftest import WARM, OpenHarness, TriggerHarness, event_of, events_of

from paddlewheel.bus.ports import RawMessage
from paddlewheel.contracts.generated.triggers_v1 import TriggerFailed, TriggerFired
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.wire import encode
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS, Object, Resource
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.triggers import (
    SAMPLE_JOB_SUCCEEDED,
    make_job_succeeded,
    make_ready,
    make_store_trigger,
    make_trigger,
)
from trigger_controller.domain import names
from trigger_controller.domain.policies import intake

TRAIN = {
    "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}
}
QUOTA = Permanent("Forbidden", "exceeded quota: jobs")


async def test_a_fact_starts_one_job_and_is_published(harness: TriggerHarness) -> None:
    trigger = await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    [job] = await harness.sample_jobs()
    assert job["spec"] == {"type": "warmup", "sampleSetRef": {"name": "digits"}}
    assert job["metadata"]["labels"] == {"events.paddlepaddle.org/trigger": "warm"}
    assert event_of(job) == "e-1"
    assert job["metadata"]["ownerReferences"][0]["uid"] == trigger["metadata"]["uid"]
    status = await harness.status_of()
    assert (status["fired"], status["events"], status["active"]) == (1, 1, 1)
    assert status["lastChild"] == {
        "kind": "SampleJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    assert (await harness.condition_of("Ready"))["reason"] == "Active"
    [fact] = harness.published
    assert isinstance(fact.data, TriggerFired)
    assert (fact.data.event_id, fact.data.events, fact.data.kind) == ("e-1", 1, "SampleJob")
    assert fact.data.created is not None
    assert (fact.data.created.name, fact.data.created.uid) == (
        job["metadata"]["name"],
        job["metadata"]["uid"],
    )
    assert await harness.event_reasons() == [("Normal", "SuccessfulCreate")]


async def test_a_repeated_event_starts_nothing_even_after_its_job_is_gone(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    event = harness.make_ready("e-1")
    await harness.publish(event)
    await harness.publish_again(event)
    [job] = await harness.sample_jobs()
    await harness.delete_job(job)
    await harness.publish_again(event)
    assert await harness.sample_jobs() == []
    assert harness.jobs_created() == 1
    assert harness.facts() == ["TriggerFired"]


async def test_an_event_is_remembered_though_the_status_has_forgotten_it(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "RECENT", 8)
    await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
    event = harness.make_ready("e-0")
    await harness.publish(event)
    await harness.publish_ready(*(f"e-{i}" for i in range(1, 20)))
    for job in await harness.sample_jobs():
        await harness.end(job)
    assert await harness.sample_jobs() == []
    await harness.publish_again(event)
    assert harness.jobs_created() == 20


async def test_the_status_remembers_when_the_bus_lost_everything(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    event = harness.make_ready("e-1")
    await harness.publish(event)
    [job] = await harness.sample_jobs()
    await harness.delete_job(job)
    bucket = harness.bus.key_value("pw_triggers")
    for entry in await bucket.entries("marks.>"):
        await bucket.delete(entry.key)
    await harness.publish_again(event)
    assert harness.jobs_created() == 1


@pytest.mark.parametrize(("verb", "resource"), [("create", SAMPLE_JOBS), ("patch-status", TRIGGERS)])
async def test_killed_anywhere_it_resumes_where_it_stopped(
    open_harness: OpenHarness, verb: Verb, resource: Resource
) -> None:
    async with open_harness() as first:
        await first.apply(make_trigger())
        with first.failing(Retry("Killed"), verb, resource):
            await first.publish_ready("e-1")
            assert (await first.status_of())["fired"] == 0
            assert first.facts() == []
            await first.restart()
        await first.drain_queue()
        assert first.jobs_created() == 1
        assert (await first.status_of())["fired"] == 1
        assert first.facts() == ["TriggerFired"]


async def test_an_unreachable_api_server_uses_up_no_attempts_in_an_hour(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    mine = await harness.cluster.create(SAMPLE_JOBS, _job("mine"))

    def away(*_: object) -> None:
        raise Retry("ApiServerUnreachable")

    with harness.intercepted(away):
        await harness.publish(make_job_succeeded("s-1", mine, time=harness.clock.now()))
        for _ in range(60):
            await harness.advance(60)
    await harness.advance(60)
    assert len(await harness.sample_jobs()) == 2
    assert harness.bus.stored("PW_DLQ") == []


async def test_two_triggers_get_one_fact_and_each_acts_once(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.apply(make_trigger("train", create={"paddleJob": TRAIN}))
    await harness.publish_ready("e-1")
    assert (len(await harness.sample_jobs()), len(await harness.paddle_jobs())) == (1, 1)


@pytest.mark.parametrize(
    ("when", "event"),
    [
        ({"fact": {"type": "paddlewheel.datasets.v1.SampleSetSynced"}}, {}),
        ({"fact": {"type": "paddlewheel.datasets.v1.SampleSetReady", "object": {"name": "mnist"}}}, {}),
        ({"fact": {"type": "paddlewheel.datasets.v1.SampleSetReady"}}, {"namespace": "other"}),
        ({"objectStore": {"source": "images", "bucket": "images"}}, {}),
    ],
    ids=["other fact", "other object", "other namespace", "no fact"],
)
async def test_what_does_not_match_starts_nothing(
    harness: TriggerHarness, when: Object, event: dict[str, str]
) -> None:
    await harness.apply(make_trigger(when=when))
    await harness.publish(harness.make_ready("e-1", **event))
    assert await harness.sample_jobs() == []
    assert (await harness.status_of())["events"] == 0


async def test_what_is_older_than_the_trigger_starts_nothing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish(make_ready("old", time=harness.clock.now() - timedelta(minutes=1)))
    assert await harness.sample_jobs() == []


async def test_a_suspended_trigger_skips(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(suspend=True))
    event = harness.make_ready("e-1")
    await harness.publish(event)
    assert await harness.sample_jobs() == []
    status = await harness.status_of()
    assert (status["events"], status["skipped"]) == (1, 1)
    assert (await harness.condition_of("Ready"))["reason"] == "Suspended"
    await harness.change({"suspend": False})
    await harness.publish_again(event)
    assert await harness.sample_jobs() == []
    await harness.publish_ready("e-2")
    assert len(await harness.sample_jobs()) == 1
    assert await harness.event_reasons() == [("Normal", "SuccessfulCreate")]


async def test_a_refused_template_holds_its_events_until_it_is_changed(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with harness.failing(QUOTA, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-1")
        await harness.publish(harness.make_ready("e-2"))
    status = await harness.status_of()
    assert (status["fired"], status["waiting"]["events"], status["waiting"]["newest"]["id"]) == (0, 2, "e-2")
    ready = await harness.condition_of("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TemplateRefused")
    assert "exceeded quota: jobs" in ready["message"]
    [fact] = harness.published
    assert isinstance(fact.data, TriggerFailed)
    assert (fact.data.reason, fact.data.event_id, fact.data.events) == ("Forbidden", "e-1", 1)
    assert harness.bus.stored("PW_DLQ") == []
    assert ("Warning", "TemplateRefused") in await harness.event_reasons()

    await harness.change({"successfulJobsHistoryLimit": 5})
    [job] = await harness.sample_jobs()
    assert events_of(job) == "2"
    status = await harness.status_of()
    assert (status["fired"], "waiting" in status, "refused" in status) == (1, False, False)
    assert (await harness.condition_of("Ready"))["reason"] == "Active"


async def test_a_refusal_that_passes_by_itself_is_tried_again_and_reported_once(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    with harness.failing(QUOTA, "create", SAMPLE_JOBS) as tries:
        await harness.publish_ready("e-1")
        for _ in range(5):
            await harness.advance(61)
    assert len(tries) == 6
    assert harness.facts() == ["TriggerFailed"]
    await harness.advance(61)
    assert len(await harness.sample_jobs()) == 1
    assert harness.facts() == ["TriggerFailed", "TriggerFired"]


async def test_an_unknown_name_in_the_template_is_reported_before_any_event(harness: TriggerHarness) -> None:
    spec = {"type": "warmup", "sampleSetRef": {"name": "$(store.key)"}}
    await harness.apply(make_trigger(create={"sampleJob": {"spec": spec}}))
    ready = await harness.condition_of("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidTemplate")
    assert "$(store.key) has no value in this trigger; use one of $(event.count)" in ready["message"]
    await harness.publish_ready("e-1")
    assert (await harness.status_of())["waiting"]["events"] == 1
    await harness.change({"create": {"sampleJob": {"spec": {"sampleSetRef": {"name": "$(object.name)"}}}}})
    [job] = await harness.sample_jobs()
    assert job["spec"]["sampleSetRef"] == {"name": "digits"}


async def test_another_object_of_the_name_is_never_touched(harness: TriggerHarness) -> None:
    trigger = await harness.apply(make_trigger())
    name = names.child_name("warm", trigger["metadata"]["uid"], "e-1")
    before = await harness.cluster.create(SAMPLE_JOBS, _job(name, {"type": "clear"}))
    await harness.publish_ready("e-1")
    assert await harness.sample_jobs() == [before]
    ready = await harness.condition_of("Ready")
    assert (ready["reason"], "NameTaken" in ready["message"]) == ("TemplateRefused", True)
    await harness.delete_job(before)
    await harness.advance(61)
    assert len(await harness.sample_jobs()) == 1


async def test_a_child_made_for_another_event_is_never_claimed(harness: TriggerHarness) -> None:
    trigger = await harness.apply(make_trigger())
    name = names.child_name("warm", trigger["metadata"]["uid"], "e-1")
    await harness.publish_ready("e-0")
    [other] = await harness.sample_jobs()
    await harness.delete_job(other)
    before = await harness.cluster.create(
        SAMPLE_JOBS, other | {"metadata": other["metadata"] | {"name": name}}
    )
    await harness.publish(harness.make_ready("e-1"))
    assert await harness.sample_jobs() == [before]
    assert "NameTaken" in (await harness.condition_of("Ready"))["message"]


async def test_forbid_gathers_while_a_job_runs_and_fires_once_for_all(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(concurrencyPolicy="Forbid"))
    await harness.publish_ready("e-1")
    [first] = await harness.sample_jobs()
    for number in range(2, 6):
        await harness.publish_ready(f"e-{number}")
    assert len(await harness.sample_jobs()) == 1
    assert (await harness.status_of())["waiting"]["events"] == 4
    await harness.end(first)
    jobs = await harness.sample_jobs()
    [second] = [j for j in jobs if j["metadata"]["uid"] != first["metadata"]["uid"]]
    assert (events_of(second), event_of(second)) == ("4", "e-5")
    await harness.end(second)
    assert len(await harness.sample_jobs()) == 2
    assert [e.data.events for e in harness.published if isinstance(e.data, TriggerFired)] == [1, 4]


async def test_forbid_sees_what_another_replica_created_though_its_cache_lags(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as harness:
        trigger = await harness.apply(make_trigger(concurrencyPolicy="Forbid"))
        [watch] = [w for w in harness.cluster._watches if w.resource == SAMPLE_JOBS]
        watch.put = lambda *_: None  # type: ignore[method-assign]
        owner = {"kind": "Trigger", "name": "warm", "uid": trigger["metadata"]["uid"], "controller": True}
        running = _job("warm-other")
        running["metadata"] |= {
            "labels": {"events.paddlepaddle.org/trigger": "warm"},
            "ownerReferences": [owner],
        }
        await harness.cluster.create(SAMPLE_JOBS, running)
        await harness.publish_ready("e-1")
        assert len(await harness.sample_jobs()) == 1
        assert (await harness.status_of())["waiting"]["events"] == 1


@pytest.mark.parametrize("batch", [None, {"quietSeconds": 30}], ids=["alone", "batch"])
@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
async def test_what_waits_costs_no_lists_until_it_may_fire(
    harness: TriggerHarness, policy: str, batch: Object | None
) -> None:
    await harness.apply(make_trigger(concurrencyPolicy=policy, batch=batch))
    await harness.publish_ready("e-1")
    await harness.advance(31)
    [running] = await harness.sample_jobs()
    key = Key("default", running["metadata"]["name"])
    with harness.failing(QUOTA, "create", SAMPLE_JOBS), harness.recorded_calls() as calls:
        await harness.publish_ready("e-2")
        if policy == "Replace" and batch is None:
            # It was due at once, and refused: now it waits for its next try.
            calls.clear()
        for done in range(5):
            await harness.set_status(key, {"phase": "Running", "progress": {"done": done}}, SAMPLE_JOBS)
            await harness.drain_queue()
        assert (await harness.status_of())["waiting"]["events"] == 1
    assert [call for call in calls if call[0] == "list" and call[1] == SAMPLE_JOBS.plural] == []
    with harness.recorded_calls() as calls:
        await harness.end(running)
        await harness.advance(61)
    assert harness.jobs_created() == 2
    assert len([call for call in calls if call[0] == "list"]) == 2 * 2


async def test_replace_ends_the_running_job_only_once_the_new_one_exists(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(concurrencyPolicy="Replace"))
    await harness.publish_ready("e-1")
    [first] = await harness.sample_jobs()
    with harness.failing(QUOTA, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-2")
        assert [j["metadata"]["uid"] for j in await harness.sample_jobs()] == [first["metadata"]["uid"]]
    await harness.advance(61)
    [second] = await harness.sample_jobs()
    assert event_of(second) == "e-2"
    assert (await harness.status_of())["active"] == 1


async def test_a_batch_fires_when_it_is_quiet(harness: TriggerHarness) -> None:
    await harness.apply(make_store_trigger(batch={"quietSeconds": 30}))
    await harness.notify(*(f"train/{i}.png" for i in range(40)))
    await harness.advance(20)
    await harness.notify("train/late.png")
    assert await harness.sample_jobs() == []
    await harness.advance(29)
    assert await harness.sample_jobs() == []
    await harness.advance(2)
    [job] = await harness.sample_jobs()
    assert events_of(job) == "41"
    status = await harness.status_of("new-images")
    assert (status["events"], status["fired"]) == (41, 1)


async def test_a_full_batch_does_not_wait(harness: TriggerHarness) -> None:
    await harness.apply(make_store_trigger(batch={"quietSeconds": 3600, "maxEvents": 10}))
    await harness.notify(*(f"{i}.png" for i in range(9)))
    assert await harness.sample_jobs() == []
    await harness.notify("last.png")
    assert len(await harness.sample_jobs()) == 1


async def test_a_batch_killed_between_its_two_steps_fires_once(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        await harness.apply(make_store_trigger(batch={"quietSeconds": 5}))
        await harness.notify("a.png", "b.png")

        def die(verb: Verb, resource: Resource, _: Key) -> None:
            if (verb, resource) == ("patch-status", TRIGGERS) and harness.jobs_created():
                raise Retry("Killed")

        with harness.intercepted(die):
            await harness.advance(6)
            assert (await harness.status_of("new-images"))["firing"]["events"] == 2
            await harness.restart()
        await harness.notify("c.png")
        await harness.advance(6)
        assert sorted(events_of(j) for j in await harness.sample_jobs()) == ["1", "2"]
        assert (await harness.status_of("new-images"))["fired"] == 2


async def test_history_is_kept_within_its_limits(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0))
    for number in range(4):
        await harness.publish_ready(f"e-{number}")
        await harness.advance(5)
    jobs = sorted(await harness.sample_jobs(), key=lambda j: str(j["metadata"]["creationTimestamp"]))
    for job in jobs[:3]:
        await harness.end(job)
    await harness.end(jobs[3], "Failed")
    left = {j["metadata"]["name"] for j in await harness.sample_jobs()}
    assert left == {j["metadata"]["name"] for j in jobs[1:3]}
    assert (await harness.status_of())["active"] == 0


async def test_a_job_that_ended_before_its_event_was_recorded_is_not_created_again(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
        with harness.failing(Retry("Killed"), "patch-status", TRIGGERS):
            await harness.publish_ready("e-1")
            [job] = await harness.sample_jobs()
            await harness.end(job)
            await harness.restart()
        await harness.drain_queue()
        assert harness.jobs_created() == 1
        await harness.advance(60)
        assert await harness.sample_jobs() == []
        assert (harness.jobs_created(), (await harness.status_of())["fired"]) == (1, 1)


async def test_a_trigger_never_answers_to_its_own_work(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    first = await harness.cluster.create(SAMPLE_JOBS, _job("mine"))
    await harness.publish(make_job_succeeded("s-1", first, time=harness.clock.now()))
    [child] = [j for j in await harness.sample_jobs() if j["metadata"]["name"] != "mine"]
    await harness.publish(make_job_succeeded("s-2", child, time=harness.clock.now()))
    assert len(await harness.sample_jobs()) == 2
    loop = await harness.condition_of("LoopGuarded")
    assert (loop["status"], loop["reason"]) == ("True", "OwnWork")
    assert "spec.when.fact.object" in loop["message"]
    assert (await harness.status_of())["skipped"] == 1
    # Also when the child is gone by the time its fact comes.
    await harness.delete_job(child)
    await harness.publish(make_job_succeeded("s-3", child, time=harness.clock.now()))
    assert len(await harness.sample_jobs()) == 1
    assert ("Warning", "OwnWork") in await harness.event_reasons()
    await harness.change({"when": {"fact": {"object": {"name": "mine"}}}})
    assert (await harness.condition_of("LoopGuarded"))["status"] == "False"


async def test_what_a_child_follows_from_is_written_on_it(harness: TriggerHarness) -> None:
    first = await harness.apply(make_trigger("first"))
    fact = {"type": SAMPLE_JOB_SUCCEEDED, "object": {"createdBy": "first"}}
    second = await harness.apply(make_trigger("second", when={"fact": fact}))
    await harness.publish_ready("e-1")
    [start] = await harness.sample_jobs()
    await harness.publish(make_job_succeeded("s-0", start, time=harness.clock.now()))
    jobs = {
        j["metadata"]["labels"]["events.paddlepaddle.org/trigger"]: j for j in await harness.sample_jobs()
    }
    chain = jobs["second"]["metadata"]["annotations"]["events.paddlepaddle.org/chain"]
    assert chain == f"{first['metadata']['uid']},{second['metadata']['uid']}"


async def test_a_ring_of_triggers_ends_after_one_round(harness: TriggerHarness) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        fact = {"type": SAMPLE_JOB_SUCCEEDED, "object": {"createdBy": other}}
        await harness.apply(make_trigger(name, when={"fact": fact}))
    seed = _job("seed")
    seed["metadata"]["labels"] = {"events.paddlepaddle.org/trigger": "b"}
    job = await harness.cluster.create(SAMPLE_JOBS, seed)
    for number in range(6):
        await harness.publish(make_job_succeeded(f"s-{number}", job, time=harness.clock.now()))
        newest = [j for j in await harness.sample_jobs() if j["metadata"]["name"] != "seed"]
        job = max(newest, key=lambda j: int(j["metadata"]["resourceVersion"]))
    assert len(await harness.sample_jobs()) == 3
    assert (await harness.condition_of("LoopGuarded", "a"))["reason"] == "OwnWork"


async def test_a_deleted_trigger_lets_its_events_go(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.delete(WARM)
    await harness.publish_ready("e-1")
    assert await harness.sample_jobs() == []
    assert harness.bus.stored("PW_DLQ") == []


async def test_a_trigger_being_deleted_starts_nothing(harness: TriggerHarness) -> None:
    trigger = make_trigger()
    trigger["metadata"]["finalizers"] = ["example.org/held"]
    await harness.apply(trigger)
    await harness.delete(WARM)
    await harness.publish_ready("e-1")
    assert await harness.sample_jobs() == []
    assert harness.bus.stored("PW_DLQ") == []


async def test_nothing_is_written_when_nothing_happens(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    await harness.settle(WARM)
    await harness.advance(CONFIRM_GRACE_SECONDS)
    with harness.counted_writes() as writes:
        for _ in range(3):
            await harness.reconcile(WARM)
            await harness.catch_up()
        await harness.advance(600)
    assert writes == {}


async def test_own_writes_cause_no_pass(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.bus.publish(harness.make_ready("e-1"))
    await harness.catch_up()
    assert harness.woken == [WARM]
    harness.forget_woken()
    await harness.reconcile(WARM)
    await harness.catch_up()
    assert (await harness.status_of())["fired"] == 1
    assert harness.woken == []


async def test_many_events_cost_few_status_writes(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    before = harness.status_writes()
    await harness.publish_ready(*(f"e-{i}" for i in range(100)))
    assert len(await harness.sample_jobs()) == 100
    assert (await harness.status_of())["fired"] == 100
    assert harness.status_writes() - before < 20
    assert harness.facts() == ["TriggerFired"] * 100


async def test_a_message_that_cannot_be_read_is_parked_and_the_rest_goes_on(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    _, headers = encode(harness.make_ready("e-1"))
    subject = "pw.evt.datasets.sampleset.ready.v1.default.x"
    await harness.bus.publish_raw(RawMessage(subject, b"{", headers | {"Nats-Msg-Id": "bad"}))
    await harness.publish_ready("e-2")
    assert len(await harness.sample_jobs()) == 1
    assert len(harness.bus.stored("PW_DLQ")) == 1


def _job(name: str, spec: Any = None) -> Object:
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec or {}}
