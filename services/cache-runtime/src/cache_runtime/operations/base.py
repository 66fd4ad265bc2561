"""What every operation of a run has in common: list, then execute and verify each chunk, then finish."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cache_runtime.domain.model import Batch, TreeSize
from cache_runtime.engines.ports import Engine
from cache_runtime.tree import Tree
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec
from paddlewheel.core.clock import Clock

TRIES = 3
"""Executions of a chunk, before the files that still fail are reported."""


@dataclass(frozen=True)
class Node:
    """What an operation works with. `cache_dirs` are the cache directories of this node."""

    engine: Engine
    tree: Tree
    cache_dirs: Sequence[str]
    clock: Clock


class ChunkTask(Protocol):
    """One chunk in execution."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Files that are never executed, with the reason, by encoded path."""
        ...

    @property
    def notes(self) -> Mapping[str, str]:
        """What is worth knowing of files that are done, by encoded path."""
        ...

    @property
    def kept(self) -> int:
        """How many files and directories were left as they were found, and not looked into: it counts when
        nothing of the chunk can have been executed earlier."""
        ...

    def kept_since(self, at: datetime) -> int:
        """The same of a chunk that may have been executed earlier: those that nobody has changed since, by
        the clocks of the nodes on which that may have been."""
        ...

    @property
    def uncompared(self) -> int:
        """How many files, with those that an earlier try may have copied."""
        ...

    @property
    def away(self) -> Collection[str]:
        """Files, by encoded path, that the last execution has not done because a server was away."""
        ...

    async def execute(self, files: Sequence[FileEntry]) -> None:
        """Process the files; called again for those that `verify` returns. Raises Retry or Permanent."""
        ...

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        """Files that are not done, with the reason, by encoded path. Raises Retry."""
        ...


class RunOperation(Protocol):
    """One operation: the file `operations/<member>.py`, whose `create` returns it."""

    @property
    def fills_cache(self) -> bool:
        """Whether the bytes of a finished file are in the cache of this node."""
        return False

    @property
    def bound_to_node(self) -> bool:
        """Whether a partition's work can be done on its own node only."""
        return False

    @property
    def lists_mount(self) -> bool:
        """Whether the listing reads the mounted file system."""
        return False

    @property
    def notes_hold(self) -> bool:
        """Whether they say what is so, and not what was found, which an earlier execution may have caused."""
        return False

    def again(self, spec: RunSpec) -> RunSpec:
        """What is executed of a chunk that may have been executed before."""
        return spec

    def is_dry(self, spec: RunSpec) -> bool:
        """Whether the run ends after the listing."""
        return False

    def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        """The files of the run, in an order that a new master repeats.

        Raises:
            Permanent: the run can never be listed (bad path, bad source).
            Retry: the file system or source did not answer.
        """
        ...

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> ChunkTask:
        """Check a chunk of a partition before its execution.

        Raises:
            Permanent: the chunk can never be done.
            Retry: nothing can be done now (not mounted); the chunk is delivered again.
        """
        ...

    async def tidy(self, spec: RunSpec, files: Sequence[FileEntry]) -> None:
        """Called after a chunk of which a try may have failed or been broken off: remove what that has left.

        Raises:
            Permanent: nothing can ever be removed (a read-only mount): that fails no chunk.
            Retry: the file system does not answer.
        """
        return

    async def recount(self, spec: RunSpec, partition: int, warmed: int) -> int:
        """Bytes of a partition's files that the cache of this node holds.

        Args:
            warmed: bytes of these that were warmed, on whatever node.

        Raises:
            Permanent, Retry: they cannot be looked up, ever or now.
        """
        return 0

    def remark(self, spec: RunSpec, uncompared: int) -> str:
        """What is told of files that a run which succeeded has found, and not looked into."""
        return ""

    async def finish(self, spec: RunSpec, done: TreeSize) -> None:
        """Called by the master after all chunks have succeeded, and again if it dies meanwhile.

        Args:
            done: all files of the run.

        Raises:
            Permanent: it can never be done.
            Retry: it can be later.
        """
        return
