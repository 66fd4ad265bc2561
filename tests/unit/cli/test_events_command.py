"""How `paddlewheel events` words a fact, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel
from typer.testing import Result

from paddlewheel.cli.events import as_json, describe
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.sdk import JobGated, ObjectRef, RunStarted, TriggerFired

Command = Callable[..., Result]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_told(data: BaseModel) -> Event:
    return make_event(data, id="u1/x/0", source="job-controller", namespace="team-a", uid="u1", time=NOW)


def make_ref(name: str, uid: str = "u1") -> ObjectRef:
    return ObjectRef(namespace="team-a", name=name, uid=uid)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            JobGated(job=make_ref("resnet"), reason="SampleSetNotReady", message="waits"),
            "03:04:05 jobs.job.gated               team-a/resnet reason=SampleSetNotReady message=waits",
        ),
        (
            RunStarted(set_namespace="team-a", set_name="digits", set_uid="u1", operation="sync"),
            "03:04:05 cache.run.started            team-a/digits operation=sync",
        ),
        (
            TriggerFired(trigger=make_ref("nightly"), kind="SampleJob", created=make_ref("n-1", "u2")),
            "03:04:05 triggers.trigger.fired       team-a/nightly kind=SampleJob "
            'created={"namespace":"team-a","name":"n-1","uid":"u2"}',
        ),
    ],
)
def test_a_line_says_when_what_and_which_object(data: BaseModel, line: str) -> None:
    assert describe(make_told(data)) == line


def test_json_is_a_cloud_event() -> None:
    event = as_json(make_told(JobGated(job=make_ref("resnet"), sample_set="imagenet")))
    assert event["type"] == "paddlewheel.jobs.v1.JobGated"
    assert event["id"] == "u1/x/0"
    assert event["data"] == {
        "job": {"namespace": "team-a", "name": "resnet", "uid": "u1"},
        "sampleSet": "imagenet",
    }


@pytest.mark.parametrize(
    ("arguments", "option", "remedy"),
    [
        (["--since", "x"], "--since", '"30s", "10m"'),
        (["--job", "a/b/c"], "--job", '"namespace/name"'),
        (["--set", "a/b/c"], "--set", '"namespace/name"'),
        (["--sample-job", "a/b/c"], "--sample-job", '"namespace/name"'),
        (["--paddle-service", "a/b/c"], "--paddle-service", '"namespace/name"'),
        (["--type", "JobFaild"], "--type", "did you mean JobFailed?"),
        (["--area", "weather"], "--area", "choose one of"),
        (["--service", "x"], "--service", "job-controller"),
        (["--durable", "a.b"], "--durable", "1 to 48"),
        (["-o", "yaml"], "--output", "json"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_with_a_remedy(
    paddlewheel: Command, arguments: list[str], option: str, remedy: str
) -> None:
    ended = paddlewheel("events", *arguments)
    assert ended.exit_code == 2
    assert option in ended.stderr
    assert remedy in ended.stderr


def test_control_characters_and_newlines_of_a_fact_are_escaped() -> None:
    message = "one\n03:04:05 forged\x1b[2J"
    said = describe(make_told(JobGated(job=make_ref("resnet"), reason="Waits", message=message)))
    assert said.endswith("message=one\\n03:04:05 forged\\x1b[2J")
