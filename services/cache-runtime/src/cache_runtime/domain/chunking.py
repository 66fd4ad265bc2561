"""Splitting a stream of files into chunks: balanced over partitions by bytes, bounded, deterministic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from heapq import heapreplace

from cache_runtime.domain.digest import digest_of, sum_of
from cache_runtime.domain.model import File, ListedChunk
from paddlewheel.contracts.generated.cache_v1 import ChunkLimits, PartitionTotals, RunState

ENTRY_OVERHEAD = 40
"""JSON around one path: names of fields, quotes, size."""


@dataclass(frozen=True)
class Limits:
    """A chunk is full when another file would exceed any of these; a larger file is a chunk of its own.

    Args:
        bytes: of the first chunks of a partition.
        share, growth: later ones are at most one in `share` of what their partition holds before them, and
            `growth` times the first ones: a large partition starts fewer clients, and its progress still
            moves in small steps.
    """

    bytes: int = 64 << 20
    files: int = 2000
    encoded: int = 512 << 10
    """Uncompressed JSON, so that any compression stays below the bus's 1 MiB."""
    share: int = 64
    growth: int = 16

    @classmethod
    def planned(cls, state: RunState, own: Limits) -> Limits:
        """Those of a run; one of a release that did not record them has the `own` ones of its master."""
        return cls(**state.limits.model_dump()) if state.limits else own

    @property
    def record(self) -> ChunkLimits:
        """For the state of a run."""
        return ChunkLimits.model_validate(asdict(self))

    def bytes_after(self, held: int) -> int:
        """Of the next chunk of a partition that holds so many bytes."""
        return min(max(self.bytes, held // self.share), self.growth * self.bytes)


@dataclass
class _OpenChunk:
    """The chunk of one partition that is being filled."""

    files: list[File] = field(default_factory=list)
    bytes: int = 0
    encoded: int = 0

    def add(self, file: File, encoded: int) -> None:
        self.files.append(file)
        self.bytes += file.size
        self.encoded += encoded


@dataclass
class _Partition:
    """Totals of one partition, and its open chunk."""

    files: int = 0
    bytes: int = 0
    chunks: int = 0
    open: _OpenChunk = field(default_factory=_OpenChunk)


class Splitter:
    """Assigns each file to the partition with the fewest bytes so far, and completes chunks as they fill.

    The same files in the same order give the same chunks, so a new master repeats them.
    """

    def __init__(self, run_id: str, partitions: int, limits: Limits) -> None:
        self._run_id, self._limits = run_id, limits
        self._partitions = [_Partition() for _ in range(partitions)]
        self._loads = [(0, 0, index) for index in range(partitions)]
        self.digest = 0
        """Of the files of all chunks that are complete."""

    @property
    def totals(self) -> list[PartitionTotals]:
        """By partition; a chunk is counted once it is complete."""
        return [PartitionTotals(files=p.files, bytes=p.bytes, chunks=p.chunks) for p in self._partitions]

    def add(self, files: Iterable[File], partition: int | None = None) -> Iterator[ListedChunk]:
        """Yields the chunks that had no room for the next file.

        Args:
            partition: that takes all files; None for the one with the fewest bytes.
        """
        for file in files:
            index = self._least_loaded() if partition is None else partition
            target, encoded = self._partitions[index], encoded_size(file)
            if not self._fits(target, file.size, encoded):
                yield self._complete(index)
            target.open.add(file, encoded)
            target.files += 1
            target.bytes += file.size

    def flush(self) -> Iterator[ListedChunk]:
        """Complete the chunks that are still open."""
        for index, partition in enumerate(self._partitions):
            if partition.open.files:
                yield self._complete(index)

    def _least_loaded(self) -> int:
        """By bytes, then files. Loads only grow, so an entry that is no longer true is a lower bound."""
        while True:
            entry = self._loads[0]
            index = entry[2]
            now = (self._partitions[index].bytes, self._partitions[index].files, index)
            if entry == now:
                return index
            heapreplace(self._loads, now)

    def _fits(self, partition: _Partition, size: int, encoded: int) -> bool:
        chunk, limits = partition.open, self._limits
        if not chunk.files:
            return True
        return (
            len(chunk.files) < limits.files
            and chunk.encoded + encoded <= limits.encoded
            and chunk.bytes + size <= limits.bytes_after(partition.bytes - chunk.bytes)
        )

    def _complete(self, index: int) -> ListedChunk:
        partition = self._partitions[index]
        chunk = ListedChunk(self._run_id, index, partition.chunks, partition.open.files)
        self.digest = sum_of((self.digest, digest_of(chunk.files)))
        partition.chunks += 1
        partition.open = _OpenChunk()
        return chunk


def encoded_size(file: File) -> int:
    """Upper bound of the bytes of one entry in a chunk's JSON; quotes and backslashes take two each."""
    if file.path.isascii() and file.path.isprintable():
        return 2 * len(file.path) + ENTRY_OVERHEAD
    return len(json.dumps(file.path)) + ENTRY_OVERHEAD


def split(files: Iterable[File], splitter: Splitter) -> Iterator[ListedChunk]:
    """All chunks of a stream."""
    yield from splitter.add(files)
    yield from splitter.flush()
