"""Mount points as the kernel sees them, and connections of FUSE clients."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cache_runtime.engines.juicefs.control import INTERNAL_INODE, ROOT_INODE
from paddlewheel.core.errors import Retry

MOUNT_TIMEOUT = 10.0
"""Seconds for the kernel to mount or unmount."""
_CONNECTIONS = Path("/sys/fs/fuse/connections")
_OWN = "fuse-connections"


@dataclass(frozen=True)
class MountEntry:
    """One mount: device as `major:minor`, type of the file system, and what it says it was mounted from."""

    device: str
    type: str
    source: str


def is_juicefs(path: Path) -> bool:
    """Whether a live JuiceFS is mounted there. Blocks as long as the file system does."""
    try:
        return path.stat().st_ino == ROOT_INODE and (path / ".stats").stat().st_ino >= INTERNAL_INODE
    except OSError:
        return False


def mounts_at(path: Path) -> list[MountEntry]:
    """What the kernel has mounted there, dead or alive; the last one is what is seen."""
    wanted = str(path).replace("\\", "\\134").replace(" ", "\\040")
    lines = (line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [_entry(fields) for fields in lines if fields[4] == wanted]


def _entry(fields: list[str]) -> MountEntry:
    """The type follows the optional fields, which end with a dash."""
    end = fields.index("-")
    return MountEntry(fields[2], fields[end + 1], fields[end + 2])


def is_mount_point(path: Path) -> bool:
    """Whether the kernel has a mount there, dead or alive."""
    return bool(mounts_at(path))


async def lazy_unmount(path: Path, *options: str) -> None:
    """Detach the mount; open files stay usable. Raises Retry when the kernel refuses."""
    try:
        await run_mount("umount", "-l", *options, str(path))
    except Retry:
        if is_mount_point(path):
            raise


async def run_mount(*command: str) -> None:
    """Run `mount` or `umount`. Raises Retry when the kernel refuses, or does not answer."""
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(MOUNT_TIMEOUT):
            _, stderr = await process.communicate()
    except TimeoutError as error:
        with suppress(ProcessLookupError):
            process.kill()
        silent = f"{' '.join(command)} took more than {MOUNT_TIMEOUT:.0f} s"
        raise Retry(f"{command[0].capitalize()}Failed", silent) from error
    if process.returncode:
        raise Retry(f"{command[0].capitalize()}Failed", stderr.decode(errors="replace").strip())


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
