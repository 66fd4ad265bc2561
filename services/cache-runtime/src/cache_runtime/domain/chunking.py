"""Splitting a stream of files into chunks: balanced over partitions by bytes, bounded, deterministic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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
    """The chunk of one partition that is being filled, and what it has room for."""

    files_left: int
    bytes_left: int
    encoded_left: int
    files: list[File] = field(default_factory=list)
    bytes: int = 0

    def takes(self, size: int, encoded: int) -> bool:
        """Whether there is room for a file; for the first there always is."""
        is_within = size <= self.bytes_left and encoded <= self.encoded_left and self.files_left > 0
        return is_within or not self.files

    def add(self, file: File, encoded: int) -> None:
        size = file[1]
        self.files.append(file)
        self.files_left -= 1
        self.bytes_left -= size
        self.encoded_left -= encoded
        self.bytes += size


class _Partition:
    """The chunks of one partition that are complete, and the one that is being filled."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._files = self._bytes = self.chunks = 0
        self.open = self._new_chunk()

    @property
    def load(self) -> tuple[int, int]:
        """Bytes and files."""
        return self._bytes + self.open.bytes, self._files + len(self.open.files)

    def complete(self) -> Sequence[File]:
        """The files of the chunk that was being filled; the next one begins."""
        files = self.open.files
        (self._bytes, self._files), self.chunks = self.load, self.chunks + 1
        self.open = self._new_chunk()
        return files

    def _new_chunk(self) -> _OpenChunk:
        limits = self._limits
        return _OpenChunk(limits.files, limits.bytes_after(self._bytes), limits.encoded)


class Splitter:
    """Assigns each file to the partition with the fewest bytes so far, and completes chunks as they fill.

    The same files in the same order give the same chunks, so a new master repeats them.
    """

    def __init__(self, run_id: str, partitions: int, limits: Limits) -> None:
        self._run_id = run_id
        self._partitions = [_Partition(limits) for _ in range(partitions)]
        self._loads = [((0, 0), index) for index in range(partitions)]
        self.digest = 0
        """Of the files of all chunks that are complete."""

    @property
    def totals(self) -> list[PartitionTotals]:
        """By partition; a chunk is counted once it is complete."""
        loads = ((p.chunks, *p.load) for p in self._partitions)
        return [PartitionTotals(files=files, bytes=size, chunks=chunks) for chunks, size, files in loads]

    def add(self, files: Iterable[File], partition: int | None = None) -> Iterator[ListedChunk]:
        """Yields the chunks that had no room for the next file.

        Args:
            partition: that takes all files; None for the one with the fewest bytes.
        """
        if partition is not None:
            yield from self._fill(partition, files)
            return
        for file in files:
            yield from self._fill(self._least_loaded(), (file,))

    def flush(self) -> Iterator[ListedChunk]:
        """Complete the chunks that are still open."""
        for index, partition in enumerate(self._partitions):
            if partition.open.files:
                yield self._complete(index)

    def _least_loaded(self) -> int:
        """By bytes, then files. Loads only grow, so an entry that is no longer true is a lower bound."""
        while True:
            entry = self._loads[0]
            index = entry[1]
            now = (self._partitions[index].load, index)
            if entry == now:
                return index
            heapreplace(self._loads, now)

    def _fill(self, index: int, files: Iterable[File]) -> Iterator[ListedChunk]:
        chunk = self._partitions[index].open
        for file in files:
            size, encoded = file[1], encoded_size(file[0])
            if not chunk.takes(size, encoded):
                yield self._complete(index)
                chunk = self._partitions[index].open
            chunk.add(file, encoded)

    def _complete(self, index: int) -> ListedChunk:
        partition = self._partitions[index]
        chunk = ListedChunk(self._run_id, index, partition.chunks, partition.complete())
        self.digest = sum_of((self.digest, digest_of(chunk.files)))
        return chunk


def encoded_size(path: str) -> int:
    """Upper bound of the bytes of a file's entry in a chunk's JSON; quotes and backslashes take two each."""
    if path.isascii() and path.isprintable():
        return 2 * len(path) + ENTRY_OVERHEAD
    return len(json.dumps(path)) + ENTRY_OVERHEAD


def split(files: Iterable[File], splitter: Splitter) -> Iterator[ListedChunk]:
    """All chunks of a stream."""
    yield from splitter.add(files)
    yield from splitter.flush()
