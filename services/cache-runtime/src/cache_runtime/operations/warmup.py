"""Warmup: bring files into the cache of the node, and check that they are there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.paths import decode_path, outermost, relative_path
from cache_runtime.domain.strategy import shares
from cache_runtime.engines.ports import NodeCache
from cache_runtime.operations.base import TRIES, ChunkTask, Node, RunOperation
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec, WarmupOperation
from paddlewheel.core.errors import Retry

THREADS = 50
_PATHS, _FILE = "warmupOptions.paths", "warmupOptions.file"


class Warmup(RunOperation):
    """Walks the mounted file system, or reads a ready list, and shares the files out by the strategy."""

    def __init__(self, node: Node) -> None:
        self._mount, self._cache, self._tree = node.engine.mount, node.engine.cache, node.tree

    @property
    def fills_cache(self) -> bool:
        return True

    async def list(self, spec: RunSpec) -> AsyncIterator[Batch]:
        assert spec.warmup is not None
        await self._mount.wait_mounted()
        listed = shares(spec.warmup, self._files(spec.warmup), spec.partitions, spec.run_id)
        async for batch in self._tree.batches(listed):
            yield batch
            if not self._mount.is_mounted:
                raise Retry("ListingFailed", "the mount was lost")

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry]) -> ChunkTask:
        threads = (spec.warmup.threads if spec.warmup else 0) or THREADS
        found = await self._tree.stat([decode_path(entry.path) for entry in files])
        if not self._mount.is_mounted:
            raise Retry("MountLost", "the mount was lost")
        inodes = {entry.path: stat.inode for entry, stat in zip(files, found, strict=True) if stat}
        return _WarmupTask(self._cache, threads, inodes, files)

    def _files(self, warmup: WarmupOperation) -> Iterator[File]:
        if warmup.file:
            yield from self._listed(relative_path(warmup.file, _FILE))
            return
        paths = [relative_path(path, _PATHS) for path in warmup.paths]
        for path in outermost(paths or [""]):
            yield from self._tree.walk(path, _PATHS)

    def _listed(self, path: str) -> Iterator[File]:
        for line in self._tree.lines(path, _FILE):
            clean = relative_path(line.decode("utf-8", "surrogateescape"), _FILE)
            yield self._tree.file(clean.encode("utf-8", "surrogateescape"))


class _WarmupTask:
    """Warms files by inode, so that no name has to be quoted."""

    notes: Mapping[str, str] = {}

    def __init__(
        self, cache: NodeCache, threads: int, inodes: Mapping[str, int], files: Sequence[FileEntry]
    ) -> None:
        self._cache, self._threads, self._inodes = cache, threads, inodes
        self.rejected = {entry.path: "not found" for entry in files if entry.path not in inodes}

    async def execute(self, files: Sequence[FileEntry]) -> None:
        await self._cache.warm([self._inodes[entry.path] for entry in files], self._threads)

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        cold = await self._cold(files)
        return {entry.path: f"not in the cache after {TRIES} tries" for entry in cold}

    async def _cold(self, files: Sequence[FileEntry]) -> Sequence[FileEntry]:
        """Files that are not completely cached; halves a set that is not until single files are left."""
        if not files:
            return ()
        report = await self._cache.check([self._inodes[entry.path] for entry in files], self._threads)
        if not report.missing and report.files == len(files):
            return ()
        if len(files) == 1:
            return files
        middle = len(files) // 2
        return [*await self._cold(files[:middle]), *await self._cold(files[middle:])]


def create(node: Node) -> RunOperation:
    """The operation on this node."""
    return Warmup(node)
