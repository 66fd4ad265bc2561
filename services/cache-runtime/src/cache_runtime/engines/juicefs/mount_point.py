"""The mount point as the kernel sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cache_runtime.engines.juicefs.control import INTERNAL_INODE, ROOT_INODE
from paddlewheel.core.errors import Retry


def is_juicefs(path: Path) -> bool:
    """Whether a live JuiceFS is mounted there. Blocks as long as the file system does."""
    try:
        return path.stat().st_ino == ROOT_INODE and (path / ".stats").stat().st_ino >= INTERNAL_INODE
    except OSError:
        return False


def is_mount_point(path: Path) -> bool:
    """Whether the kernel has a mount there, dead or alive."""
    wanted = str(path).replace("\\", "\\134").replace(" ", "\\040")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split(" ")[4] == wanted for line in lines)


async def lazy_unmount(path: Path) -> None:
    """Detach the mount; open files stay usable. Raises Retry when the kernel refuses."""
    process = await asyncio.create_subprocess_exec(
        "umount", "-l", str(path), stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    _, stderr = await process.communicate()
    if process.returncode and is_mount_point(path):
        raise Retry("UnmountFailed", stderr.decode(errors="replace").strip())
