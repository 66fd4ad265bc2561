"""Which subjects a wish asks the server for, which events it takes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.events import make_event
from paddlewheel.sdk import (
    CanaryRolledBack,
    InvalidArgument,
    JobFailed,
    JobGated,
    JobSucceeded,
    ObjectRef,
    RevisionMeasured,
    RunEnded,
    SampleSetReady,
    TriggerFired,
)
from paddlewheel.sdk.model import Event, received
from paddlewheel.sdk.selection import Wish, select

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_received(data: BaseModel, namespace: str = "team-a", uid: str = "u1") -> Event:
    event = make_event(data, id="1", source="test", namespace=namespace, uid=uid, time=NOW)
    return received(Delivery(event, event.subject, 1, 7, NOW))


def make_ref(name: str, namespace: str = "team-a") -> ObjectRef:
    return ObjectRef(namespace=namespace, name=name, uid="u1")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(), "all facts"),
        (Wish(job="team-a/resnet"), "job=team-a/resnet"),
        (Wish(types=[JobFailed, "JobSucceeded"]), "types=JobFailed,JobSucceeded"),
        (Wish(types=("JobSucceeded", "paddlewheel.jobs.v1.JobFailed")), "types=JobFailed,JobSucceeded"),
        (Wish(types=iter([JobFailed])), "types=JobFailed"),
        (
            Wish(sample_set="a/x", sample_job="a/y", service="cache-runtime", context=("jobs", "cache")),
            "sample_set=a/x sample_job=a/y service=cache-runtime context=cache,jobs",
        ),
        (
            Wish(paddle_service="a/x", service="serving-controller"),
            "paddle_service=a/x service=serving-controller",
        ),
    ],
)
def test_a_selection_is_worded_the_same_however_it_is_passed(wish: Wish, words: str) -> None:
    listed = wish.listed()
    assert (str(listed), str(listed)) == (words, words)


@pytest.mark.parametrize(
    ("wish", "subjects"),
    [
        (Wish(job="team-a/resnet"), {"pw.evt.jobs.*.*.v1.team-a.*", "pw.evt.progress.*.*.v1.team-a.*"}),
        (Wish(job="team-a/*"), {"pw.evt.jobs.*.*.v1.team-a.*", "pw.evt.progress.*.*.v1.team-a.*"}),
        (
            Wish(sample_set="team-a/set"),
            {
                "pw.evt.datasets.sampleset.*.v1.team-a.*",
                "pw.evt.cache.*.*.v1.team-a.*",
                "pw.evt.cacheprogress.*.*.v1.team-a.*",
            },
        ),
        (Wish(sample_job="*/sync"), {"pw.evt.datasets.samplejob.*.v1.*.*"}),
        (
            Wish(paddle_service="team-a/digits"),
            {"pw.evt.serving.*.*.v1.team-a.*", "pw.evt.measurements.*.*.v1.team-a.*"},
        ),
        (Wish(service="evaluator"), {"pw.evt.measurements.*.*.v1.*.*"}),
        (
            Wish(job="a/x", sample_job="b/y"),
            {
                "pw.evt.jobs.*.*.v1.a.*",
                "pw.evt.progress.*.*.v1.a.*",
                "pw.evt.datasets.samplejob.*.v1.b.*",
            },
        ),
        (
            Wish(service="job-controller"),
            {"pw.evt.jobs.*.*.v1.*.*", "pw.evt.models.*.*.v1.*.*", "pw.evt.progress.*.*.v1.*.*"},
        ),
        (
            Wish(service="cache-runtime"),
            {"pw.evt.cache.*.*.v1.*.*", "pw.evt.cacheprogress.*.*.v1.*.*"},
        ),
        (Wish(context="cache"), {"pw.evt.cache.*.*.v1.*.*"}),
        (Wish(context=["cache", "jobs"]), {"pw.evt.cache.*.*.v1.*.*", "pw.evt.jobs.*.*.v1.*.*"}),
        (Wish(types=JobFailed), {"pw.evt.jobs.job.failed.v1.*.*"}),
        (
            Wish(types=["SampleSetSyncFailed", "paddlewheel.jobs.v1.JobFailed"]),
            {"pw.evt.datasets.sampleset.sync-failed.v1.*.*", "pw.evt.jobs.job.failed.v1.*.*"},
        ),
        (Wish(job="a/x", types=[JobFailed, SampleSetReady]), {"pw.evt.jobs.job.failed.v1.a.*"}),
    ],
)
def test_the_server_is_asked_for_what_subjects_can_say(wish: Wish, subjects: set[str]) -> None:
    assert set(select(wish).subjects) == subjects


def test_without_a_wish_all_our_services_facts_are_asked_for_and_nobody_elses() -> None:
    contexts = {subject.split(".")[2] for subject in select(Wish()).subjects}
    ours = {"jobs", "progress", "datasets", "cache", "models", "serving", "measurements", "triggers"}
    assert contexts == {*ours, "cacheprogress"}


@pytest.mark.parametrize(
    ("data", "wish", "wanted"),
    [
        (JobGated(job=make_ref("resnet")), Wish(job="team-a/resnet"), True),
        (JobGated(job=make_ref("other")), Wish(job="team-a/resnet"), False),
        (JobGated(job=make_ref("other")), Wish(job="team-a/*"), True),
        (JobGated(job=make_ref("resnet")), Wish(job="team-b/resnet"), False),
        (RunEnded(set_namespace="team-a", set_name="s", set_uid="u1"), Wish(sample_set="team-a/s"), True),
        (RunEnded(set_namespace="team-a", set_name="t", set_uid="u1"), Wish(sample_set="team-a/s"), False),
        (SampleSetReady(sample_set=make_ref("s")), Wish(sample_job="team-a/s"), False),
        (SampleSetReady(sample_set=make_ref("s")), Wish(job="a/x", sample_set="team-a/s"), True),
        (CanaryRolledBack(service=make_ref("digits")), Wish(paddle_service="team-a/digits"), True),
        (CanaryRolledBack(service=make_ref("other")), Wish(paddle_service="team-a/digits"), False),
        (RevisionMeasured(service=make_ref("digits")), Wish(paddle_service="team-a/digits"), True),
        (JobGated(job=make_ref("digits")), Wish(paddle_service="team-a/digits"), False),
        (JobGated(job=make_ref("x")), Wish(), True),
    ],
)
def test_names_are_chosen_by_the_object_in_the_fact(data: BaseModel, wish: Wish, wanted: bool) -> None:
    assert select(wish).wants(make_received(data)) is wanted


def test_a_fact_with_two_objects_is_about_the_one_its_subject_names() -> None:
    made = ObjectRef(namespace="team-a", name="made", uid="u2")
    event = make_received(TriggerFired(created=made, trigger=make_ref("nightly")))
    assert event.object.name == "nightly"


def test_a_fact_without_a_name_is_about_its_subjects_uid() -> None:
    event = make_received(JobSucceeded())
    assert (event.object.namespace, event.object.name, event.object.uid) == ("team-a", "", "u1")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish(job="resnet"), 'job: .*pass "namespace/name"'),
        (Wish(job="a/b/c"), "job: "),
        (Wish(job="team-a/"), "job: "),
        (Wish(sample_set="Team/Set"), "sample_set: "),
        (Wish(sample_job="a.>/b"), "sample_job: "),
        (Wish(paddle_service="digits"), 'paddle_service: .*pass "namespace/name"'),
        (Wish(service="scheduler"), "service: .*choose one of job-controller"),
        (Wish(context="weather"), "context: .*choose one of"),
        (Wish(context="objectstore"), "context: 'objectstore' cannot be read: .*; read TriggerFired"),
        (Wish(types="ObjectCreated"), "types: 'ObjectCreated' cannot be read: .*; read TriggerFired"),
        (Wish(job="a/b", context="cache"), "context: .*no facts about"),
        (Wish(service="job-controller", context="cache"), "context: "),
        (Wish(types="JobSucceded"), "types: .*did you mean JobSucceeded"),
        (Wish(types=[ObjectRef]), "types: .*is not a fact"),
        (Wish(job="a/b", types=SampleSetReady), "types: no such fact"),
    ],
)
def test_a_wish_nobody_can_fulfil_is_refused_by_parameter_with_a_remedy(wish: Wish, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        select(wish)
    assert isinstance(caught.value, ValueError)


def test_the_key_of_a_selection_is_a_stable_form_of_what_was_asked_for() -> None:
    one = Wish(context="jobs", types=[JobFailed, "JobSucceeded", "JobFailed"])
    other = Wish(context=("jobs", "jobs"), types=("paddlewheel.jobs.v1.JobSucceeded", "JobFailed"))
    assert (
        one.listed().key
        == other.listed().key
        == '{"context": ["jobs"], "types": ["JobFailed", "JobSucceeded"]}'
    )
    assert Wish().key == "{}"
    assert Wish(job="a/x").key != Wish(job="a/y").key
