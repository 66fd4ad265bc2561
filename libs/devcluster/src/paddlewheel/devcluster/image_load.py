"""Getting images onto nodes without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.binaries import Binaries, Report
from paddlewheel.devcluster.commands import CLEAN_ENVIRONMENT
from paddlewheel.devcluster.configs import PAUSE_IMAGE
from paddlewheel.devcluster.image_store import archive_id, seed
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_IMPORT_TIMEOUT = 900.0


def all_serve(dirs: ClusterDirs, spec: ClusterSpec) -> bool:
    """Whether every node's containerd answers."""
    return all(_serves(dirs, node) for node in spec.node_names)


def _serves(dirs: ClusterDirs, node: str) -> bool:
    try:
        status = json.loads(dirs.node(node).status.read_text())
    except FileNotFoundError:
        return False
    return bool(status["containerd"]["ready"])


def load(dirs: ClusterDirs, record: ClusterRecord, archive: Path, report: Report) -> None:
    """Import an archive on every node that has not had this very file yet."""
    if not record.spec.node_names:
        raise Permanent(
            "NoNodes", f"cluster {record.spec.name} is a control plane only; it can hold no image"
        )
    identity = archive_id(archive)
    todo = [node for node in record.spec.node_names if not _marker(dirs, node, identity).exists()]
    report(f"loading {archive.name} on {len(todo)} nodes", 0.0)
    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as pool:
        for done, _ in enumerate(
            pool.map(lambda node: _import(dirs, node, archive, identity), todo), start=1
        ):
            report(f"loaded {archive.name} on {done} of {len(todo)} nodes", done / len(todo))
    report(f"{archive.name} is on every node", 1.0)


def begin_with(dirs: ClusterDirs, spec: ClusterSpec, store: Path, archives: Sequence[Path]) -> None:
    """Give every node that has never run the store's images; the others are left as they are."""
    for node in map(dirs.node, spec.node_names):
        containerd = node.var_lib / "containerd"
        if containerd.exists():
            continue
        seed(store, containerd)
        node.images.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            (node.images / archive_id(archive)).touch()


def load_pause(dirs: ClusterDirs, record: ClusterRecord, binaries: Binaries, report: Report) -> None:
    """Make the pause image and put it on every node: no pod starts without it."""
    archive = dirs.root / "pause.tar"
    write_pause_archive(binaries.path("pause"), archive)
    load(dirs, record, archive, lambda message, fraction: report(message, 0.5))


def write_pause_archive(program: Path, archive: Path) -> None:
    """A docker archive of one layer with the program as /pause and as /gate; same input, same bytes."""
    layer = _tar({"pause": program.read_bytes(), "gate": program.read_bytes()}, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    files = {"config.json": _json(config), "manifest.json": _json(manifest), "layer.tar": layer}
    archive.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _marker(dirs: ClusterDirs, node: str, identity: str) -> Path:
    return dirs.node(node).images / identity


def _import(dirs: ClusterDirs, node: str, archive: Path, identity: str) -> None:
    """Feed the archive to the node's ctr: its path may be hidden by the node's own /var/lib."""
    inside = namespace.find(dirs.node(node).plan)
    if inside is None:
        raise Permanent("NodeDown", f"node {node} does not run; `paddlewheel cluster up` brings it back")
    ctr = str(Path(_containerd_folder(dirs, node)) / "ctr")
    argv = inside.enter(ctr, "--namespace", "k8s.io", "images", "import", "-")
    with archive.open("rb") as file:
        done = subprocess.run(
            argv, stdin=file, capture_output=True, text=True, env=CLEAN_ENVIRONMENT, timeout=_IMPORT_TIMEOUT
        )
    if done.returncode != 0:
        raise Permanent("ImportFailed", f"{archive} on {node}: {done.stderr.strip()[-1000:]}")
    _marker(dirs, node, identity).touch()


def _containerd_folder(dirs: ClusterDirs, node: str) -> Path:
    """Where the programs are that this node was started with."""
    units = json.loads(dirs.node(node).plan.read_text())["units"]
    return Path(next(unit for unit in units if unit["name"] == "containerd")["argv"][0]).parent
