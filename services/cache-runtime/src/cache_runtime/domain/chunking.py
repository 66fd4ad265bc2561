"""Cutting a stream of files into chunks: balanced over partitions by bytes, bounded, deterministic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cache_runtime.domain.model import Cut, File, Totals

ENTRY_OVERHEAD = 40
"""JSON around one path: names of fields, quotes, size."""


@dataclass(frozen=True)
class Limits:
    """A chunk is full when adding a file would pass any of these; one larger file is a chunk alone."""

    bytes: int = 64 << 20
    files: int = 2000
    encoded: int = 512 << 10
    """Uncompressed JSON, so that any compression stays below the bus's 1 MiB."""


@dataclass
class _Open:
    """The chunk of one partition that is being filled."""

    files: list[File] = field(default_factory=list)
    bytes: int = 0
    encoded: int = 0


class Splitter:
    """Gives each file to the partition with the fewest bytes so far, and cuts chunks as they fill.

    The same files in the same order give the same chunks, which lets a new master repeat the work.
    """

    def __init__(self, partitions: int, limits: Limits) -> None:
        self._limits = limits
        self._open = [_Open() for _ in range(partitions)]
        self._totals = [Totals() for _ in range(partitions)]

    @property
    def totals(self) -> list[Totals]:
        """By partition; chunks counted once cut."""
        return list(self._totals)

    def add(self, file: File) -> Iterator[Cut]:
        """Yields the chunk that had no room for the file, if any."""
        p = min(range(len(self._open)), key=lambda i: (self._totals[i].bytes, self._totals[i].files, i))
        encoded = encoded_size(file)
        if not self._fits(self._open[p], file, encoded):
            yield self._cut(p)
        chunk, total = self._open[p], self._totals[p]
        chunk.files.append(file)
        chunk.bytes += file.size
        chunk.encoded += encoded
        self._totals[p] = Totals(total.files + 1, total.bytes + file.size, total.chunks)

    def flush(self) -> Iterator[Cut]:
        """Cut what is still open."""
        for p, chunk in enumerate(self._open):
            if chunk.files:
                yield self._cut(p)

    def _fits(self, chunk: _Open, file: File, encoded: int) -> bool:
        if not chunk.files:
            return True
        return (
            len(chunk.files) < self._limits.files
            and chunk.bytes + file.size <= self._limits.bytes
            and chunk.encoded + encoded <= self._limits.encoded
        )

    def _cut(self, partition: int) -> Cut:
        total = self._totals[partition]
        cut = Cut(partition, total.chunks, tuple(self._open[partition].files))
        self._totals[partition] = Totals(total.files, total.bytes, total.chunks + 1)
        self._open[partition] = _Open()
        return cut


def encoded_size(file: File) -> int:
    """Upper bound of the bytes of one entry in a chunk's JSON."""
    return len(json.dumps(file.path)) + ENTRY_OVERHEAD


def split(files: Iterable[File], splitter: Splitter) -> Iterator[Cut]:
    """All chunks of a stream."""
    for file in files:
        yield from splitter.add(file)
    yield from splitter.flush()
