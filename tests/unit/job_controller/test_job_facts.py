"""Facts on the bus: what they say, a dead bus, deletion."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core import names
from job_controller.core.facts import FACTS, Case
from job_controller.core.job_status import JobStatus
from job_controller.core.parse import parse_job
from paddlewheel.bus.streams import MODELS
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobGated, JobRestarted, JobRunning
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import parse_event_subject
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object, Resource
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.sdk import narrowing
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

STATUS_WRITES_OF_A_JOB = 2
"""A recorded message costs no write."""
BYTES_OF_A_FACT = 600


async def test_a_dead_bus_holds_nothing_up_and_facts_come_later_in_order(harness: JobHarness) -> None:
    harness.bus.down = True
    key = await harness.to_running(make_paddle_job(worker=make_role(2), cleanPodPolicy="Never"))
    result = await harness.settle(key)
    assert result.requeue_after == 5.0
    assert list((await harness.announced(key)).values()) == [False] * 3
    assert harness.facts() == []

    harness.bus.down = False
    await harness.clock.advance(result.requeue_after)
    result = await harness.settle(key)
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning"]
    assert result.requeue_after == 3.0
    await harness.advance(3)
    assert list((await harness.announced(key)).values()) == [True] * 3
    assert (await harness.settle(key)).requeue_after is None
    assert [e.time for e in harness.published] == [datetime(2026, 1, 1, tzinfo=UTC)] * 3


URI = "s3://models/digits/3"
DIGEST, OTHER_DIGEST = (f"sha256:{digit * 64}" for digit in "34")


def saved(uri: str = URI, **more: Any) -> str:
    """The termination message of a program that has saved its model."""
    return json.dumps({"accuracy": 0.97, "model": {"uri": uri, **more}})


def job_with_model(**model: Any) -> Object:
    return make_paddle_job(worker=make_role(1), outputModel={"uri": URI, **model})


async def test_a_model_is_published_once_its_job_has_succeeded(harness: JobHarness) -> None:
    key = await harness.to_running(job_with_model(name="digits", version=3))
    assert not harness.bus.events(MODELS.name)
    await harness.end_pods(message=saved(f"{URI}/", digest=DIGEST))
    await harness.settle(key)
    [event] = harness.bus.events(MODELS.name)
    assert isinstance(event.data, ModelPublished)
    made = event.data
    assert (made.name, made.version, made.uri) == ("digits", "3", URI)
    assert (made.metrics, made.source.name if made.source else "") == ({"accuracy": 0.97}, key.name)
    assert (made.evidence, made.digest) == ("Reported", DIGEST)
    await harness.restart()
    await harness.settle(key)
    assert len(harness.bus.events(MODELS.name)) == 1


@pytest.mark.parametrize(
    ("model", "message", "words"),
    [
        (
            {},
            "",
            'did not report that it saved the model: write {"model": {"uri": "s3://models/digits/3"}} to',
        ),
        ({}, '{"accuracy": 0.97}', "did not report that it saved the model"),
        ({}, '{"model": "s3://models/digits/3"}', "did not report that it saved the model"),
        ({}, '{"model": {"uri": 3}}', "did not report that it saved the model"),
        (
            {},
            saved("s3://models/digits/2"),
            "its uri is s3://models/digits/3, and the program saved the model in",
        ),
        ({}, saved(digest="md5:4"), "the program reported the digest md5:4; write"),
        ({"digest": DIGEST}, saved(digest=OTHER_DIGEST), f"and the program reported {OTHER_DIGEST}"),
    ],
)
async def test_a_model_that_no_program_reports_is_not_published(
    harness: JobHarness, model: dict[str, Any], message: str, words: str
) -> None:
    """Exit code 0 is no proof that the files are there."""
    key = await harness.to_running(job_with_model(**model))
    await harness.end_pods(message=message)
    await harness.settle(key)
    assert harness.facts()[-1] == "JobSucceeded"
    assert not harness.bus.events(MODELS.name)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Completed", "ModelNotReported")
    assert words in status["message"]
    events = await harness.kubernetes_events()
    assert [(e.type, e.message) for e in events if e.reason == "ModelNotReported"] == [
        ("Warning", status["message"])
    ]


async def test_a_model_is_published_though_the_pod_that_reported_it_is_gone(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2), outputModel={"uri": URI}))
    await harness.end_pods("demo-worker-0", message=saved())
    await harness.settle(key)
    await harness.cluster.delete(PODS, Key("default", "demo-worker-0"))
    await harness.settle(key)
    await harness.end_pods("demo-worker-1")
    await harness.settle(key)
    assert len(harness.bus.events(MODELS.name)) == 1


async def test_a_model_has_the_name_of_its_job_and_a_version_of_its_own(harness: JobHarness) -> None:
    key = await harness.to_running(job_with_model())
    await harness.end_pods(message=saved())
    await harness.settle(key)
    [event] = harness.bus.events(MODELS.name)
    assert isinstance(event.data, ModelPublished)
    uid = (await harness.get(key))["metadata"]["uid"]
    assert (event.data.name, event.data.version) == (key.name, uid[:8])


async def test_a_failed_job_publishes_no_model(harness: JobHarness) -> None:
    key = await harness.to_running(job_with_model())
    await harness.end_pods(phase="Failed", message=saved())
    await harness.settle(key)
    assert harness.facts()[-1] == "JobFailed"
    assert not harness.bus.events(MODELS.name)


async def test_a_fact_published_twice_is_stored_once(harness: JobHarness) -> None:
    key = await harness.begin(make_paddle_job())
    assert harness.facts() == ["JobAccepted", "JobStarting"]
    # Killed before the confirmation was written.
    await harness.restart()
    assert await harness.announced(key) == {"JobAccepted": False, "JobStarting": False}
    await harness.run_pods()
    await harness.settle(key)
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning"]


async def test_events_name_the_job_and_have_deterministic_ids(harness: JobHarness) -> None:
    key = await harness.begin(make_paddle_job(worker=make_role(2)))
    uid = (await harness.get(key))["metadata"]["uid"]
    accepted = harness.published[0]
    assert accepted.id == f"{uid}/JobAccepted/0"
    assert accepted.subject == f"pw.evt.jobs.job.accepted.v1.default.{uid}"
    assert accepted.source == "job-controller"
    assert isinstance(accepted.data, JobAccepted)
    assert (accepted.data.mode, accepted.data.replicas) == ("Collective", {"worker": 2})
    ref = accepted.data.job
    assert ref is not None
    assert (ref.name, ref.generation) == ("demo", 1)


async def test_deletion_is_published_and_then_the_job_goes_with_its_children(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    await harness.delete(key)
    await harness.reconcile(key)
    assert not await harness.exists(key)
    assert harness.facts()[-1] == "JobDeleted"
    assert await harness.pod_names() == []
    assert await harness.settle(key)


async def test_a_job_deleted_while_the_bus_is_down_goes_after_its_last_facts(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    harness.bus.down = True
    await harness.end_pods()
    await harness.settle(key)
    await harness.delete(key)
    result = await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Terminating"
    assert await harness.pod_names() == []
    assert result.requeue_after == 5.0
    await harness.clock.advance(590)
    await harness.settle(key)
    harness.bus.down = False
    await harness.clock.advance(5)
    await harness.reconcile(key)
    assert not await harness.exists(key)
    assert harness.facts()[-2:] == ["JobSucceeded", "JobDeleted"]


async def test_a_dead_bus_delays_deletion_by_a_bounded_time(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    harness.bus.down = True
    await harness.delete(key)
    await harness.clock.advance(599)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Terminating"
    await harness.clock.advance(1)
    await harness.reconcile(key)
    assert not await harness.exists(key)
    assert "JobDeleted" not in harness.facts()


@pytest.mark.parametrize("spec", [{}, {"sampleSetRef": {"name": "digits", "mountPath": "/d"}}])
@pytest.mark.parametrize("is_seen", [True, False], ids=["accepted", "deleted before"])
async def test_the_first_fact_of_a_job_is_one_by_which_subscribers_find_it(
    harness: JobHarness, spec: Object, is_seen: bool
) -> None:
    """A subscription to one job looks only for these facts of the namespace's other jobs."""
    job = make_paddle_job(worker=make_role(), **spec)
    # A controller that was killed before it accepted the job has left its finalizer.
    job["metadata"]["finalizers"] = [names.FINALIZER]
    key = await harness.create(job)
    if is_seen:
        await harness.settle(key)
    await harness.delete(key)
    await harness.settle(key)
    first = harness.published[0]
    assert narrowing.is_first(parse_event_subject(first.subject)), f"add {first.type} to narrowing._FIRST"


async def test_a_finalizer_of_another_controller_is_left_alone(harness: JobHarness) -> None:
    job = make_paddle_job()
    job["metadata"]["finalizers"] = ["example.com/theirs"]
    key = await harness.create(job)
    await harness.settle(key)
    await harness.delete(key)
    await harness.settle(key)
    assert (await harness.get(key))["metadata"]["finalizers"] == ["example.com/theirs"]
    assert harness.facts().count("JobDeleted") == 1


async def test_a_job_deleted_before_it_was_seen_is_let_go(harness: JobHarness) -> None:
    job = make_paddle_job()
    job["metadata"]["finalizers"] = ["example.com/theirs"]
    key = await harness.create(job)
    await harness.delete(key)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert harness.facts() == []


def test_a_gate_published_late_still_names_its_set() -> None:
    raw = make_paddle_job(sampleSetRef={"name": "digits", "mountPath": "/d"}, worker=make_role())
    late = FACTS.render(Announcement("JobGated", 0, "t"), Case(parse_job(raw), JobStatus()), ObjectRef())
    assert isinstance(late, JobGated)
    assert (late.reason, late.sample_set) == ("SampleSetNotReady", "digits")


def test_every_fact_of_this_service_can_be_rendered() -> None:
    case = Case(parse_job(make_paddle_job()), JobStatus())
    assert len(list(FACTS)) == 12
    for fact in FACTS:
        rendered = FACTS.render(Announcement(fact.name, 0, "t"), case, ObjectRef(name="demo"))
        assert type(rendered) is fact.message
    assert FACTS.render(Announcement("JobForgotten", 0, "t"), case, ObjectRef()) is None


async def test_a_fact_the_bus_can_never_take_does_not_hold_the_others(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = harness.bus.publish

    async def refuse_one(event: Event) -> None:
        if event.type.endswith("JobAccepted"):
            raise Permanent("TooLarge", "too large")
        await publish(event)

    monkeypatch.setattr(harness.bus, "publish", refuse_one)
    key = await harness.create(make_paddle_job())
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert harness.facts() == ["JobStarting", "JobRunning"]
    assert (await harness.settle(key)).requeue_after is None


async def test_facts_of_an_outage_say_what_was_true_then(harness: JobHarness) -> None:
    """Two restarts with two reasons, counts and epochs, all published after the job has succeeded."""
    key = await harness.to_running(make_paddle_job(worker=make_role(2), backoffLimit=3))
    harness.bus.down = True
    for number, message in enumerate(("loss is NaN", "no space left")):
        await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1, message=message)
        await harness.settle(key)
        await harness.advance(60 * number)
        await harness.run_pods()
        await harness.settle(key)
    await harness.end_pods()
    await harness.settle(key)
    await harness.restart()
    harness.bus.down = False
    await harness.advance(10)
    told = [e.data for e in harness.published if isinstance(e.data, JobRestarted)]
    assert [fact.message.rpartition(": ")[2] for fact in told] == ["loss is NaN", "no space left"]
    assert [(fact.epoch, fact.restarts) for fact in told] == [(1, {"PodFailed": 1}), (2, {"PodFailed": 2})]
    running = [e.data for e in harness.published if isinstance(e.data, JobRunning)]
    assert [(fact.epoch, fact.roles["worker"].running) for fact in running] == [(0, 2), (1, 2), (2, 2)]
    assert harness.facts()[-1] == "JobSucceeded"


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_job_whose_time_to_live_ends_while_the_bus_is_away_takes_no_fact_along(
    harness: JobHarness, is_killed: bool
) -> None:
    model = {"name": "digits", "uri": "s3://models/digits/3"}
    spec = make_paddle_job(worker=make_role(1), outputModel=model, ttlSecondsAfterFinished=30)
    key = await harness.to_running(spec)
    harness.bus.down = True
    await harness.end_pods(message=saved())
    await harness.settle(key)
    for _ in range(3):
        await harness.advance(3600)
        if is_killed:
            await harness.restart()
            await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"
    assert "TTLExpired" not in {e.reason for e in await harness.kubernetes_events()}
    harness.bus.down = False
    await harness.advance(10)
    assert not await harness.exists(key)
    assert harness.facts()[-2:] == ["JobSucceeded", "JobDeleted"]
    assert len(harness.bus.events(MODELS.name)) == 1
    assert [e.reason for e in await harness.kubernetes_events()].count("TTLExpired") == 1


async def test_the_last_fact_of_a_job_that_has_expired_waits_for_the_bus_without_a_bound(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(1), ttlSecondsAfterFinished=30))
    await harness.end_pods()
    await harness.settle(key)

    def cut_bus(verb: str, resource: Resource, _: Key) -> None:
        harness.bus.down = harness.bus.down or (verb, resource) == ("delete", PADDLE_JOBS)

    with harness.intercepted(cut_bus):
        await harness.advance(30)
        await harness.advance(3600)
        await harness.restart()
        await harness.settle(key)
        assert (await harness.status(key))["phase"] == "Terminating"
    harness.bus.down = False
    await harness.advance(10)
    assert not await harness.exists(key)
    assert harness.facts()[-2:] == ["JobSucceeded", "JobDeleted"]


async def test_a_user_who_deletes_a_job_that_waits_to_expire_waits_only_so_long(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(1), ttlSecondsAfterFinished=30))
    harness.bus.down = True
    await harness.end_pods()
    await harness.settle(key)
    await harness.advance(60)
    await harness.delete(key)
    await harness.advance(590)
    assert await harness.exists(key)
    await harness.advance(20)
    assert not await harness.exists(key)


async def test_messages_add_little_to_the_status_and_no_write(harness: JobHarness) -> None:
    """The whole life of a job: one write for each change, as without messages."""
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    await harness.end_pods()
    await harness.settle(key)
    await harness.advance(3)
    assert harness.cluster.writes["patch-status", "paddlejobs"] == STATUS_WRITES_OF_A_JOB
    facts = (await harness.status(key))["announcements"]
    assert [fact["fact"] for fact in facts] == ["JobAccepted", "JobStarting", "JobRunning", "JobSucceeded"]
    assert max(len(json.dumps(fact)) for fact in facts) < BYTES_OF_A_FACT


async def test_a_status_keeps_no_secret_of_the_template(harness: JobHarness) -> None:
    role = make_role(1)
    container = role["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "TOKEN", "value": "s3cr3t"}]
    key = await harness.to_running(make_paddle_job(worker=role))
    await harness.end_pods(phase="Failed", exit_code=1)
    await harness.settle(key)
    assert "s3cr3t" not in json.dumps(await harness.status(key))


async def test_the_facts_of_a_job_that_is_deleted_in_its_first_second_begin_with_its_acceptance(
    harness: JobHarness,
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    assert harness.facts() == [], "the first status is not written yet"
    await harness.delete(key)
    await harness.settle(key)
    assert not await harness.exists(key)
    assert harness.facts() == ["JobAccepted", "JobDeleted"]
    accepted = next(event.data for event in harness.published if isinstance(event.data, JobAccepted))
    assert (accepted.mode, accepted.replicas) == ("Collective", {"worker": 2})
