"""The cache of this node: filled and checked by the mounted client, cleared on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cache_runtime.beneath import opened_beneath
from cache_runtime.domain.model import CacheReport, CacheUse
from cache_runtime.engines.juicefs.control import ROOT_INODE, TRASH_INODE
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.engines.juicefs.mount import JuiceFsMount
from cache_runtime.retrying import disks_failed
from cache_runtime.threads import in_own_thread
from paddlewheel.core.errors import Retry

THREADS = 50
_ALL = (ROOT_INODE, TRASH_INODE)
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType]
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
"""There is no such directory beneath the cache directory, or a link in its place."""


class JuiceFsCache:
    """Implements `NodeCache`."""

    def __init__(self, mount: JuiceFsMount, control: ControlFile, directories: Sequence[str]) -> None:
        self._mount, self._control, self._directories = mount, control, directories

    async def warm(self, inodes: Sequence[int], threads: int) -> None:
        await self._control.warm(inodes, threads)

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        return await self._control.check(inodes, threads)

    async def clear(self, directories: Sequence[str]) -> None:
        """Staged writes, which are not uploaded yet, are kept."""
        is_all = set(directories) == set(self._directories)
        if is_all:
            # The client drops what it has indexed; blocks of purged files are left to the sweep below.
            await self._control.evict(_ALL, THREADS)
        # At once: one whose disk does not answer keeps no other from being emptied.
        emptied = await asyncio.gather(*map(self._empty, directories))
        if not is_all:
            # The client notices that blocks are gone when it looks for them; until then it counts them.
            await self._control.check(_ALL, THREADS)
        if problems := {name: each for name, each in zip(directories, emptied, strict=True) if each}:
            raise disks_failed(problems)

    async def _empty(self, directory: str) -> OSError | None:
        """The problem."""
        below = f"{self._mount.volume_id}/raw"
        try:
            await in_own_thread(lambda: _empty(directory, below))
        except OSError as error:
            return error
        return None

    async def use(self) -> CacheUse:
        return await self._control.cache_use()

    async def staged_bytes(self) -> int:
        try:
            return await in_own_thread(lambda: sum(map(_staged, self._directories)))
        except OSError as error:
            raise Retry("CacheUnreadable", f"{error.filename}: {error.strerror}") from error


def _staged(directory: str) -> int:
    """Of every volume that was ever cached there: each has a directory of its own."""
    if not Path(directory).is_dir():
        return 0
    volumes = [entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    return sum(_size_below(f"{volume}/rawstaging") for volume in volumes)


def _size_below(top: str) -> int:
    """Blocks vanish meanwhile: those that are uploaded. Any other error is raised."""
    found = 0
    for path, _, names in os.walk(top, onerror=_raise_unless_gone):
        for name in names:
            with suppress(FileNotFoundError):
                found += os.lstat(f"{path}/{name}").st_size
    return found


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _raise_unless_in_use(_function: object, _path: str, raised: _ExceptionInfo) -> None:
    """Meanwhile the client removes blocks and adds others."""
    error = raised[1]
    if not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
        raise error


def _empty(directory: str, below: str) -> None:
    """Remove the content of `directory/below`; nothing that a link or `..` leads to is touched."""
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with opened_beneath(os.fsencode(directory), os.fsencode(below), flags) as handle:
            _remove_entries(handle)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise


def _remove_entries(directory: int) -> None:
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, onerror=_raise_unless_in_use, dir_fd=directory)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=directory)
