"""What the data plane needs of the node it runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from cache_runtime.domain.control import CacheReport, TreeSize
from cache_runtime.domain.model import File, Outcome
from paddlewheel.contracts.generated.cache_v1 import Chunk, RunSpec


class Lister(Protocol):
    """Finds out what a run is about."""

    def files(self, spec: RunSpec) -> AsyncIterator[Sequence[File]]:
        """Batches of files in a deterministic order.

        Raises:
            Permanent: the spec can never be listed (bad path, bad source).
            Retry: the file system or source did not answer.
        """
        ...


class ChunkWorker(Protocol):
    """Does one chunk of one kind of run."""

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        """Do all of the chunk; files that cannot be done after some tries are in `Outcome.failed`.

        Raises:
            Retry: nothing can be done now (not mounted); the chunk is handed out again.
            Permanent: the chunk can never be done.
        """
        ...


class Finisher(Protocol):
    """What the master does once all chunks are done."""

    async def finish(self, spec: RunSpec) -> None:
        """Raises Retry or Permanent."""
        ...


class CacheControl(Protocol):
    """The mounted client's own word on its cache."""

    async def warm(self, inodes: Sequence[int], threads: int) -> CacheReport: ...

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport: ...

    async def evict(self, inodes: Sequence[int], threads: int) -> CacheReport: ...

    async def tree_size(self) -> TreeSize: ...


class Mounted(Protocol):
    """Whether the file system is there."""

    @property
    def is_mounted(self) -> bool: ...

    async def wait_mounted(self) -> None: ...
