"""From events to work over memory adapters: once for each event, whatever is repeated, killed or refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import DATASETS
from paddlewheel.contracts.generated.triggers_v1 import TriggerFailed, TriggerFired
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.wire import encode
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS
from paddlewheel.testkit.triggers import (
    SAMPLE_JOB_SUCCEEDED,
    make_job_succeeded,
    make_ready,
    make_store_trigger,
    make_trigger,
)
from trigger_controller.domain import names
from trigger_controller.domain.policies.intake import RECENT

WARM = Key("default", "warm")
IMAGES = Key("default", "new-images")
TRAIN = {
    "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}
}


async def redeliver(desk: Any, event: Any) -> None:
    """The same message once more, after the stream forgot that it has it."""
    await desk.clock.advance(DATASETS.duplicate_window + 1)
    await desk.tell(event)


async def test_a_fact_starts_one_job_and_is_told(desk: Any) -> None:
    trigger = await desk.create(make_trigger())
    await desk.ready("e-1")
    [job] = await desk.sample_jobs()
    assert job["spec"] == {"type": "warmup", "sampleSetRef": {"name": "digits"}}
    assert job["metadata"]["labels"] == {"events.paddlepaddle.org/trigger": "warm"}
    assert job["metadata"]["annotations"]["events.paddlepaddle.org/event"] == "e-1"
    assert job["metadata"]["ownerReferences"][0]["uid"] == trigger["metadata"]["uid"]
    status = await desk.status()
    assert (status["fired"], status["events"], status["active"]) == (1, 1, 1)
    assert status["lastChild"] == {
        "kind": "SampleJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    assert (await desk.condition("Ready"))["reason"] == "Active"
    [fact] = desk.bus.events("PW_TRIGGERS")
    assert isinstance(fact.data, TriggerFired)
    assert (fact.data.event_id, fact.data.events, fact.data.kind) == ("e-1", 1, "SampleJob")
    assert await desk.notes() == [("Normal", "Fired")]


async def test_a_repeated_event_starts_nothing_even_after_its_job_is_gone(desk: Any) -> None:
    await desk.create(make_trigger())
    event = make_ready("e-1", time=desk.clock.now())
    await desk.tell(event)
    await redeliver(desk, event)
    assert len(await desk.sample_jobs()) == 1
    [job] = await desk.sample_jobs()
    await desk.cluster.delete(SAMPLE_JOBS, Key("default", job["metadata"]["name"]))
    await redeliver(desk, event)
    assert await desk.sample_jobs() == []
    assert desk.cluster.writes["create", "samplejobs"] == 1
    assert desk.facts() == ["TriggerFired"]


async def test_an_event_is_remembered_though_hundreds_came_after_it(desk: Any) -> None:
    await desk.create(make_trigger(successfulJobsHistoryLimit=0))
    event = make_ready("e-0", time=desk.clock.now())
    await desk.tell(event)
    later = range(1, RECENT + 50)
    await desk.tell(*(make_ready(f"e-{i}", name=f"set-{i}", time=desk.clock.now()) for i in later))
    for job in await desk.sample_jobs():
        await desk.end(job)
    assert await desk.sample_jobs() == []
    await redeliver(desk, event)
    assert desk.cluster.writes["create", "samplejobs"] == RECENT + 50


async def test_the_status_remembers_when_the_bus_lost_everything(desk: Any) -> None:
    await desk.create(make_trigger())
    event = make_ready("e-1", time=desk.clock.now())
    await desk.tell(event)
    [job] = await desk.sample_jobs()
    await desk.cluster.delete(SAMPLE_JOBS, Key("default", job["metadata"]["name"]))
    bucket = desk.bus.key_value("pw_triggers")
    for entry in await bucket.entries("event.>"):
        await bucket.delete(entry.key)
    await redeliver(desk, event)
    assert desk.cluster.writes["create", "samplejobs"] == 1


@pytest.mark.parametrize("dies_at", ["create", "patch-status"])
async def test_cut_off_anywhere_it_goes_on_where_it_stopped(open_desk: Any, dies_at: str) -> None:
    async with open_desk() as first:
        await first.create(make_trigger())

        def die(verb: str, resource: Any, _: Key) -> None:
            if verb == dies_at and resource in (SAMPLE_JOBS, TRIGGERS):
                raise Retry("Killed")

        first.cluster.intercept = die
        await first.ready("e-1")
        assert (await first.status())["fired"] == 0
    async with open_desk() as second:
        second.cluster.intercept = lambda *_: None
        await second.settle()
        assert second.cluster.writes["create", "samplejobs"] == 1
        assert (await second.status())["fired"] == 1
        assert second.facts() == ["TriggerFired"]


async def test_an_api_server_that_is_away_for_an_hour_uses_up_no_attempts(desk: Any) -> None:
    await desk.create(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    job = {"metadata": {"namespace": "default", "name": "mine"}, "spec": {}}
    made = await desk.cluster.create(SAMPLE_JOBS, job)

    def away(*_: Any) -> None:
        raise Retry("ApiServerUnreachable")

    desk.cluster.intercept = away
    await desk.tell(make_job_succeeded("s-1", made, time=desk.clock.now()))
    for _ in range(60):
        await desk.pass_time(60)
    desk.cluster.intercept = lambda *_: None
    await desk.pass_time(60)
    assert len(await desk.sample_jobs()) == 2
    assert desk.bus.stored("PW_DLQ") == []


async def test_two_triggers_hear_one_fact_and_each_acts_once(desk: Any) -> None:
    await desk.create(make_trigger())
    await desk.create(make_trigger("train", create={"paddleJob": TRAIN}))
    await desk.ready("e-1")
    assert (len(await desk.sample_jobs()), len(await desk.paddle_jobs())) == (1, 1)


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
async def test_what_does_not_match_starts_nothing(desk: Any, when: Any, event: Any) -> None:
    await desk.create(make_trigger(when=when))
    await desk.ready("e-1", **event)
    assert await desk.sample_jobs() == []
    assert (await desk.status())["events"] == 0


async def test_what_is_older_than_the_trigger_starts_nothing(desk: Any) -> None:
    await desk.create(make_trigger())
    await desk.tell(make_ready("old", time=desk.clock.now() - timedelta(minutes=1)))
    assert await desk.sample_jobs() == []


async def test_a_suspended_trigger_skips(desk: Any) -> None:
    await desk.create(make_trigger(suspend=True))
    event = make_ready("e-1", time=desk.clock.now())
    await desk.tell(event)
    assert await desk.sample_jobs() == []
    status = await desk.status()
    assert (status["events"], status["skipped"]) == (1, 1)
    assert (await desk.condition("Ready"))["reason"] == "Suspended"
    await desk.change({"suspend": False})
    await redeliver(desk, event)
    assert await desk.sample_jobs() == []
    await desk.ready("e-2")
    assert len(await desk.sample_jobs()) == 1
    assert await desk.notes() == [("Normal", "Fired")]


def refuse_samples(verb: str, resource: Any, _: Key) -> None:
    if (verb, resource) == ("create", SAMPLE_JOBS):
        raise Permanent("Forbidden", "exceeded quota: jobs")


async def test_a_refused_template_holds_its_events_until_it_is_mended(desk: Any) -> None:
    await desk.create(make_trigger())
    desk.cluster.intercept = refuse_samples
    await desk.ready("e-1")
    await desk.ready("e-2")
    status = await desk.status()
    assert (status["fired"], status["waiting"]["events"], status["waiting"]["newest"]["id"]) == (0, 2, "e-2")
    ready = await desk.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TemplateRefused")
    assert "exceeded quota: jobs" in ready["message"]
    [fact] = desk.bus.events("PW_TRIGGERS")
    assert isinstance(fact.data, TriggerFailed)
    assert (fact.data.reason, fact.data.event_id) == ("Forbidden", "e-1")
    assert desk.bus.stored("PW_DLQ") == []
    assert ("Warning", "TemplateRefused") in await desk.notes()

    desk.cluster.intercept = lambda *_: None
    await desk.change({"successfulJobsHistoryLimit": 5})
    [job] = await desk.sample_jobs()
    assert job["metadata"]["annotations"]["events.paddlepaddle.org/events"] == "2"
    status = await desk.status()
    assert (status["fired"], "waiting" in status, "refused" in status) == (1, False, False)
    assert (await desk.condition("Ready"))["reason"] == "Active"


async def test_a_refusal_that_heals_by_itself_is_tried_again_and_told_once(desk: Any) -> None:
    await desk.create(make_trigger())
    desk.cluster.intercept = refuse_samples
    await desk.ready("e-1")
    for _ in range(5):
        await desk.pass_time(61)
    assert desk.facts() == ["TriggerFailed"]
    desk.cluster.intercept = lambda *_: None
    await desk.pass_time(61)
    assert len(await desk.sample_jobs()) == 1
    assert desk.facts() == ["TriggerFailed", "TriggerFired"]


async def test_an_unknown_name_in_the_template_is_said_before_any_event(desk: Any) -> None:
    spec = {"type": "warmup", "sampleSetRef": {"name": "$(store.key)"}}
    await desk.create(make_trigger(create={"sampleJob": {"spec": spec}}))
    ready = await desk.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidTemplate")
    assert "$(store.key) has no value here; use one of $(event.count)" in ready["message"]
    await desk.ready("e-1")
    assert (await desk.status())["waiting"]["events"] == 1
    await desk.change({"create": {"sampleJob": {"spec": {"sampleSetRef": {"name": "$(object.name)"}}}}})
    [job] = await desk.sample_jobs()
    assert job["spec"]["sampleSetRef"] == {"name": "digits"}


async def test_another_object_of_the_name_is_never_touched(desk: Any) -> None:
    trigger = await desk.create(make_trigger())
    name = names.child_name("warm", names.digest(trigger["metadata"]["uid"], "e-1"))
    foreign = {"metadata": {"namespace": "default", "name": name}, "spec": {"type": "clear"}}
    before = await desk.cluster.create(SAMPLE_JOBS, foreign)
    await desk.ready("e-1")
    assert await desk.sample_jobs() == [before]
    ready = await desk.condition("Ready")
    assert (ready["reason"], "NameTaken" in ready["message"]) == ("TemplateRefused", True)
    await desk.cluster.delete(SAMPLE_JOBS, Key("default", name))
    await desk.pass_time(61)
    assert len(await desk.sample_jobs()) == 1


async def test_forbid_gathers_while_a_job_runs_and_fires_once_for_all(desk: Any) -> None:
    await desk.create(make_trigger(concurrencyPolicy="Forbid"))
    await desk.ready("e-1")
    [first] = await desk.sample_jobs()
    for number in range(2, 6):
        await desk.ready(f"e-{number}")
    assert len(await desk.sample_jobs()) == 1
    assert (await desk.status())["waiting"]["events"] == 4
    await desk.end(first)
    jobs = await desk.sample_jobs()
    [second] = [j for j in jobs if j["metadata"]["uid"] != first["metadata"]["uid"]]
    marks = second["metadata"]["annotations"]
    assert marks["events.paddlepaddle.org/events"] == "4"
    assert marks["events.paddlepaddle.org/event"] == "e-5"
    await desk.end(second)
    assert len(await desk.sample_jobs()) == 2
    fired = [e.data.events for e in desk.bus.events("PW_TRIGGERS")]
    assert fired == [1, 4]


async def test_replace_ends_the_running_job_only_once_the_new_one_is_there(desk: Any) -> None:
    await desk.create(make_trigger(concurrencyPolicy="Replace"))
    await desk.ready("e-1")
    [first] = await desk.sample_jobs()
    desk.cluster.intercept = refuse_samples
    await desk.ready("e-2")
    assert [j["metadata"]["uid"] for j in await desk.sample_jobs()] == [first["metadata"]["uid"]]
    desk.cluster.intercept = lambda *_: None
    await desk.pass_time(61)
    [second] = await desk.sample_jobs()
    assert second["metadata"]["annotations"]["events.paddlepaddle.org/event"] == "e-2"


async def test_a_batch_fires_when_it_is_quiet(desk: Any) -> None:
    await desk.create(make_store_trigger(batch={"quietSeconds": 30}))
    await desk.notify(*(f"train/{i}.png" for i in range(40)))
    await desk.pass_time(20)
    await desk.notify("train/late.png")
    assert await desk.sample_jobs() == []
    await desk.pass_time(29)
    assert await desk.sample_jobs() == []
    await desk.pass_time(2)
    [job] = await desk.sample_jobs()
    assert job["metadata"]["annotations"]["events.paddlepaddle.org/events"] == "41"
    status = await desk.status(IMAGES)
    assert (status["events"], status["fired"]) == (41, 1)


async def test_a_full_batch_does_not_wait(desk: Any) -> None:
    await desk.create(make_store_trigger(batch={"quietSeconds": 3600, "maxEvents": 10}))
    await desk.notify(*(f"{i}.png" for i in range(9)))
    assert await desk.sample_jobs() == []
    await desk.notify("last.png")
    assert len(await desk.sample_jobs()) == 1


async def test_a_batch_cut_off_between_its_two_steps_fires_once(open_desk: Any) -> None:
    async with open_desk() as first:
        await first.create(make_store_trigger(batch={"quietSeconds": 5}))
        await first.notify("a.png", "b.png")

        def die(verb: str, resource: Any, _: Key) -> None:
            if (verb, resource) == ("patch-status", TRIGGERS) and first.cluster.writes[
                "create", "samplejobs"
            ]:
                raise Retry("Killed")

        first.cluster.intercept = die
        await first.pass_time(6)
        assert (await first.status(IMAGES))["firing"]["events"] == 2
    async with open_desk() as second:
        second.cluster.intercept = lambda *_: None
        await second.notify("c.png")
        await second.pass_time(6)
        events = [
            j["metadata"]["annotations"]["events.paddlepaddle.org/events"] for j in await second.sample_jobs()
        ]
        assert sorted(events) == ["1", "2"]
        assert (await second.status(IMAGES))["fired"] == 2


async def test_history_is_kept_within_its_limits(desk: Any) -> None:
    await desk.create(make_trigger(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0))
    for number in range(4):
        await desk.ready(f"e-{number}")
        await desk.clock.advance(5)
    jobs = sorted(await desk.sample_jobs(), key=lambda j: j["metadata"]["creationTimestamp"])
    for job in jobs[:3]:
        await desk.end(job)
    await desk.end(jobs[3], "Failed")
    left = {j["metadata"]["name"] for j in await desk.sample_jobs()}
    assert left == {j["metadata"]["name"] for j in jobs[1:3]}
    assert (await desk.status())["active"] == 0


async def test_a_trigger_never_answers_to_its_own_work(desk: Any) -> None:
    await desk.create(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    first = await desk.cluster.create(
        SAMPLE_JOBS, {"metadata": {"namespace": "default", "name": "mine"}, "spec": {}}
    )
    await desk.tell(make_job_succeeded("s-1", first, time=desk.clock.now()))
    [child] = [j for j in await desk.sample_jobs() if j["metadata"]["name"] != "mine"]
    await desk.tell(make_job_succeeded("s-2", child, time=desk.clock.now()))
    assert len(await desk.sample_jobs()) == 2
    loop = await desk.condition("LoopGuarded")
    assert (loop["status"], loop["reason"]) == ("True", "OwnWork")
    assert "spec.when.fact.object" in loop["message"]
    assert (await desk.status())["skipped"] == 1
    # Also when the child is gone by the time its fact comes.
    await desk.cluster.delete(SAMPLE_JOBS, Key("default", child["metadata"]["name"]))
    await desk.tell(make_job_succeeded("s-3", child, time=desk.clock.now()))
    assert len(await desk.sample_jobs()) == 1
    assert ("Warning", "OwnWork") in await desk.notes()
    await desk.change({"when": {"fact": {"object": {"name": "mine"}}}})
    assert (await desk.condition("LoopGuarded"))["status"] == "False"


async def test_what_follows_from_what_is_written_on_it(desk: Any) -> None:
    first = await desk.create(make_trigger("first"))
    fact = {"type": SAMPLE_JOB_SUCCEEDED, "object": {"createdBy": "first"}}
    second = await desk.create(make_trigger("second", when={"fact": fact}))
    await desk.ready("e-1")
    [start] = await desk.sample_jobs()
    await desk.tell(make_job_succeeded("s-0", start, time=desk.clock.now()))
    jobs = {j["metadata"]["labels"]["events.paddlepaddle.org/trigger"]: j for j in await desk.sample_jobs()}
    chain = jobs["second"]["metadata"]["annotations"]["events.paddlepaddle.org/chain"]
    assert chain == f"{first['metadata']['uid']},{second['metadata']['uid']}"


async def test_a_ring_of_triggers_ends_after_one_round(desk: Any) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        fact = {"type": SAMPLE_JOB_SUCCEEDED, "object": {"createdBy": other}}
        await desk.create(make_trigger(name, when={"fact": fact}))
    seed = {
        "metadata": {
            "namespace": "default",
            "name": "seed",
            "labels": {"events.paddlepaddle.org/trigger": "b"},
        },
        "spec": {},
    }
    job = await desk.cluster.create(SAMPLE_JOBS, seed)
    for number in range(6):
        await desk.tell(make_job_succeeded(f"s-{number}", job, time=desk.clock.now()))
        newest = [j for j in await desk.sample_jobs() if j["metadata"]["name"] != "seed"]
        job = max(newest, key=lambda j: int(j["metadata"]["resourceVersion"]))
    assert len(await desk.sample_jobs()) == 3
    assert (await desk.condition("LoopGuarded", Key("default", "a")))["reason"] == "OwnWork"


async def test_a_deleted_trigger_lets_its_events_go(desk: Any) -> None:
    await desk.create(make_trigger())
    await desk.cluster.delete(TRIGGERS, WARM)
    await desk.ready("e-1")
    assert await desk.sample_jobs() == []
    assert desk.bus.stored("PW_DLQ") == []


async def test_nothing_is_written_when_nothing_happens(desk: Any) -> None:
    await desk.create(make_trigger())
    await desk.ready("e-1")
    before = dict(desk.cluster.writes)
    for _ in range(3):
        await desk.reconcile(WARM)
        await desk.catch_up()
    assert dict(desk.cluster.writes) == before


async def test_many_events_cost_few_status_writes(desk: Any) -> None:
    await desk.create(make_trigger())
    before = desk.cluster.writes["patch-status", "triggers"]
    await desk.tell(*(make_ready(f"e-{i}", name=f"set-{i}", time=desk.clock.now()) for i in range(100)))
    assert len(await desk.sample_jobs()) == 100
    assert (await desk.status())["fired"] == 100
    assert desk.cluster.writes["patch-status", "triggers"] - before < 20


async def test_a_message_no_handler_can_read_is_parked_and_the_rest_goes_on(desk: Any) -> None:
    await desk.create(make_trigger())
    _, headers = encode(make_ready("e-1", time=desk.clock.now()))
    subject = "pw.evt.datasets.sampleset.ready.v1.default.x"
    await desk.bus.publish_raw(RawMessage(subject, b"{", headers | {"Nats-Msg-Id": "bad"}))
    await desk.ready("e-2")
    assert len(await desk.sample_jobs()) == 1
    assert len(desk.bus.stored("PW_DLQ")) == 1
