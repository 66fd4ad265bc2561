"""Clusters on disk: their directories, records, slots and locks."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.files import replace_file
from paddlewheel.devcluster.addresses import AddressPlan, address_plan
from paddlewheel.devcluster.spec import ClusterSpec, check_name

HOME_VARIABLE = "PADDLEWHEEL_HOME"
_MACHINE_LOCK = Path("/run/lock/paddlewheel.lock")


def home() -> Path:
    """Root of all state: $PADDLEWHEEL_HOME, else paddlewheel/ in $XDG_STATE_HOME or ~/.local/state."""
    if explicit := os.environ.get(HOME_VARIABLE):
        return Path(explicit).absolute()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state).absolute() / "paddlewheel"


@dataclass(frozen=True)
class ClusterDirs:
    """The files of one cluster."""

    root: Path

    @property
    def record(self) -> Path:
        """Spec and slot, as JSON."""
        return self.root / "cluster.json"

    @property
    def plan(self) -> Path:
        """The plan of process 1. Its command line contains this path, by which the process is found."""
        return self.root / "plan.json"

    @property
    def status(self) -> Path:
        """State of process 1's units."""
        return self.root / "status.json"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        """etcd's data directory."""
        return self.root / "etcd"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """The audit log of the API server: requests of service accounts, one JSON object in each line."""
        return self.logs / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """The audit policy, which selects the requests for the audit log."""
        return self.root / "audit-policy.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def nodes(self) -> Path:
        """One directory per node."""
        return self.root / "nodes"

    def is_cluster(self) -> bool:
        """Whether it has a file of a cluster; a killed `up` or `down` leaves only some of them."""
        own = (
            self.record,
            self.plan,
            self.status,
            self.pki,
            self.etcd,
            self.logs,
            self.kubeconfig,
            self.nodes,
        )
        return any(path.exists() for path in own)

    def node(self, name: str) -> NodeDirs:
        """The files of one node."""
        return NodeDirs(self.nodes / name)


@dataclass(frozen=True)
class NodeDirs:
    """The files of one node; `var_lib` and `var_log` are its /var/lib and /var/log."""

    root: Path

    @property
    def plan(self) -> Path:
        """The plan of the node's process 1."""
        return self.root / "plan.json"

    @property
    def status(self) -> Path:
        """State of the units of the node's process 1."""
        return self.root / "status.json"

    @property
    def config(self) -> Path:
        """Configuration of containerd, CNI and kubelet."""
        return self.root / "config"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def var_lib(self) -> Path:
        """The node's /var/lib."""
        return self.root / "var-lib"

    @property
    def var_log(self) -> Path:
        """The node's /var/log."""
        return self.root / "var-log"

    @property
    def images(self) -> Path:
        """The archive each image came from, as JSON."""
        return self.root / "images.json"

    @property
    def images_lock(self) -> Path:
        """Held while an image is imported and noted."""
        return self.root / "images.lock"


@dataclass(frozen=True)
class ClusterRecord:
    """The stored record of a cluster, whether or not it is running."""

    spec: ClusterSpec
    slot: int

    @property
    def addresses(self) -> AddressPlan:
        """The address plan of the slot."""
        return address_plan(self.spec.address_range, self.slot)


def clusters_dir() -> Path:
    """Parent directory of all clusters."""
    return home() / "clusters"


def cluster_dirs(name: str) -> ClusterDirs:
    """The files of the cluster with this name, which need not exist. Raises Permanent for other names."""
    check_name(name)
    return ClusterDirs(clusters_dir() / name)


def save_record(dirs: ClusterDirs, record: ClusterRecord) -> None:
    """Store spec and slot, atomically."""
    content = json.dumps({"spec": record.spec.to_json(), "slot": record.slot})
    replace_file(dirs.record, content.encode())


def load_record(dirs: ClusterDirs) -> ClusterRecord | None:
    """The cluster's record, or None when it does not exist."""
    try:
        raw = json.loads(dirs.record.read_text())
    except FileNotFoundError:
        return None
    # A later version may have added fields; its clusters are listed and removed all the same.
    known = {field.name for field in dataclasses.fields(ClusterSpec)}
    spec = {name: value for name, value in raw["spec"].items() if name in known}
    return ClusterRecord(ClusterSpec(**spec), raw["slot"])


def names() -> tuple[str, ...]:
    """Names of all clusters in this home, running or not."""
    return tuple(sorted(path.parent.name for path in clusters_dir().glob("*/cluster.json")))


@contextlib.contextmanager
def cluster_lock(name: str) -> Iterator[None]:
    """Serializes `up` and `down` of one cluster name. Raises Permanent for a name no cluster can have."""
    check_name(name)
    folder = clusters_dir()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{name}.lock"
    with locked(path):
        yield
        if not cluster_dirs(name).root.exists():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Held while a slot is chosen, so that clusters of different homes do not claim the same one."""
    _MACHINE_LOCK.parent.mkdir(parents=True, exist_ok=True)
    with locked(_MACHINE_LOCK):
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Exclusive among processes and threads while the block runs; creates the file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_same_file(descriptor, path):
            break
        os.close(descriptor)  # the previous holder removed the file, so this lock protects nothing
    try:
        yield
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
