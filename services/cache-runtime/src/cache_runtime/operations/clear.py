"""Clear: empty cache directories of this volume, on every node or on some."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime

from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.paths import cache_dirs_to_clear
from cache_runtime.engines.ports import NodeCache
from cache_runtime.operations.base import ChunkTask, Node, RunOperation
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec


class Clear(RunOperation):
    """One entry for each partition, so that progress counts nodes."""

    def __init__(self, node: Node) -> None:
        self._cache, self._cache_dirs = node.engine.cache, node.cache_dirs
        self._mount = node.engine.mount

    @property
    def bound_to_node(self) -> bool:
        return True

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        for partition in partitions_to_clear(spec):
            yield Batch([File(f"partition-{partition}", 0)], partition)

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> ChunkTask:
        wanted = list(spec.clear.paths) if spec.clear else []
        if spec.clear and spec.clear.partitions:
            self._mount.leave()
        return _ClearTask(self._cache, cache_dirs_to_clear(wanted, list(self._cache_dirs)))


class _ClearTask:
    """Clears the node."""

    notes: Mapping[str, str] = {}
    kept = uncompared = 0
    away = ()

    def __init__(self, cache: NodeCache, directories: Sequence[str]) -> None:
        self._cache, self._directories = cache, directories
        self.rejected: Mapping[str, str] = {}

    def kept_since(self, at: datetime) -> int:
        return 0

    async def execute(self, files: Sequence[FileEntry]) -> None:
        await self._cache.clear(self._directories)

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        """A cache in use may hold new blocks at once, so there is nothing to compare with."""
        return {}


def partitions_to_clear(spec: RunSpec) -> list[int]:
    """The partitions that a clear names, or all."""
    named = spec.clear.partitions if spec.clear else []
    return [p for p in named if p < spec.partitions] if named else list(range(spec.partitions))


def create(node: Node) -> RunOperation:
    """The operation on this node."""
    return Clear(node)
