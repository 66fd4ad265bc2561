"""Subjects are built and parsed in one place, and no token leaves its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.generated.cache_v1 import NodeMounted, RunSpec
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.contracts.generated.datasets_v1 import SampleJobStarted, SampleSetSyncFailed
from paddlewheel.contracts.generated.jobs_v1 import JobRunning
from paddlewheel.contracts.subjects import (
    EventSubject,
    dead_letter_subject,
    event_filter,
    event_subject,
    parse_event_subject,
    work_filter,
    work_subject,
)
from paddlewheel.core.errors import Permanent

FACTS = {
    "cache": ["node.mounted", "node.unmounted", "run.ended", "run.started"],
    "cacheprogress": ["run.progressed"],
    "datasets": [
        "samplejob.deleted",
        "samplejob.failed",
        "samplejob.started",
        "samplejob.succeeded",
        "sampleset.bound",
        "sampleset.degraded",
        "sampleset.deleted",
        "sampleset.mounted",
        "sampleset.ready",
        "sampleset.sync-failed",
        "sampleset.synced",
        "sampleset.warmed",
    ],
    "jobs": [
        "job.accepted",
        "job.deleted",
        "job.failed",
        "job.gated",
        "job.restarted",
        "job.resumed",
        "job.running",
        "job.starting",
        "job.stuck",
        "job.succeeded",
        "job.suspended",
    ],
    "measurements": ["revision.measured"],
    "models": ["model.published"],
    "serving": [
        "canary.promoted",
        "canary.rolled-back",
        "canary.started",
        "canary.stepped",
        "revision.ready",
        "service.degraded",
        "service.deleted",
        "service.ready",
    ],
    "progress": ["job.progressed"],
    "triggers": ["trigger.failed", "trigger.fired"],
}
"""The public interface: taking one away breaks subscribers."""

NOTIFIED = ["created", "removed"]
"""What object stores say, apart from our own facts."""


def test_every_fact_has_its_subject() -> None:
    built = sorted(event_subject(model, "ns", "u") for model in EVENTS.values())
    ours = [f"pw.evt.{c}.{f}.v1.ns.u" for c, facts in FACTS.items() for f in facts]
    assert built == sorted([*ours, *(f"pw.src.objectstore.object.{f}.v1.ns.u" for f in NOTIFIED)])


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (JobRunning(), "pw.evt.jobs.job.running.v1.team-a.7c9e-1"),
        (SampleSetSyncFailed, "pw.evt.datasets.sampleset.sync-failed.v1.team-a.7c9e-1"),
        (SampleJobStarted, "pw.evt.datasets.samplejob.started.v1.team-a.7c9e-1"),
        (
            "paddlewheel.cacheprogress.v1.RunProgressed",
            "pw.evt.cacheprogress.run.progressed.v1.team-a.7c9e-1",
        ),
        (NodeMounted, "pw.evt.cache.node.mounted.v1.team-a.7c9e-1"),
        ("paddlewheel.jobs.v2.JobRunning", "pw.evt.jobs.job.running.v2.team-a.7c9e-1"),
    ],
)
def test_an_event_subject_is_built_from_model_class_or_type(event: object, subject: str) -> None:
    assert event_subject(event, "team-a", "7c9e-1") == subject  # type: ignore[arg-type]


@pytest.mark.parametrize("model", EVENTS.values(), ids=lambda m: m.__name__)
def test_what_is_built_can_be_parsed(model: type) -> None:
    subject = event_subject(model, "team-a", "uid-1")
    parsed = parse_event_subject(subject)
    assert (str(parsed), parsed.namespace, parsed.uid, parsed.version) == (subject, "team-a", "uid-1", "v1")


def test_parsing_names_the_parts() -> None:
    assert parse_event_subject("pw.evt.cache.run.ended.v1.ns.u") == EventSubject(
        "cache", "run", "ended", "v1", "ns", "u"
    )


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "pw.evt",
        "pw.cmd.a.b.c.v1.ns.u",
        "pw.evt.a.b.c.v1.ns",
        "pw.evt.a.b.c.v1.ns.u.x",
        "pw.evt.a.b.c.v1..u",
    ],
)
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(Permanent, match="MalformedSubject"):
        parse_event_subject(subject)


@pytest.mark.parametrize("token", ["", "*", ">", "a.b", "a b", "a\n", "ä", "$SYS"])
def test_no_token_leaves_its_place(token: str) -> None:
    builds: tuple[Callable[[], str], ...] = (
        lambda: event_subject(JobRunning, token, "u"),
        lambda: event_subject(JobRunning, "ns", token),
        lambda: work_subject(token, "run", 0, 0),
        lambda: work_subject("set", token, 0, 0) if token != "*" else work_subject("*", "r", 0, 0),
        lambda: dead_letter_subject(token),
        lambda: event_filter(token) if token != "*" else event_filter(">"),
    )
    for build in builds:
        with pytest.raises(Permanent, match="MalformedSubject"):
            build()


@pytest.mark.parametrize(
    "type_", ["", "JobRunning", "paddlewheel.jobs.v1.Job", "paddlewheel.serving.v1.X", "a.jobs.v1.JobRunning"]
)
def test_types_that_are_no_facts_have_no_subject(type_: str) -> None:
    with pytest.raises(Permanent, match="UnknownType"):
        event_subject(type_, "ns", "u")


def test_filters_leave_open_what_is_not_given() -> None:
    assert event_filter("jobs") == "pw.evt.jobs.*.*.v1.*.*"
    assert event_filter("jobs", "job", "running", "ns", "u") == event_subject(JobRunning, "ns", "u")
    assert event_filter("*", uid="u") == "pw.evt.*.*.*.v1.*.u"


def test_work_and_dead_letters() -> None:
    assert work_subject("set-1", "run-1", 2, 7) == "pw.work.cache.set-1.run-1.2.7.v1"
    assert work_filter("set-1", "run-1") == "pw.work.cache.set-1.run-1.*.*.v1"
    assert work_filter("set-1") == "pw.work.cache.set-1.*.*.*.v1"
    assert dead_letter_subject("trigger-controller-datasets") == "pw.dlq.trigger-controller-datasets"


def test_records_are_no_facts() -> None:
    assert RunProgressed.proto_name in EVENTS
    assert RunSpec.proto_name not in EVENTS
