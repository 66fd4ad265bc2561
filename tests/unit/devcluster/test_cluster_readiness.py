"""When a node and when a process count as ready."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.devcluster.readiness import are_processes_ready, is_node_ready
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

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


def write_status(file: Path, *, ready: bool, at: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"etcd": {"ready": True}, "kube-scheduler": {"ready": ready}}))
    os.utime(file, (at, at))


def make_cluster(root: Path, *, started: float) -> tuple[ClusterDirs, ClusterRecord]:
    dirs, record = ClusterDirs(root), ClusterRecord(ClusterSpec("a", nodes=1), slot=0)
    dirs.plan.write_text("{}")
    os.utime(dirs.plan, (started, started))
    return dirs, record


def test_a_cluster_waits_for_every_process_of_every_place(tmp_path: Path) -> None:
    dirs, record = make_cluster(tmp_path, started=100)
    node = dirs.node(record.spec.node_names[0])
    assert not are_processes_ready(dirs, record)
    write_status(dirs.status, ready=True, at=101)
    assert not are_processes_ready(dirs, record), "the node's supervisor has not written yet"
    write_status(node.status, ready=False, at=101)
    assert not are_processes_ready(dirs, record), "one process of the node is not ready"
    write_status(node.status, ready=True, at=101)
    assert are_processes_ready(dirs, record)


def test_what_a_former_start_wrote_does_not_count(tmp_path: Path) -> None:
    dirs, record = make_cluster(tmp_path, started=100)
    write_status(dirs.status, ready=True, at=99)
    write_status(dirs.node(record.spec.node_names[0]).status, ready=True, at=101)
    assert not are_processes_ready(dirs, record)
