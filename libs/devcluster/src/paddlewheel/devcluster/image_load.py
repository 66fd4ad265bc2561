"""Loads images onto nodes without a registry."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.binaries import Binaries, Report
from paddlewheel.devcluster.commands import CLEAN_ENVIRONMENT
from paddlewheel.devcluster.image_archive import Archive, read_archive, read_archives, write_pause_archive
from paddlewheel.devcluster.image_store import IMPORT_TIMEOUT_SECONDS, seed
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord, NodeDirs, locked


def all_serve(dirs: ClusterDirs, spec: ClusterSpec) -> bool:
    """Whether containerd is ready on every node."""
    return all(_serves(dirs, node) for node in spec.node_names)


def _serves(dirs: ClusterDirs, node: str) -> bool:
    try:
        status = json.loads(dirs.node(node).status.read_text())
    except FileNotFoundError:
        return False
    return bool(status["containerd"]["ready"])


def load(dirs: ClusterDirs, record: ClusterRecord, path: Path, report: Report) -> Archive:
    """Import an archive on every node whose images did not come from this file."""
    if not record.spec.node_names:
        raise Permanent("NoNodes", f"cluster {record.spec.name} is control-plane only and cannot hold images")
    archive = read_archive(path)
    todo = [node for node in record.spec.node_names if not archive.is_what(held(dirs.node(node)))]
    report(f"loading {path.name} on {len(todo)} nodes", 0.0)
    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as pool:
        for done, _ in enumerate(pool.map(lambda node: _load_on(dirs, node, archive), todo), start=1):
            report(f"loaded {path.name} on {done} of {len(todo)} nodes", done / len(todo))
    report(f"{path.name} is on every node", 1.0)
    return archive


def begin_with(dirs: ClusterDirs, spec: ClusterSpec, store: Path, paths: Sequence[Path]) -> None:
    """Seed every node that has never run with the store's images; other nodes are not changed."""
    archives = read_archives(paths)
    for node in map(dirs.node, spec.node_names):
        containerd = node.var_lib / "containerd"
        if containerd.exists():
            continue
        # Renamed once complete: a copy that was interrupted must not look like a node's own directory.
        fresh = containerd.with_name("containerd.new")
        shutil.rmtree(fresh, ignore_errors=True)
        seed(store, fresh)
        _hold(node, archives)
        fresh.rename(containerd)


def load_pause(dirs: ClusterDirs, record: ClusterRecord, binaries: Binaries, report: Report) -> None:
    """Create the pause image and load it on every node: no pod starts without it."""
    archive = dirs.root / "pause.tar"
    write_pause_archive(binaries.path("pause"), archive)
    load(dirs, record, archive, lambda message, fraction: report(message, 0.5))


def held(node: NodeDirs) -> dict[str, str]:
    """Identities of the archives that the node's images came from, by image name."""
    try:
        held: dict[str, str] = json.loads(node.images.read_text())
    except FileNotFoundError:
        return {}
    return held


def _hold(node: NodeDirs, archives: Iterable[Archive]) -> None:
    new = {reference: archive.identity for archive in archives for reference in archive.references}
    _save_held(node, {**held(node), **new})


def _save_held(node: NodeDirs, names: Mapping[str, str]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=node.root, prefix="images.", delete=False) as fresh:
        json.dump(names, fresh, indent=1)
    Path(fresh.name).replace(node.images)


def _load_on(dirs: ClusterDirs, node: str, archive: Archive) -> None:
    """Import and note it; an interrupted import leaves no note about its names."""
    own = dirs.node(node)
    with locked(own.images_lock):
        _save_held(own, {name: was for name, was in held(own).items() if name not in archive.references})
        _import(dirs, node, archive)
        _hold(own, (archive,))


def _import(dirs: ClusterDirs, node: str, archive: Archive) -> None:
    """Pipe the archive into the node's ctr: the node's own /var/lib may hide its path."""
    inside = namespace.find(dirs.node(node).plan)
    if inside is None:
        raise Permanent("NodeDown", f"node {node} is not running; restart it with `paddlewheel cluster up`")
    ctr = str(_containerd_folder(dirs, node) / "ctr")
    argv = inside.enter(ctr, "--namespace", "k8s.io", "images", "import", "-")
    with archive.path.open("rb") as file:
        done = subprocess.run(
            argv,
            stdin=file,
            capture_output=True,
            text=True,
            env=CLEAN_ENVIRONMENT,
            timeout=IMPORT_TIMEOUT_SECONDS,
        )
    if done.returncode != 0:
        raise Permanent("ImportFailed", f"{archive.path} on {node}: {done.stderr.strip()[-1000:]}")


def _containerd_folder(dirs: ClusterDirs, node: str) -> Path:
    """Directory of the programs this node was started with."""
    units = json.loads(dirs.node(node).plan.read_text())["units"]
    return Path(next(unit for unit in units if unit["name"] == "containerd")["argv"][0]).parent
