"""Doing one chunk: warm and check, copy and compare, remove, clear."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cache_runtime.adapters.client import JuiceFs
from cache_runtime.adapters.listers import inside
from cache_runtime.adapters.mount import MountSupervisor
from cache_runtime.adapters.walk import stat_file
from cache_runtime.domain import juicefs as commands
from cache_runtime.domain.control import INTERNAL_INODE
from cache_runtime.domain.model import Outcome
from cache_runtime.domain.paths import cache_dirs_to_clear, decode_path
from cache_runtime.ports import CacheControl, Mounted
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, RunSpec
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

TRIES = 3
WARMUP_THREADS = 50
REMOVE_TIMEOUT = 3600.0
_PAUSE = 1.0
_ROOT_INODE = 1


@dataclass(frozen=True)
class _Found:
    """A file of the chunk with its inode."""

    entry: FileEntry
    inode: int


class WarmupWorker:
    """Fills the cache through the mounted client and asks it what is still missing."""

    def __init__(self, root: Path, cache: CacheControl, mount: Mounted, clock: Clock) -> None:
        self._root, self._cache, self._mount, self._clock = os.fsencode(root), cache, mount, clock

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        """Implements `ChunkWorker`."""
        await self._mount.wait_mounted()
        threads = (spec.warmup.threads if spec.warmup else 0) or WARMUP_THREADS
        found = await asyncio.to_thread(self._find, chunk.files)
        if not self._mount.is_mounted:
            raise Retry("MountLost", "the mount was lost")
        missing = await self._warm(found, threads)
        there, cold = {f.entry.path for f in found}, {f.entry.path for f in missing}
        done = [e for e in chunk.files if e.path in there and e.path not in cold]
        failed = [f"{e.path}: not found" for e in chunk.files if e.path not in there]
        failed += [f"{path}: not in the cache after {TRIES} tries" for path in sorted(cold)]
        size = sum(entry.size for entry in done)
        return Outcome(len(done), size, cached_bytes=size, failed=tuple(failed))

    def _find(self, files: Sequence[FileEntry]) -> list[_Found]:
        stats = ((entry, stat_file(self._root, decode_path(entry.path))) for entry in files)
        return [_Found(entry, found.st_ino) for entry, found in stats if found]

    async def _warm(self, files: list[_Found], threads: int) -> list[_Found]:
        """Warm until all is cached; gives what is not after all tries."""
        for attempt in range(TRIES):
            if not files:
                return []
            if attempt:
                await self._clock.sleep(_PAUSE * 3**attempt)
            await self._cache.warm([f.inode for f in files], threads)
            files = await self._missing(files, threads)
        return files

    async def _missing(self, files: list[_Found], threads: int) -> list[_Found]:
        """Which files are not wholly cached; halves what is not until single files are left."""
        if not files:
            return []
        report = await self._cache.check([f.inode for f in files], threads)
        if not report.missing and report.files == len(files):
            return []
        if len(files) == 1:
            return files
        middle = len(files) // 2
        return await self._missing(files[:middle], threads) + await self._missing(files[middle:], threads)


class RemoveWorker:
    """Removes paths from the mounted file system; what is gone already counts as removed."""

    def __init__(self, root: Path, client: JuiceFs, mount: Mounted) -> None:
        self._root, self._client, self._mount = root, client, mount

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        """Implements `ChunkWorker`."""
        await self._mount.wait_mounted()
        failed = []
        for entry in chunk.files:
            if problem := await self._remove(entry.path):
                failed.append(f"{entry.path}: {problem}")
        return Outcome(len(chunk.files) - len(failed), 0, failed=tuple(failed))

    async def _remove(self, encoded: str) -> str:
        path = Path(os.fsdecode(decode_path(encoded)))
        try:
            target = inside(self._root, str(path.parent), "rmrOptions.paths") / path.name
        except Permanent as error:
            return error.message
        inode: int | None = await asyncio.to_thread(_inode, target)
        if inode is None:
            return ""
        if inode >= INTERNAL_INODE:
            return "is a file of JuiceFS itself"
        done = await self._client.run(commands.remove([str(target)]), timeout=REMOVE_TIMEOUT)
        still_there = await asyncio.to_thread(os.path.lexists, target)
        return done.problem if done.code or still_there else ""


class ClearWorker:
    """Empties this node's cache directories of this volume; staged writes are left alone."""

    def __init__(self, mount: MountSupervisor, cache: CacheControl, cache_dirs: list[str]) -> None:
        self._mount, self._cache, self._dirs = mount, cache, cache_dirs

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        """Implements `ChunkWorker`."""
        await self._mount.wait_mounted()
        dirs = cache_dirs_to_clear(list(spec.clear.paths) if spec.clear else [], self._dirs)
        if set(dirs) == set(self._dirs):
            # The client forgets what it holds; blocks of files that are gone are left to the sweep below.
            await self._cache.evict([_ROOT_INODE], WARMUP_THREADS)
        for directory in dirs:
            await asyncio.to_thread(_empty, Path(directory) / self._mount.volume_id / "raw")
        return Outcome(files=1)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def _empty(directory: Path) -> None:
    """Remove everything in it, not itself; follows no link."""
    if directory.is_symlink() or not directory.is_dir():
        return
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
