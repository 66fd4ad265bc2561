"""Remove: delete paths from the data set; what does not exist counts as removed, and is said."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.paths import decode_path, encode_path, outermost, removable_path
from cache_runtime.engines.ports import Volume
from cache_runtime.operations.base import ChunkTask, Node, RunOperation
from cache_runtime.tree import Tree
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec
from paddlewheel.core.errors import Permanent

_PATHS = "rmrOptions.paths"


class Remove(RunOperation):
    """Removes paths recursively."""

    def __init__(self, node: Node) -> None:
        self._volume, self._tree = node.engine.volume, node.tree

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        assert spec.remove is not None
        paths = [removable_path(path, _PATHS) for path in spec.remove.paths]
        if not paths:
            raise Permanent("InvalidPath", f"{_PATHS}: name at least one path")
        yield Batch([File(encode_path(path.encode()), 0) for path in outermost(paths)])

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> ChunkTask:
        task = _RemoveTask(self._volume, self._tree)
        await task.check(files)
        return task


class _RemoveTask:
    """Locates each path again right before it is removed: links may have changed."""

    def __init__(self, volume: Volume, tree: Tree) -> None:
        self._volume, self._tree = volume, tree
        self._problems: dict[str, str] = {}
        self.rejected: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.kept = self.uncompared = 0
        self.away = ()

    async def check(self, files: Sequence[FileEntry]) -> None:
        """Reject paths outside the data set, and files of the engine; note what there is not."""
        for entry in files:
            try:
                if await self._existing(entry) is None:
                    self.notes[entry.path] = "did not exist"
            except Permanent as error:
                self.rejected[entry.path] = error.message

    def kept_since(self, at: datetime) -> int:
        return 0

    async def execute(self, files: Sequence[FileEntry]) -> None:
        self._problems = {entry.path: await self._remove(entry) for entry in files}

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        return {path: problem for path, problem in self._problems.items() if problem}

    async def _remove(self, entry: FileEntry) -> str:
        try:
            path = await self._existing(entry)
            if path is None:
                return ""
            problem = await self._volume.remove(path)
            is_left = await self._existing(entry) is not None
        except Permanent as error:
            return error.message
        return problem or ("still exists" if is_left else "")

    async def _existing(self, entry: FileEntry) -> Path | None:
        """None when it does not exist. Raises Permanent when it may not be removed."""
        named = decode_path(entry.path)
        path, is_own = await self._tree.locate(named, _PATHS), await self._tree.is_own(named)
        if is_own:
            raise Permanent("InvalidPath", "is a file of the cache engine itself")
        return None if is_own is None else path


def create(node: Node) -> RunOperation:
    """The operation on this node."""
    return Remove(node)
