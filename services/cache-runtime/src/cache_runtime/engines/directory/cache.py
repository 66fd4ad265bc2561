"""The cache of this node: copies of the files, compared with the data set each time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from cache_runtime.domain.model import CacheReport, CacheUse, FileName
from cache_runtime.domain.paths import decode_path
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.copying import CopyError, Pace
from cache_runtime.engines.directory.mount import DirectoryMount
from cache_runtime.retrying import disks_failed
from cache_runtime.threads import in_own_thread
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")


class DirectoryCache:
    """Implements `NodeCache`."""

    def __init__(self, mount: DirectoryMount, copies: Copies) -> None:
        self._mount, self._copies = mount, copies

    async def warm(self, files: Sequence[FileName], threads: int) -> None:
        await self._mount.wait_compared()
        pace = Pace()
        try:
            await self._call(lambda: self._warm(files, threads, pace))
        finally:
            pace.stop.set()
        await self._mount.refresh()

    async def check(self, files: Sequence[FileName], threads: int) -> CacheReport:
        await self._mount.wait_compared()
        pace = Pace()
        try:
            return await self._call(lambda: self._check(files, threads, pace))
        finally:
            pace.stop.set()

    async def clear(self, directories: Sequence[str]) -> None:
        problems = await self._call(lambda: self._copies.clear(directories))
        await self._mount.refresh()
        if problems:
            raise disks_failed(problems)

    async def use(self) -> CacheUse:
        """What pods read from where is known to the kernel only. What is not compared yet is not counted, so
        that the figure says nothing before."""
        await self._mount.wait_compared(0.0)
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

    def _warm(self, files: Sequence[FileName], threads: int, pace: Pace) -> None:
        """What cannot be copied is left out, and missing when it is checked."""
        with ThreadPoolExecutor(max(1, threads), thread_name_prefix="warm") as pool:
            for problem in pool.map(lambda file: self._add(file, pace), files):
                if problem:
                    log.warning("file not cached", problem=problem)

    def _add(self, file: FileName, pace: Pace) -> str:
        """The problem, or ""."""
        path = decode_path(file.path)
        try:
            pace.check()
            found = self._find(file)
            if found is not None and not self._copies.has(path, found):
                self._copies.add(path, pace)
        except (CopyError, OSError) as error:
            return f"{os.fsdecode(path)!r}: {error}"
        return ""

    def _check(self, files: Sequence[FileName], threads: int, pace: Pace) -> CacheReport:
        """Each name of a file has a copy of its own, and counts. One that is not there any more does not."""
        with ThreadPoolExecutor(max(1, threads), thread_name_prefix="check") as pool:
            reports = list(pool.map(lambda file: self._examine(file, pace), files))
        return CacheReport(
            sum(each.files for each in reports),
            sum(each.bytes for each in reports),
            sum(each.missing for each in reports),
        )

    def _examine(self, file: FileName, pace: Pace) -> CacheReport:
        found = None if pace.stop.is_set() else self._find(file)
        if found is None:
            return CacheReport(0, 0, 0)
        is_cached = self._copies.has(decode_path(file.path), found)
        return CacheReport(1, found.st_size, 0 if is_cached else found.st_size)

    def _find(self, file: FileName) -> os.stat_result | None:
        """None when another file has its name by now, or none. Raises Retry when the data set fails."""
        found = self._copies.find(decode_path(file.path))
        return found if found is not None and found.st_ino == file.inode else None
