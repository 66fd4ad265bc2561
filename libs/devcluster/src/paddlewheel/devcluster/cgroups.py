"""Control groups of the nodes' containers: a subtree per node, removed with the cluster.

A node sees its subtree as /sys/fs/cgroup (a bind mount in its own mount namespace), so what containerd and the
kubelet make or count there is the node's own. Works on cgroup v1, v2 and the hybrid of both.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_COPIED = ("cpuset.cpus", "cpuset.mems")
_DEADLINE = 10.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup file system."""

    mount: Path
    unified: bool

    def subtree(self, slot: int, node: str = "") -> Path:
        """The part of one cluster or of one of its nodes."""
        return self.mount / "paddlewheel" / str(slot) / node


def hierarchies() -> tuple[Hierarchy, ...]:
    """All cgroup mounts below /sys/fs/cgroup."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = {Hierarchy(Path(row[1]), row[2] == "cgroup2") for row in rows if row[2] in ("cgroup", "cgroup2")}
    return tuple(sorted((item for item in found if item.mount.is_relative_to(_ROOT)), key=lambda item: str(item.mount)))


def prepare(slot: int, node: str) -> tuple[tuple[Path, Path], ...]:
    """Make a node's subtrees; returns (subtree, mount) pairs to be bound inside of the node."""
    pairs = []
    for hierarchy in hierarchies():
        subtree = hierarchy.subtree(slot, node)
        subtree.mkdir(parents=True, exist_ok=True)
        for part in reversed([subtree, *_below(hierarchy.mount, subtree)]):
            _inherit(hierarchy, part)
        pairs.append((subtree, hierarchy.mount))
    return tuple(pairs)


def remove(slot: int) -> None:
    """Remove everything of a cluster whose processes are gone."""
    for hierarchy in hierarchies():
        _remove_tree(hierarchy.subtree(slot))
        with contextlib.suppress(OSError):
            hierarchy.subtree(slot).parent.rmdir()  # fails while another cluster has its part


def _below(mount: Path, subtree: Path) -> list[Path]:
    return [part for part in subtree.parents if part.is_relative_to(mount) and part != mount]


def _inherit(hierarchy: Hierarchy, part: Path) -> None:
    """v1 cpusets start empty and v2 children start without controllers: pass the parent's on."""
    if hierarchy.unified:
        for controller in (part.parent / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # one the machine holds back (cpu with real-time tasks) is no loss
                (part.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        return
    for name in _COPIED:
        if (part / name).exists() and not (part / name).read_text().strip():
            (part / name).write_text((part.parent / name).read_text())


def _remove_tree(root: Path) -> None:
    if not root.is_dir():
        return
    for child in root.iterdir():
        if child.is_dir():
            _remove_tree(child)
    _remove_empty(root)


def _remove_empty(folder: Path) -> None:
    """The kernel keeps a group busy for a moment after its last process ended."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
