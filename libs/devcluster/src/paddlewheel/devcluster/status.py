"""Status of clusters as seen from the host."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.errors import Retry
from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.addons.ready import AddonStatus, addon_status
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.cluster import opened
from paddlewheel.devcluster.readiness import is_settled
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord, names

RUNNING, DEGRADED, STOPPED = "running", "degraded", "stopped"


@dataclass(frozen=True)
class ProcessStatus:
    """One process; `place` is "control-plane" or a node's name, `log` the file it writes to."""

    name: str
    place: str
    ready: bool
    restarts: int
    log: str


@dataclass(frozen=True)
class ClusterStatus:
    """One cluster; `state` is running, degraded (something is not ready) or stopped."""

    name: str
    state: str
    nodes: int
    fake_nodes: int
    address: str
    gateway: str
    kubeconfig: str
    processes: tuple[ProcessStatus, ...]
    addons: tuple[AddonStatus, ...] = ()


def status(name: str) -> ClusterStatus:
    """Status of one cluster.

    Raises:
        Permanent: NoSuchCluster.
    """
    cluster = opened(name)
    dirs, record = cluster.dirs, cluster.record
    running = namespace.find(dirs.plan) is not None
    addons = _addons(dirs, record, running)
    state = _state(dirs, record, addons) if running else STOPPED
    return ClusterStatus(
        name=name,
        state=state,
        nodes=len(record.spec.node_names),
        fake_nodes=record.spec.fake_nodes,
        address=cluster.address,
        gateway=cluster.gateway,
        kubeconfig=str(cluster.kubeconfig),
        processes=() if state == STOPPED else _processes(dirs, record),
        addons=addons,
    )


def list_clusters() -> tuple[ClusterStatus, ...]:
    """Status of all clusters in this home, ordered by name."""
    return tuple(status(name) for name in names())


def _state(dirs: ClusterDirs, record: ClusterRecord, addons: tuple[AddonStatus, ...]) -> str:
    try:
        settled = is_settled(dirs, record, AdminApi(dirs, record))
    except Retry:
        return DEGRADED
    return RUNNING if settled and all(addon.ready for addon in addons) else DEGRADED


def _addons(dirs: ClusterDirs, record: ClusterRecord, running: bool) -> tuple[AddonStatus, ...]:
    try:
        if running:
            api, since = AdminApi(dirs, record), dirs.plan.stat().st_mtime
            return tuple(addon_status(api, addon, since) for addon in record.spec.addons)
    except Retry:
        pass  # the API server does not answer
    return tuple(AddonStatus(addon, ready=False, url="") for addon in record.spec.addons)


def _processes(dirs: ClusterDirs, record: ClusterRecord) -> tuple[ProcessStatus, ...]:
    found = _read("control-plane", dirs.status, dirs.logs)
    for name in record.spec.node_names:
        node = dirs.node(name)
        found += _read(name, node.status, node.logs)
    return found


def _read(place: str, file: Path, logs: Path) -> tuple[ProcessStatus, ...]:
    try:
        seen = json.loads(file.read_text())
    except FileNotFoundError:
        return ()
    return tuple(
        ProcessStatus(name, place, unit["ready"], unit["restarts"], str(logs / f"{name}.log"))
        for name, unit in seen.items()
    )
