"""Imports image archives once, into a containerd directory that seeds every new node.

An import unpacks and verifies gigabytes; a node seeded from the store gets the same files as hard links. This
is safe: containerd never changes a blob or a lower layer in place. Its databases are copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.binaries import Binaries, Report, cache_dir
from paddlewheel.devcluster.commands import CLEAN_ENVIRONMENT, ending_with_us, run
from paddlewheel.devcluster.image_archive import Archive, read_archives

_KEPT = 2  # stores: the current and the previous one
_MOST_IMPORTS = 40  # into one store; after that the next one starts empty
_ROOT, _LIST = "root", "held.json"  # in a store: containerd's directory, and the list of imports
_UNFINISHED = ".new-"  # prefix of a store that is being created; a killed process leaves its own behind
_APART = (*ending_with_us(), "unshare", "--mount", "--propagation", "private")
_STORE_READY_TIMEOUT_SECONDS = 30.0
IMPORT_TIMEOUT_SECONDS = 900.0


@dataclass(frozen=True)
class Held:
    """Content of a store: archive identities by image name, and the number of imports."""

    names: Mapping[str, str] = field(default_factory=dict)
    imports: int = 0

    def after(self, archives: Sequence[Archive]) -> Held:
        """The content after importing these: a name refers to the last archive that contained it."""
        new = {reference: archive.identity for archive in archives for reference in archive.references}
        return Held({**self.names, **new}, self.imports + len(archives))


def ensure(paths: Sequence[Path], built: Binaries, report: Report) -> Path:
    """The store with these archives, kept for later clusters; creating one takes a minute per gigabyte.

    It starts as a copy of the previous store, so after a change only what changed is imported.

    Raises:
        Permanent: ImportFailed with ctr's output, StoreNotReady when containerd does not start.
    """
    archives = read_archives(paths)
    identities = sorted(archive.identity for archive in archives)
    key = hashlib.sha256("\n".join(identities).encode()).hexdigest()[:16]
    stores = cache_dir() / "stores"
    with _locked(stores):
        _remove_unfinished(stores)
        if not (stores / key / _ROOT).is_dir():
            _make(stores / key, archives, built, report)
            _prune(stores)
        os.utime(stores / key)
    return stores / key / _ROOT


def seed(store: Path, containerd: Path) -> None:
    """Fill a new node's containerd directory with hard links, or copies on another file system."""
    containerd.parent.mkdir(parents=True, exist_ok=True)
    linked = store.stat().st_dev == containerd.parent.stat().st_dev
    run(("cp", "-al" if linked else "-a", str(store), str(containerd)), timeout=IMPORT_TIMEOUT_SECONDS)
    for database in containerd.rglob("*.db"):
        _copy_in_place(database)


def _copy_in_place(file: Path) -> None:
    own = file.with_suffix(".own")
    shutil.copy2(file, own)
    own.replace(file)


def _make(store: Path, archives: Sequence[Archive], built: Binaries, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=store.parent, prefix=_UNFINISHED) as name:
        folder = Path(name)
        held = _begin(folder, store.parent)
        todo = [archive for archive in archives if not archive.is_what(held.names)]
        with _containerd(folder, built) as address:
            for done, archive in enumerate(todo):
                report(f"importing {archive.path.name}", done / len(todo))
                _import(built, address, archive.path)
        _save(folder / _LIST, held.after(todo))
        store.mkdir(exist_ok=True)
        (folder / _LIST).replace(store / _LIST)
        (folder / _ROOT).replace(store / _ROOT)


def _begin(folder: Path, stores: Path) -> Held:
    """Start from the newest store unless it has had too many imports; returns its content."""
    newest = next(iter(reversed(_by_use(stores))), None)
    held = _load(newest / _LIST) if newest else Held()
    if newest is None or held.imports > _MOST_IMPORTS:
        return Held()
    seed(newest / _ROOT, folder / _ROOT)
    return held


def _save(path: Path, held: Held) -> None:
    path.write_text(json.dumps(asdict(held), indent=1))


def _load(path: Path) -> Held:
    return Held(**json.loads(path.read_text()))


def _import(built: Binaries, address: Path, archive: Path) -> None:
    ctr = (str(built.path("ctr")), "--address", str(address), "--namespace", "k8s.io")
    try:
        run((*ctr, "images", "import", str(archive)), timeout=IMPORT_TIMEOUT_SECONDS)
    except Permanent as error:
        raise Permanent("ImportFailed", f"{archive}: {error.message}") from error


@contextlib.contextmanager
def _containerd(folder: Path, built: Binaries) -> Iterator[Path]:
    """A private containerd without Kubernetes; yields its socket.

    The socket is in /run because its path is limited to 104 characters. It has its own mount namespace.
    """
    with tempfile.TemporaryDirectory(dir="/run", prefix="paddlewheel-") as run_folder:
        address = Path(run_folder) / "containerd.sock"
        config = folder / "config.toml"
        config.write_text(_config(folder / _ROOT, Path(run_folder)))
        argv = (*_APART, str(built.path("containerd")), "--config", str(config))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                argv, env=CLEAN_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            _await_socket(process, address, folder / "log")
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=_STORE_READY_TIMEOUT_SECONDS)


def _config(root: Path, run_folder: Path) -> str:
    return f"""\
version = 3
root = '{root}'
state = '{run_folder / "state"}'
imports = []
disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.internal.v1.opt', 'io.containerd.nri.v1.nri']

[plugins.'io.containerd.server.v1.grpc']
  address = '{run_folder / "containerd.sock"}'

[plugins.'io.containerd.server.v1.ttrpc']
  address = '{run_folder / "containerd.sock.ttrpc"}'

[plugins.'io.containerd.server.v1.grpc-tcp']
  address = ''

[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true
"""


def _await_socket(process: subprocess.Popen[bytes], address: Path, log: Path) -> None:
    deadline = time.monotonic() + _STORE_READY_TIMEOUT_SECONDS
    while not address.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Permanent("StoreNotReady", f"containerd did not start: {log.read_text()[-1000:]}")
        time.sleep(0.05)


def _prune(stores: Path) -> None:
    """Delete stores, except the most recently used ones."""
    for old in _by_use(stores)[:-_KEPT]:
        shutil.rmtree(old)


def _remove_unfinished(stores: Path) -> None:
    """Delete what a killed process left; only the holder of the lock creates stores."""
    for folder in stores.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(folder)


def _by_use(stores: Path) -> list[Path]:
    """Complete stores, least recently used first."""
    return sorted((path.parent for path in stores.glob(f"*/{_ROOT}")), key=lambda path: path.stat().st_mtime)


@contextlib.contextmanager
def _locked(stores: Path) -> Iterator[None]:
    stores.mkdir(parents=True, exist_ok=True)
    with (stores / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
