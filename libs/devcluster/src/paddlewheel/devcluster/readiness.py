"""Waits until a started cluster is usable."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.devcluster import bootstrap, image_load, namespace
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.binaries import Binaries, Report
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_CLUSTER_READY_TIMEOUT_SECONDS = 180.0
_READINESS_CHECK_INTERVAL_SECONDS = 0.1
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Stage:
    """One condition to wait for; `share` is the progress once it holds."""

    text: str
    share: float
    reached: Callable[[], bool]


def is_settled(dirs: ClusterDirs, record: ClusterRecord, api: AdminApi) -> bool:
    """Whether nothing is left to wait for: the default account exists, every node and process is ready."""
    return (
        api.is_up()
        and api.get(_DEFAULT_ACCOUNT) is not None
        and _all_ready(dirs, record, api)
        and are_processes_ready(dirs, record)
    )


def await_ready(
    dirs: ClusterDirs, record: ClusterRecord, api: AdminApi, built: Binaries, report: Report
) -> None:
    """Wait for the API server, the first objects, images and nodes, in the order in which they become ready.

    Raises:
        Permanent: NotReady with the log directory, when a stage takes three minutes or process 1 exits.
    """
    spec = record.spec
    _reach(dirs, Stage("waiting for the API server", 0.4, api.is_up), report)
    _reach(
        dirs, Stage("creating the first objects", 0.45, lambda: bootstrap.create_objects(api, record)), report
    )
    if spec.node_names:
        _reach(dirs, Stage("waiting for containerd", 0.5, lambda: image_load.all_serve(dirs, spec)), report)
        image_load.load_pause(dirs, record, built, report)
    account = Stage("waiting for the default account", 0.6, lambda: api.get(_DEFAULT_ACCOUNT) is not None)
    _reach(dirs, account, report)
    _reach(dirs, Stage("waiting for the nodes", 0.9, lambda: _all_ready(dirs, record, api)), report)
    processes = Stage("waiting for the processes", 1.0, lambda: are_processes_ready(dirs, record))
    _reach(dirs, processes, report)


def _reach(dirs: ClusterDirs, stage: Stage, report: Report) -> None:
    deadline = time.monotonic() + _CLUSTER_READY_TIMEOUT_SECONDS
    report(stage.text, stage.share)
    while not _holds(stage):
        # Again and again: a report may raise, to interrupt the wait.
        report(stage.text, stage.share)
        if namespace.find(dirs.plan) is None:
            raise Permanent("NotReady", f"{stage.text}: process 1 exited; see {dirs.logs}")
        if time.monotonic() > deadline:
            raise Permanent(
                "NotReady",
                f"{stage.text} took more than {_CLUSTER_READY_TIMEOUT_SECONDS:.0f} s; {_suspects(dirs)}",
            )
        time.sleep(_READINESS_CHECK_INTERVAL_SECONDS)


def _suspects(dirs: ClusterDirs) -> str:
    """The processes to look at first."""
    files = (dirs.status, *(dirs.root / "nodes").glob("*/status.json"))
    units = {name: unit for file in files for name, unit in json.loads(file.read_text()).items()}
    bad = [name for name, unit in units.items() if unit["restarts"] or not unit["ready"]]
    return f"not ready or restarted: {', '.join(bad) or 'none'}; logs are in {dirs.root}"


def _holds(stage: Stage) -> bool:
    try:
        return stage.reached()
    except Retry:
        return False


def are_processes_ready(dirs: ClusterDirs, record: ClusterRecord) -> bool:
    """Whether every process of this start is ready, of the control plane and of the nodes."""
    started = dirs.plan.stat().st_mtime
    files = (dirs.status, *(dirs.node(name).status for name in record.spec.node_names))
    return all(_says_ready(file, started) for file in files)


def _says_ready(file: Path, started: float) -> bool:
    try:
        is_stale = file.stat().st_mtime < started
        return not is_stale and all(unit["ready"] for unit in json.loads(file.read_text()).values())
    except FileNotFoundError:
        return False  # the supervisor has not written it yet


def _all_ready(dirs: ClusterDirs, record: ClusterRecord, api: AdminApi) -> bool:
    spec = record.spec
    nodes = {node["metadata"]["name"]: node for node in (api.get("/api/v1/nodes") or {"items": []})["items"]}
    fakes = (name for name in bootstrap.fake_node_names(spec))
    started = dirs.plan.stat().st_mtime
    return all(is_node_ready(nodes.get(name, {}), since=started) for name in spec.node_names) and all(
        is_node_ready(nodes.get(name, {})) for name in fakes
    )


def is_node_ready(node: dict[str, Any], since: float = 0.0) -> bool:
    """Whether a Node is Ready with a heartbeat at or after `since` (epoch seconds): older ones are stale."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = next((item for item in conditions if item["type"] == "Ready"), {"status": "Unknown"})
    if ready["status"] != "True":
        return False
    heartbeat = dt.datetime.fromisoformat(ready["lastHeartbeatTime"])
    return heartbeat.timestamp() >= int(since)
