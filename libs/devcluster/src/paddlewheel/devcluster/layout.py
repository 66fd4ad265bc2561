"""Writes everything a cluster's process 1 reads: directories, certificates, plans."""

from __future__ import annotations

from pathlib import Path

from paddlewheel.devcluster import cgroups
from paddlewheel.devcluster.binaries import Binaries
from paddlewheel.devcluster.control_plane import (
    ControlPlane,
    control_plane,
    control_plane_units,
    kwok_unit,
    write_admin,
)
from paddlewheel.devcluster.lan import FORWARDING, UPLINK, lan_setup
from paddlewheel.devcluster.node import dns_unit, node_unit, write_node
from paddlewheel.devcluster.plan import Plan, Unit, save
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_OWN_RUN = ("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")


def write_plans(dirs: ClusterDirs, record: ClusterRecord, binaries: Binaries) -> None:
    """Render the plans of the cluster and of its nodes; existing keys and data are kept."""
    for folder in (dirs.etcd, dirs.logs):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _put_aside(dirs.logs)
    dirs.status.unlink(missing_ok=True)
    plane = control_plane(dirs, record)
    write_admin(plane)
    units = (*control_plane_units(plane, binaries), *_extra_units(plane, record, binaries))
    save(_plan(dirs, record, units), dirs.plan)


def _extra_units(plane: ControlPlane, record: ClusterRecord, binaries: Binaries) -> tuple[Unit, ...]:
    kwok = (kwok_unit(plane, binaries),) if record.spec.fake_nodes else ()
    if not record.spec.node_names:
        return kwok
    cgroups.remove(record.slot)  # left by containers that were killed
    for index, name in enumerate(record.spec.node_names):
        node = plane.dirs.node(name)
        for folder in (node.config, node.logs, node.var_lib, node.var_log):
            folder.mkdir(parents=True, exist_ok=True)
        _put_aside(node.logs)
        write_node(plane, index, name, binaries, cgroups.prepare(record.slot, name))
    nodes = tuple(node_unit(plane.dirs.node(name), name) for name in record.spec.node_names)
    return (*kwok, dns_unit(plane, binaries), *nodes)


def _plan(dirs: ClusterDirs, record: ClusterRecord, units: tuple[Unit, ...]) -> Plan:
    return Plan(
        log_dir=str(dirs.logs),
        status_file=str(dirs.status),
        units=units,
        wait_link=UPLINK,
        setup=(_OWN_RUN, *lan_setup(record.addresses, record.spec.node_names)),
        writes=(FORWARDING,),
    )


def _put_aside(logs: Path) -> None:
    """Keep the logs of the last run only."""
    for path in logs.glob("*.log"):
        path.replace(path.with_suffix(".log.1"))
