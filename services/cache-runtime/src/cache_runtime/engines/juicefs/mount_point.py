"""The client's mounts, and its connections to the kernel."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cache_runtime.engines.juicefs.control import INTERNAL_INODES, ROOT_INODE
from cache_runtime.engines.mounts import mounts_at, run_mount

_CONNECTIONS = Path("/sys/fs/fuse/connections")
_OWN = "fuse-connections"


def is_juicefs(path: Path) -> bool:
    """Whether a live JuiceFS is mounted there. Blocks as long as the file system does."""
    try:
        return path.stat().st_ino == ROOT_INODE and (path / ".stats").stat().st_ino in INTERNAL_INODES
    except OSError:
        return False


async def find_connections(state: Path) -> None:
    """Make the list of FUSE connections available, for `abort_connection`. Raises Retry.

    It is done while all is well: a process that is forked while a client is silent may stand still.

    Args:
        state: a directory of this process, for the list where the pod has none.
    """
    if _has_connections(_CONNECTIONS) or _has_connections(state / _OWN):
        return
    (state / _OWN).mkdir(parents=True, exist_ok=True)
    await run_mount("mount", "-t", "fusectl", "none", str(state / _OWN))


def abort_connection(device: str, state: Path) -> None:
    """End what a FUSE client serves, for all who have it mounted.

    Each call fails from now on, also those that wait, and the client comes to its end. Nothing happens when
    there is no such connection any more.

    Args:
        device: `major:minor` of its mounts.
        state: as of `find_connections`.
    """
    connections = _CONNECTIONS if _has_connections(_CONNECTIONS) else state / _OWN
    with suppress(FileNotFoundError):
        (connections / device.partition(":")[2] / "abort").write_text("1")


def _has_connections(path: Path) -> bool:
    return any(entry.type == "fusectl" for entry in mounts_at(path))
