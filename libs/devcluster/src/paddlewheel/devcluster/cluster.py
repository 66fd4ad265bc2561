"""Brings a cluster up and down."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import binaries, cgroups, image_load, image_store, namespace, network, state
from paddlewheel.devcluster.addons.install import await_addon, install
from paddlewheel.devcluster.addons.prepare import Prepared, prepare
from paddlewheel.devcluster.addons.prepare import modules as addon_modules
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.binaries import Binaries, Module, Report
from paddlewheel.devcluster.layout import write_plans
from paddlewheel.devcluster.machine import check_visible
from paddlewheel.devcluster.readiness import await_ready, is_settled
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import (
    ClusterDirs,
    ClusterRecord,
    cluster_dirs,
    cluster_lock,
    load_record,
    machine_lock,
    names,
    save_record,
)

_BUILDING = 0.5  # share of `up` spent on building the programs
_ADDONS = 0.4  # share of `up` spent on installing add-ons, if there are any


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    dirs: ClusterDirs
    record: ClusterRecord

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.record.spec.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.dirs.kubeconfig

    @property
    def address(self) -> str:
        """Address at which the host reaches the cluster's own processes (API server on 6443, DNS on 53)."""
        return str(self.record.addresses.inner)

    @property
    def gateway(self) -> str:
        """Address at which pods and the cluster's processes reach the host."""
        return str(self.record.addresses.gateway)

    def load_image(self, archive: Path, report: Report | None = None) -> tuple[str, ...]:
        """Import an OCI or docker archive on all nodes in parallel; nodes that have it are skipped.

        Returns:
            The names of its images.

        Raises:
            Permanent: ImportFailed with ctr's output, NoNodes on a cluster without nodes.
        """
        return image_load.load(self.dirs, self.record, archive, report or ignore).references

    def images(self) -> frozenset[str]:
        """Names of the images that were loaded on every node."""
        nodes = [image_load.held(self.dirs.node(name)) for name in self.record.spec.node_names]
        return frozenset.intersection(*map(frozenset, nodes)) if nodes else frozenset()


def ignore(message: str, fraction: float) -> None:
    """Discard progress."""


def up(spec: ClusterSpec, report: Report = ignore, *, images: Sequence[Path] = ()) -> Cluster:
    """Start a cluster, or restart it; objects and images of a killed one are kept.

    Args:
        spec: its add-ons are installed also on a cluster that exists without them.
        images: archives to load on every node; new nodes start with them and need no import.

    Raises:
        Permanent: NotRoot, ClusterDiffers (it exists with a different spec), BuildFailed, NotReady ...
    """
    if os.geteuid() != 0:
        raise Permanent("NotRoot", "a cluster needs root to create namespaces; run this command with sudo")
    _check_places(spec)
    # Before the programs are built, which may take minutes.
    _check_same(load_record(cluster_dirs(spec.name)), spec)
    starting = 1 - _ADDONS if spec.addons else 1.0
    start = _part(report, 0.0, starting)
    built = binaries.ensure(_modules(spec), _part(start, 0.0, _BUILDING))
    addons = prepare(spec.addons, built, _part(start, _BUILDING, _BUILDING))
    with cluster_lock(spec.name):
        dirs = cluster_dirs(spec.name)
        record = load_record(dirs)
        _check_same(record, spec)
        if record is None or not _runs(dirs):
            if images and spec.node_names:
                image_load.begin_with(dirs, spec, image_store.ensure(images, built, start), images)
            record = _start_settled(dirs, record, spec, built, start)
        else:
            _settle(dirs, record, built, start)
        for archive in images:
            Cluster(dirs, record).load_image(archive)
        record = _install(dirs, record, addons, _part(report, starting, 1.0))
    report(f"cluster {spec.name} is up", 1.0)
    return Cluster(dirs, record)


def down(name: str) -> bool:
    """Stop a cluster and remove all its files; False when it does not exist.

    Raises:
        Permanent: NotEnded when a process is stuck in the kernel, NotACluster when the directory has other
            files, InvalidName.
    """
    with cluster_lock(name):
        dirs = cluster_dirs(name)
        _check_removable(dirs)
        record = load_record(dirs)
        namespace.end(dirs.plan)
        if record is not None:
            network.release_link(record.addresses, dirs.root)
            cgroups.remove(record.slot)
        existed = dirs.root.exists()
        if existed:
            shutil.rmtree(dirs.root)
    return existed


@contextlib.contextmanager
def running_cluster(spec: ClusterSpec, report: Report = ignore) -> Iterator[Cluster]:
    """A cluster for the duration of a `with` block; it is removed however the block ends."""
    try:
        yield up(spec, report)
    finally:
        down(spec.name)


def opened(name: str) -> Cluster:
    """An existing cluster, running or not.

    Raises:
        Permanent: NoSuchCluster.
    """
    dirs = cluster_dirs(name)
    record = load_record(dirs)
    if record is None:
        known = ", ".join(names()) or "none"
        raise Permanent(
            "NoSuchCluster",
            f"no cluster {name}; there are: {known}. Create it with `paddlewheel cluster up --name {name}`",
        )
    return Cluster(dirs, record)


def _modules(spec: ClusterSpec) -> tuple[Module, ...]:
    modules = binaries.CONTROL_PLANE_MODULES if spec.control_plane_only else binaries.NODE_MODULES
    kwok = (binaries.KWOK,) if spec.fake_nodes else ()
    return (*modules, *kwok, *addon_modules(spec.addons))


def _check_places(spec: ClusterSpec) -> None:
    if not spec.control_plane_only:
        check_visible(state.home(), state.HOME_VARIABLE)
        check_visible(binaries.cache_dir(), "XDG_CACHE_HOME")


def _check_same(record: ClusterRecord | None, spec: ClusterSpec) -> None:
    if record is not None and (differences := record.spec.differences(spec)):
        again = " ".join(record.spec.options())
        raise Permanent(
            "ClusterDiffers",
            f"cluster {spec.name} exists with {', '.join(differences)}; "
            f"`paddlewheel cluster up {again}` starts it as it is, "
            f"`paddlewheel cluster down --name {spec.name}` deletes it and everything in it",
        )


def _check_removable(dirs: ClusterDirs) -> None:
    if dirs.root.exists() and any(dirs.root.iterdir()) and not dirs.is_cluster():
        raise Permanent(
            "NotACluster", f"{dirs.root} has no files of a cluster; look at it and remove it yourself"
        )


def _runs(dirs: ClusterDirs) -> bool:
    """Whether process 1 runs and has finished its setup, after which it writes its status. The API server's
    health is ignored on purpose: a slow one must not be killed."""
    return namespace.find(dirs.plan) is not None and dirs.status.exists()


def _start_settled(
    dirs: ClusterDirs, old: ClusterRecord | None, spec: ClusterSpec, built: Binaries, report: Report
) -> ClusterRecord:
    """Start it and wait until it is ready; on failure stop it, but keep its files for inspection."""
    try:
        record = _start(dirs, old, spec, built, report)
        _settle(dirs, record, built, report)
    except BaseException:
        namespace.end(dirs.plan)
        raise
    return record


def _start(
    dirs: ClusterDirs, old: ClusterRecord | None, spec: ClusterSpec, built: Binaries, report: Report
) -> ClusterRecord:
    report(f"starting cluster {spec.name}", _BUILDING)
    namespace.end(dirs.plan)  # remains of an `up` that was killed halfway
    record = _claim(dirs, old, spec)
    write_plans(dirs, record, built)
    found = namespace.start(dirs.plan, dirs.logs / "supervisor.log")
    network.connect(record.addresses, found.outer)
    return record


def _claim(dirs: ClusterDirs, old: ClusterRecord | None, spec: ClusterSpec) -> ClusterRecord:
    """Claim an address slot, the previous one if there was one. Add-ons are recorded once installed."""
    with machine_lock():
        record = old or ClusterRecord(replace(spec, addons=()), network.free_slot(spec, _taken()))
        dirs.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_record(dirs, record)
        network.claim_link(record.addresses, dirs.root)
    return record


def _taken() -> frozenset[int]:
    records = (load_record(cluster_dirs(name)) for name in names())
    return frozenset(record.slot for record in records if record is not None)


def _install(
    dirs: ClusterDirs, record: ClusterRecord, addons: Sequence[Prepared], report: Report
) -> ClusterRecord:
    """Install add-ons one after the other, and wait for the add-ons that were installed before.

    The record contains only add-ons that were ready once. The next start waits for these, and could wait for
    others without end.
    """
    before = set(record.spec.addons)
    for number, addon in enumerate(addons):
        install(dirs, record, addon, _part(report, number / len(addons), (number + 1) / len(addons)))
        record = replace(record, spec=record.spec.with_addons((addon.name,)))
        save_record(dirs, record)
    for name in before - {addon.name for addon in addons}:
        await_addon(dirs, record, name, report)
    return record


def _part(report: Report, start: float, end: float) -> Report:
    """Progress of a part of the whole."""
    return lambda message, fraction: report(message, start + (end - start) * fraction)


def _settle(dirs: ClusterDirs, record: ClusterRecord, built: Binaries, report: Report) -> None:
    """Wait until the cluster is usable."""
    api = AdminApi(dirs, record)
    if not is_settled(dirs, record, api):
        await_ready(dirs, record, api, built, lambda text, part: report(text, _BUILDING + part / 2))
