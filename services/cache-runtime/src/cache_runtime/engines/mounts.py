"""Mounts as the kernel sees them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cache_runtime.timing import KERNEL_MOUNT_TIMEOUT_SECONDS
from paddlewheel.core.errors import Retry


@dataclass(frozen=True)
class MountEntry:
    """One mount: device as `major:minor`, type of the file system, and source."""

    device: str
    type: str
    source: str


def mounts_at(path: Path) -> list[MountEntry]:
    """All mounts at the path, dead or alive. The last one is visible."""
    wanted = str(path).replace("\\", "\\134").replace(" ", "\\040")
    lines = (line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [_entry(fields) for fields in lines if fields[4] == wanted]


def _entry(fields: list[str]) -> MountEntry:
    """The type follows the optional fields, which end with a dash."""
    end = fields.index("-")
    return MountEntry(fields[2], fields[end + 1], fields[end + 2])


def is_mount_point(path: Path) -> bool:
    """Whether there is a mount, dead or alive."""
    return bool(mounts_at(path))


async def lazy_unmount(path: Path, *options: str) -> None:
    """Detach the mount; open files stay usable. Raises Retry when the kernel refuses."""
    try:
        await run_mount("umount", "-l", *options, str(path))
    except Retry:
        if is_mount_point(path):
            raise


async def unmount(path: Path) -> None:
    """Detach all mounts at the path. Raises Retry when the kernel refuses."""
    while is_mount_point(path):
        await lazy_unmount(path)


async def run_mount(*command: str) -> None:
    """Run `mount` or `umount`. Raises Retry when the kernel refuses, or does not answer."""
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(KERNEL_MOUNT_TIMEOUT_SECONDS):
            _, stderr = await process.communicate()
    except TimeoutError as error:
        silent = f"{' '.join(command)} took more than {KERNEL_MOUNT_TIMEOUT_SECONDS:.0f} s"
        raise Retry(f"{command[0].capitalize()}Failed", silent) from error
    finally:
        if process.returncode is None:  # the mount must not happen after the caller has given up
            with suppress(ProcessLookupError):
                process.kill()
    if process.returncode:
        raise Retry(f"{command[0].capitalize()}Failed", stderr.decode(errors="replace").strip())
