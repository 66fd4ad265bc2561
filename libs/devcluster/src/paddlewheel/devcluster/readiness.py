"""Waiting until a started cluster can be used."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.devcluster import bootstrap, image_load, namespace
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.binaries import Binaries, Report
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_DEADLINE = 180.0
_POLL = 0.1
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Stage:
    """One thing to wait for; `share` is its end on the progress bar."""

    text: str
    share: float
    reached: Callable[[], bool]


def is_settled(api: AdminApi, spec: ClusterSpec) -> bool:
    """Whether nothing is left to wait for: the API server serves pods' accounts and every node is ready."""
    return api.is_up() and api.get(_DEFAULT_ACCOUNT) is not None and _all_ready(api, spec)


def await_ready(
    dirs: ClusterDirs, record: ClusterRecord, api: AdminApi, built: Binaries, report: Report
) -> None:
    """Wait for API server, first objects, images and nodes, in the order in which they come.

    Raises:
        Permanent: NotReady with the place of the logs, when a stage takes three minutes or process 1 ended.
    """
    spec = record.spec
    _reach(dirs, Stage("waiting for the API server", 0.4, api.is_up), report)
    bootstrap.create_objects(api, record)
    if spec.node_names:
        _reach(dirs, Stage("waiting for containerd", 0.5, lambda: image_load.all_serve(dirs, spec)), report)
        image_load.load_pause(dirs, record, built, report)
    account = Stage("waiting for the default account", 0.6, lambda: api.get(_DEFAULT_ACCOUNT) is not None)
    _reach(dirs, account, report)
    _reach(dirs, Stage("waiting for the nodes", 1.0, lambda: _all_ready(api, spec)), report)


def _reach(dirs: ClusterDirs, stage: Stage, report: Report) -> None:
    report(stage.text, stage.share)
    deadline = time.monotonic() + _DEADLINE
    while not _holds(stage):
        if namespace.find(dirs.plan) is None:
            raise Permanent("NotReady", f"{stage.text}: process 1 ended; see {dirs.logs}")
        if time.monotonic() > deadline:
            raise Permanent("NotReady", f"{stage.text} took more than {_DEADLINE:.0f} s; see {dirs.logs}")
        time.sleep(_POLL)


def _holds(stage: Stage) -> bool:
    try:
        return stage.reached()
    except Retry:
        return False


def _all_ready(api: AdminApi, spec: ClusterSpec) -> bool:
    wanted = len(spec.node_names) + spec.fake_nodes
    if wanted == 0:
        return True
    nodes = api.get("/api/v1/nodes") or {"items": []}
    return sum(is_node_ready(node) for node in nodes["items"]) >= wanted


def is_node_ready(node: dict[str, Any]) -> bool:
    """Whether a Node's condition Ready is True."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
