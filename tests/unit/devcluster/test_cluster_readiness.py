"""When a node counts as ready."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from paddlewheel.devcluster.readiness import is_node_ready

NOW = dt.datetime(2026, 1, 1, 12, 0, 0, tzinfo=dt.UTC)


def make_node(status: str, heartbeat: dt.datetime) -> dict[str, Any]:
    text = heartbeat.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": text}]}}


@pytest.mark.parametrize(
    ("node", "ready"),
    [
        (make_node("True", NOW), True),
        (make_node("True", NOW + dt.timedelta(seconds=5)), True),
        (make_node("False", NOW), False),
        (make_node("Unknown", NOW), False),
        ({"status": {}}, False),
        ({}, False),
    ],
)
def test_node_readiness_follows_its_condition(node: dict[str, Any], ready: bool) -> None:
    assert is_node_ready(node, since=NOW.timestamp()) is ready


def test_stale_heartbeat_of_a_killed_node_does_not_count() -> None:
    assert not is_node_ready(make_node("True", NOW - dt.timedelta(seconds=2)), since=NOW.timestamp())


def test_heartbeat_within_the_same_second_counts() -> None:
    assert is_node_ready(make_node("True", NOW), since=NOW.timestamp() + 0.9)
