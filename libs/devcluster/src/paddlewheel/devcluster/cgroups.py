"""Control groups of the nodes' containers: a subtree per node, removed with the cluster.

A node lives in a cgroup namespace of its subtree, mounted at /sys/fs/cgroup, so what containerd and the
kubelet make or count there is the node's own. For cgroup v1, v2 and the hybrid of both. Standard library
only: a node's process 1 imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWCGROUP = 0x02000000
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
    return tuple(
        sorted((item for item in found if item.mount.is_relative_to(_ROOT)), key=lambda item: str(item.mount))
    )


def prepare(slot: int, node: str) -> tuple[tuple[str, str], ...]:
    """Make a node's subtrees; returns (subtree, mount) pairs for `enter_cgroups`."""
    pairs = []
    for hierarchy in hierarchies():
        subtree = hierarchy.subtree(slot, node)
        subtree.mkdir(parents=True, exist_ok=True)
        for part in reversed([subtree, *_below(hierarchy.mount, subtree)]):
            _inherit(hierarchy, part)
        _pass_on(hierarchy, subtree)
        pairs.append((str(subtree), str(hierarchy.mount)))
    return tuple(pairs)


def enter_cgroups(pairs: tuple[tuple[str, str], ...]) -> None:
    """Move this process into a fresh group of each subtree and see that group as the whole hierarchy.

    Fresh, because v2 lets no process into a group whose children have controllers, as an earlier run's do.
    """
    fresh = [(Path(subtree) / f"boot-{time.time_ns()}", Path(mount)) for subtree, mount in pairs]
    for group, _ in fresh:
        group.mkdir()
        (group / "cgroup.procs").write_text("0")
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), "unshare of the cgroup namespace failed")
    for group, mount in fresh:
        subprocess.run(["mount", "--bind", str(group), str(mount)], check=True, stdin=subprocess.DEVNULL)
        _make_room(mount)


def _make_room(mount: Path) -> None:
    """v2 gives controllers to the children of an empty group only: step aside into a leaf."""
    if not (mount / "cgroup.subtree_control").exists():
        return
    (mount / "init").mkdir()
    (mount / "init" / "cgroup.procs").write_text("0")


def remove(slot: int) -> None:
    """Remove everything of a cluster whose processes are gone."""
    for hierarchy in hierarchies():
        _remove_tree(hierarchy.subtree(slot))
        with contextlib.suppress(OSError):
            hierarchy.subtree(slot).parent.rmdir()  # fails while another cluster has its part


def _below(mount: Path, subtree: Path) -> list[Path]:
    return [part for part in subtree.parents if part.is_relative_to(mount) and part != mount]


def _inherit(hierarchy: Hierarchy, part: Path) -> None:
    """v1 cpusets start empty and v2 children start without controllers: take the parent's."""
    if hierarchy.unified:
        _enable_controllers(part.parent)
        return
    for name in _COPIED:
        if (part / name).exists() and not (part / name).read_text().strip():
            (part / name).write_text((part.parent / name).read_text())


def _pass_on(hierarchy: Hierarchy, part: Path) -> None:
    """Let the groups that a node's process 1 makes inherit by themselves."""
    if hierarchy.unified:
        _enable_controllers(part)
    else:
        (part / "cgroup.clone_children").write_text("1")


def _enable_controllers(part: Path) -> None:
    for controller in (part / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one the machine holds back (cpu with real-time tasks) is no loss
            (part / "cgroup.subtree_control").write_text(f"+{controller}")


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
