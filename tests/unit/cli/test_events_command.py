"""How `paddlewheel events` words a fact, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest
import typer

from paddlewheel.bus.ports import Delivery
from paddlewheel.cli.events import as_json, describe, moment
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def gated() -> Delivery:
    job = ObjectRef(namespace="team-a", name="resnet", uid="u1")
    data = JobGated(job=job, reason="SampleSetNotReady", message="waits", sample_set="imagenet")
    event = make_event(data, id="u1/gated/0", source="job-controller", namespace="team-a", uid="u1", time=NOW)
    return Delivery(event, event.subject, 1, 7, NOW)


def test_a_line_says_when_what_and_which_object() -> None:
    line = describe(gated())
    assert line.startswith("03:04:05 jobs.job.gated")
    assert "team-a/resnet" in line
    assert "reason=SampleSetNotReady" in line


def test_json_is_a_cloud_event() -> None:
    event = orjson.loads(as_json(gated()))
    assert event["type"] == "paddlewheel.jobs.v1.JobGated"
    assert event["id"] == "u1/gated/0"
    assert event["data"]["sampleSet"] == "imagenet"


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86400)])
def test_since_is_a_duration(text: str, seconds: int) -> None:
    assert moment(text, NOW) == NOW - timedelta(seconds=seconds)


def test_no_since_means_from_now_on() -> None:
    assert moment("", NOW) is None


@pytest.mark.parametrize("text", ["10", "x", "1w", "-5m"])
def test_a_wrong_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 30s"):
        moment(text, NOW)
