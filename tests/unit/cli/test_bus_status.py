"""What `paddlewheel bus status` says of a bus that is not as declared."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlewheel.bus.admin.inspect import BusStatus, StreamStatus
from paddlewheel.cli.bus import Look
from paddlewheel.testkit.charts import named, services

MADE = datetime(2026, 1, 2, tzinfo=UTC)


def make_stream(**drift: tuple[object, object]) -> StreamStatus:
    return StreamStatus(
        "PW_JOBS", messages=0, bytes=0, max_bytes=0, consumers=0, replicas=1, created=MADE, drift=drift
    )


def test_who_makes_and_corrects_streams_is_named_with_its_log() -> None:
    look = Look(BusStatus((make_stream(max_age=(2.0, 1.0)),), ("PW_DATASETS",), (), ()), {})

    missing, differs = look.faults

    assert missing.startswith("stream PW_DATASETS is missing: bus-installer")
    assert differs.startswith("stream PW_JOBS differs in max_age: bus-installer")
    for fault in (missing, differs):
        assert "logs deployment/bus-installer" in fault
        assert "`paddlewheel bus install`" in fault
        assert "controller" not in fault


def test_the_log_that_is_named_is_there() -> None:
    assert named(services(), "Deployment", "bus-installer")["metadata"]["namespace"] == "paddle-system"
