"""Where the pods of this node find the data: a directory that exists only while the data is mounted on it.

The directory is alone in a small read-only file system in memory, which appears together with the first
mount. Before that, and after a restart of the node, the directory does not exist. A pod that uses the volume
then waits, with an Event as the reason. It neither reads an empty tree nor writes to the node's disk.

A mount whose client has ended stays. Reads fail with ENOTCONN, and the next mount goes on top. The kernel
passes that mount on to every pod that has the directory mounted with propagation HostToContainer, so pods
read again without a restart. If the old mount were removed first, pods would keep it for ever.
"""

from __future__ import annotations

from pathlib import Path

from cache_runtime.engines.mounts import lazy_unmount, mounts_at, run_mount
from cache_runtime.threads import in_own_thread

LAYERS_MAX = 100
"""Mounts on top of each other until all are removed. The kernel allows 100,000 in a name space."""
_SOURCE = "paddlewheel"
_OPTIONS = "size=4k,nr_inodes=4,mode=0755,nosuid,nodev,noexec"


class View:
    """The directory `path`. The file system in memory is mounted on its parent."""

    def __init__(self, path: Path, state: Path) -> None:
        self.path, self._stage = path, state / "view"

    async def show(self, volume: Path) -> None:
        """Show what is mounted at `volume`. Raises Retry."""
        if len(mounts_at(self.path)) >= LAYERS_MAX:
            await self.remove()
        if self._exists():
            await run_mount("mount", "--bind", str(volume), str(self.path))
        else:
            await self._create(volume)

    def shows(self, device: str) -> bool:
        """Whether the top mount at `path` has this device."""
        return [entry.device for entry in mounts_at(self.path)[-1:]] == [device]

    async def remove(self) -> None:
        """Remove all mounts, for pods that start later. Running pods keep the mount that they have."""
        while self._exists():
            await lazy_unmount(self.path.parent, "--recursive")

    def _exists(self) -> bool:
        top = mounts_at(self.path.parent)[-1:]
        return bool(top) and (top[0].type, top[0].source) == ("tmpfs", _SOURCE)

    async def _create(self, volume: Path) -> None:
        """Build the file system elsewhere and attach it as a whole: no pod sees the bare directory."""
        while mounts_at(self._stage):
            await lazy_unmount(self._stage, "--recursive")
        await in_own_thread(lambda: _make_directories(self._stage, self.path.parent))
        await run_mount("mount", "-t", "tmpfs", "-o", _OPTIONS, _SOURCE, str(self._stage))
        await run_mount("mount", "--make-private", str(self._stage))
        directory = self._stage / self.path.name
        directory.mkdir()
        await run_mount("mount", "--bind", str(volume), str(directory))
        await run_mount("mount", "-o", "remount,ro", str(self._stage))
        await run_mount("mount", "--rbind", str(self._stage), str(self.path.parent))
        await lazy_unmount(self._stage, "--recursive")


def _make_directories(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)
