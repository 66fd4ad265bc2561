"""Warmup: bring files into the cache of the node, and check that they are there."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cache_runtime.domain.model import Batch, CacheReport, File, FileStat
from cache_runtime.domain.paths import decode_path, outermost, relative_path
from cache_runtime.domain.strategy import shares
from cache_runtime.engines.ports import NodeCache
from cache_runtime.guard import BrokenOffError, unless
from cache_runtime.listing import Walker
from cache_runtime.operations.base import TRIES, ChunkTask, Node, RunOperation
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec, WarmupOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry

THREADS = 50
REMEMBERED = 16
"""Runs whose files a process remembers."""
_PATHS, _FILE = "warmupOptions.paths", "warmupOptions.file"


class Warmup(RunOperation):
    """Walks the mounted file system, or reads a ready list, and shares the files out by the strategy."""

    def __init__(self, node: Node) -> None:
        self._mount, self._cache, self._tree = node.engine.mount, node.engine.cache, node.tree
        self._memories = _Memories()

    @property
    def fills_cache(self) -> bool:
        return True

    @property
    def lists_mount(self) -> bool:
        return True

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        assert spec.warmup is not None
        await self._mount.wait_mounted()
        since = self._mount.changes
        with closing(self._tree.walker()) as walker:
            listed = shares(spec.warmup, self._files(walker, spec.warmup), spec.partitions, spec.run_id)
            while batch := await self._unless_changed(since, self._tree.next_batch(listed)):
                yield batch

    async def _unless_changed(self, since: int, reading: Coroutine[Any, Any, Batch | None]) -> Batch | None:
        """Raises Retry when the mount has changed since: the listing may show two states of the data set, and
        a read on the former mount may never return."""
        batch = None
        with suppress(BrokenOffError):
            batch = await unless(self._mount.wait_changed(since), reading)
        if self._has_changed(since):
            raise Retry(Reason.LISTING_FAILED, "the mount was lost")
        return batch

    def _has_changed(self, since: int) -> bool:
        return not self._mount.is_mounted or self._mount.changes != since

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> ChunkTask:
        threads = (spec.warmup.threads if spec.warmup else 0) or THREADS
        since = self._mount.changes
        found = await self._tree.stat([decode_path(entry.path) for entry in files])
        if self._has_changed(since):
            raise Retry("MountLost", "the mount was lost")
        stats = {entry.path: stat for entry, stat in zip(files, found, strict=True) if stat}
        memory = self._memories.of(spec.run_id, partition)[files[0].path] = _Memory()
        return _WarmupTask(_Lookup(self._cache, threads), stats, files, memory)

    async def recount(self, spec: RunSpec, partition: int, warmed: int) -> int:
        """From the memory of this process, or from a new listing if other nodes have warmed some files."""
        lookup = _Lookup(self._cache, (spec.warmup.threads if spec.warmup else 0) or THREADS)
        memories = list(self._memories.of(spec.run_id, partition).values())
        if sum(memory.size for memory in memories) < warmed:
            memories = [memory async for memory in self._listed_again(spec, partition)]
        # Without inodes the client would examine everything.
        found = [await lookup.present(m.inodes, m.size) for m in memories if m.inodes]
        return sum(found)

    async def _listed_again(self, spec: RunSpec, partition: int) -> AsyncIterator[_Memory]:
        async with aclosing(self.list(spec)) as listing:
            async for batch in listing:
                if batch.partition == partition:
                    found = await self._tree.stat([decode_path(file.path) for file in batch.files])
                    pairs = zip(found, batch.files, strict=True)
                    there = [(stat.inode, file.size) for stat, file in pairs if stat]
                    memory = _Memory()
                    memory.add([inode for inode, _ in there], sum(size for _, size in there))
                    yield memory

    def _files(self, walker: Walker, warmup: WarmupOperation) -> Iterator[File]:
        if warmup.file:
            yield from self._listed(relative_path(warmup.file, _FILE))
            return
        paths = [relative_path(path, _PATHS) for path in warmup.paths]
        for path in outermost(paths or [""]):
            yield from self._tree.walk(walker, path, _PATHS)

    def _listed(self, path: str) -> Iterator[File]:
        for line in self._tree.lines(path, _FILE):
            clean = relative_path(line.decode("utf-8", "surrogateescape"), _FILE)
            yield self._tree.file(clean.encode("utf-8", "surrogateescape"))


@dataclass
class _Memory:
    """The inodes of a chunk's files that were warmed, and their bytes."""

    inodes: array[int] = field(default_factory=lambda: array("Q"))
    size: int = 0

    def add(self, inodes: Sequence[int], size: int) -> None:
        self.inodes.extend(inodes)
        self.size += size


class _Memories:
    """The files that this process has warmed, by run, by partition, and by the first file of a chunk.

    A chunk that is delivered again replaces itself. Runs that were cancelled make room for later ones.
    """

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, dict[str, _Memory]]] = {}

    def of(self, run_id: str, partition: int) -> dict[str, _Memory]:
        self._runs[run_id] = self._runs.pop(run_id, {})
        if len(self._runs) > REMEMBERED:
            del self._runs[next(iter(self._runs))]
        return self._runs[run_id].setdefault(partition, {})


class _Lookup:
    """Looks up what the cache holds of files."""

    def __init__(self, cache: NodeCache, threads: int) -> None:
        self.cache, self.threads = cache, threads

    async def holds_all(self, inodes: Sequence[int], size: int) -> bool:
        """Whether the files, of `size` bytes in all, are completely cached."""
        report = await self._report(inodes, size)
        return not report.missing and report.files == len(inodes)

    async def present(self, inodes: Sequence[int], size: int) -> int:
        """Bytes of the files that are cached; of one that is gone, none."""
        report = await self._report(inodes, size)
        holes = size - report.bytes if report.files == len(inodes) else 0
        return max(0, min(size, report.bytes - report.missing + max(0, holes)))

    async def _report(self, inodes: Sequence[int], size: int) -> CacheReport:
        """The engine counts a file that it could not examine, but not its bytes, and calls none missing.

        Holes of a file have no bytes either, but these are as few the second time.

        Raises:
            Retry: two looks do not agree.
        """
        report = await self.cache.check(inodes, self.threads)
        if report.files < len(inodes) or report.bytes >= size:
            return report
        again = await self.cache.check(inodes, self.threads)
        if (again.files, again.bytes) != (report.files, report.bytes):
            raise Retry("CheckFailed", "the cache could not be examined completely")
        return again


class _WarmupTask:
    """Warms the files of a chunk."""

    notes: Mapping[str, str] = {}
    kept = uncompared = 0
    away = ()

    def __init__(
        self,
        lookup: _Lookup,
        stats: Mapping[str, FileStat],
        files: Sequence[FileEntry],
        memory: _Memory,
    ) -> None:
        self._lookup, self._stats, self._memory = lookup, stats, memory
        self.rejected = {entry.path: "not found" for entry in files if entry.path not in stats}

    def kept_since(self, at: datetime) -> int:
        return 0

    async def execute(self, files: Sequence[FileEntry]) -> None:
        await self._lookup.cache.warm(self._inodes(files), self._lookup.threads)

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        cold = {entry.path for entry in await self._cold(files)}
        warm = [entry for entry in files if entry.path not in cold]
        self._memory.add(self._inodes(warm), sum(entry.size for entry in warm))
        return dict.fromkeys(cold, f"not in the cache after {TRIES} tries")

    async def _cold(self, files: Sequence[FileEntry]) -> Sequence[FileEntry]:
        """Files that are not completely cached; halves a set that is not until single files are left."""
        size = sum(self._stats[entry.path].size for entry in files)
        if not files or await self._lookup.holds_all(self._inodes(files), size):
            return ()
        if len(files) == 1:
            return files
        middle = len(files) // 2
        return [*await self._cold(files[:middle]), *await self._cold(files[middle:])]

    def _inodes(self, files: Sequence[FileEntry]) -> list[int]:
        return [self._stats[entry.path].inode for entry in files]


def create(node: Node) -> RunOperation:
    """The operation on this node."""
    return Warmup(node)
