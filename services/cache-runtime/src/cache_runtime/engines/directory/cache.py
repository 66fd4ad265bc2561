"""The cache of this node: copies of the files, compared with the data set each time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from cache_runtime.domain.model import CacheReport, CacheUse
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.copying import CopyError, Pace
from cache_runtime.engines.directory.mount import DirectoryMount
from cache_runtime.engines.directory.shared import Found, Names
from cache_runtime.retrying import disks_failed
from cache_runtime.threads import in_own_thread
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")


class DirectoryCache:
    """Implements `NodeCache`."""

    def __init__(self, mount: DirectoryMount, names: Names, copies: Copies) -> None:
        self._mount, self._names, self._copies = mount, names, copies

    async def warm(self, inodes: Sequence[int], threads: int) -> None:
        pace = Pace()
        try:
            await self._call(lambda: self._warm(inodes, threads, pace))
        finally:
            pace.stop.set()
        await self._mount.refresh()

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        return await self._call(lambda: self._check(inodes))

    async def clear(self, directories: Sequence[str]) -> None:
        problems = await self._call(lambda: self._copies.clear(directories))
        await self._mount.refresh()
        if problems:
            raise disks_failed(problems)

    async def use(self) -> CacheUse:
        """What pods read from where is known to the kernel only."""
        return await self._call(lambda: CacheUse(self._copies.used))

    async def staged_bytes(self) -> int:
        return 0

    async def _call(self, call: Callable[[], T]) -> T:
        if not self._mount.is_mounted:
            raise Retry("MountLost", self._mount.message)
        try:
            return await in_own_thread(call)
        except OSError as error:
            raise Retry("CacheDiskFailed", f"{error.filename}: {error.strerror}") from error

    def _warm(self, inodes: Sequence[int], threads: int, pace: Pace) -> None:
        """What cannot be copied is left out, and missing when it is checked."""
        found = (pair for pairs in self._names.find(inodes).values() for pair in pairs)
        with ThreadPoolExecutor(max(1, threads), thread_name_prefix="warm") as pool:
            for problem in pool.map(lambda pair: self._add(pair, pace), found):
                if problem:
                    log.warning("file not cached", problem=problem)

    def _add(self, found: Found, pace: Pace) -> str:
        """The problem, or ""."""
        path, state = found
        try:
            if not self._copies.has(path, state):
                self._copies.add(path, pace)
        except (CopyError, OSError) as error:
            return f"{os.fsdecode(path)!r}: {error}"
        return ""

    def _check(self, inodes: Sequence[int]) -> CacheReport:
        """A file with several names is cached when it is under each of them."""
        files = size = missing = 0
        for names in self._names.find(inodes).values():
            length = names[0][1].st_size
            files, size = files + 1, size + length
            missing += 0 if all(self._copies.has(*found) for found in names) else length
        return CacheReport(files, size, missing)
