"""Cgroups of the nodes' containers: a subtree per node, removed with the cluster.

A node runs in a cgroup namespace rooted at its subtree, mounted at /sys/fs/cgroup, so containerd and the
kubelet create cgroups and account resources within the node. Supports cgroup v1, v2 and hybrid mode. Uses the
standard library only, because a node's process 1 imports it.
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
_REMOVAL_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup hierarchy."""

    mount: Path
    unified: bool

    def subtree(self, slot: int, node: str = "") -> Path:
        """Subtree of a cluster or of one of its nodes."""
        return self.mount / "paddlewheel" / str(slot) / node


def hierarchies() -> tuple[Hierarchy, ...]:
    """All cgroup mounts under /sys/fs/cgroup."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = {Hierarchy(Path(row[1]), row[2] == "cgroup2") for row in rows if row[2] in ("cgroup", "cgroup2")}
    return tuple(
        sorted((item for item in found if item.mount.is_relative_to(_ROOT)), key=lambda item: str(item.mount))
    )


def prepare(slot: int, node: str) -> tuple[tuple[str, str], ...]:
    """Create a node's subtrees; returns (subtree, mount) pairs for `enter_cgroups`."""
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
    """Move this process into a new cgroup in each subtree and make that cgroup the root of its hierarchy.

    It must be new: v2 admits no processes into a cgroup whose children have controllers, as those of an
    earlier run do.
    """
    fresh = [(Path(subtree) / f"boot-{time.time_ns()}", Path(mount)) for subtree, mount in pairs]
    for group, _ in fresh:
        group.mkdir()
        (group / "cgroup.procs").write_text("0")
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), "cannot unshare the cgroup namespace")
    for group, mount in fresh:
        subprocess.run(["mount", "--bind", str(group), str(mount)], check=True, stdin=subprocess.DEVNULL)
        _make_room(mount)


def _make_room(mount: Path) -> None:
    """v2 enables controllers only for the children of an empty cgroup, so move into a leaf."""
    if not (mount / "cgroup.subtree_control").exists():
        return
    (mount / "init").mkdir()
    (mount / "init" / "cgroup.procs").write_text("0")


def remove(slot: int) -> None:
    """Remove all cgroups of a cluster whose processes are gone."""
    for hierarchy in hierarchies():
        _remove_tree(hierarchy.subtree(slot))
        with contextlib.suppress(OSError):
            hierarchy.subtree(slot).parent.rmdir()  # fails while another cluster uses it


def _below(mount: Path, subtree: Path) -> list[Path]:
    return [part for part in subtree.parents if part.is_relative_to(mount) and part != mount]


def _inherit(hierarchy: Hierarchy, part: Path) -> None:
    """v1 cpusets start empty and v2 children start without controllers: copy the parent's."""
    if hierarchy.unified:
        _enable_controllers(part.parent)
        return
    for name in _COPIED:
        if (part / name).exists() and not (part / name).read_text().strip():
            (part / name).write_text((part.parent / name).read_text())


def _pass_on(hierarchy: Hierarchy, part: Path) -> None:
    """Make cgroups created by a node's process 1 inherit these settings automatically."""
    if hierarchy.unified:
        _enable_controllers(part)
    else:
        (part / "cgroup.clone_children").write_text("1")


def _enable_controllers(part: Path) -> None:
    for controller in (part / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # not needed where it is unavailable (cpu with real-time tasks)
            (part / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove_tree(root: Path) -> None:
    if not root.is_dir():
        return
    for child in root.iterdir():
        if child.is_dir():
            _remove_tree(child)
    _remove_empty(root)


def _remove_empty(folder: Path) -> None:
    """The kernel reports a cgroup as busy for a moment after its last process has exited."""
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_SECONDS
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
