"""Which partition holds a file: the same one in every run, with about as many bytes in each.

Jump consistent hashing (Lamping and Veach, 2014) with bounded loads (Mirrokni, Thorup and Zadimoghaddam,
2017): adding or taking away one of n partitions moves about 1/n of the bytes, so a second warmup finds the
rest in the cache. Slots are hashed consistently, of which each file has some by a checksum of its path:
to hash each file took a fourth of the time of a listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from zlib import crc32

from cache_runtime.domain.model import Batch, File

WINDOW = 1_024
"""Files of each partition that are placed at a time: the first chunks are out before all files are listed."""
BOUND = 1.03
"""Load of a partition over the mean, at most, unless a single file is larger than that."""
LEAST_WEIGHT = 4_096
"""Bytes that a file weighs at least: it takes a block of the cache's disk, and a request."""
SLOTS = 1 << 16
"""A power of two, and 65 times as many as there can be partitions."""
_TRIES = 8
_WORD = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number whose multiples are spread evenly over 64 bits (the golden ratio)."""


class _Slots(dict[int, int]):
    """The partition of each slot that was asked for."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __missing__(self, slot: int) -> int:
        self[slot] = found = jump(slot * _SPREAD & _WORD, self._partitions)
        return found


class Placement:
    """Places the files of one listing. The same listing is always placed in the same way.

    Args:
        partitions: ordinals of the partitions that take files; not empty.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._loads = dict.fromkeys(partitions, 0)
        self._slots = _Slots(max(partitions) + 1)
        self._placed = 0

    def place(self, window: Sequence[File]) -> list[int]:
        """The partition of each file. The largest are placed first: small ones fill what is left evenly."""
        weights = [size if size > LEAST_WEIGHT else LEAST_WEIGHT for _, size in window]
        slots = [crc32(path.encode()) * _SPREAD >> 32 & SLOTS - 1 for path, _ in window]
        self._placed += sum(weights)
        bound = self._placed * BOUND / len(self._loads)
        loads, found = self._loads, [0] * len(window)
        for index in sorted(range(len(window)), key=weights.__getitem__, reverse=True):
            weight, partition = weights[index], self._slots[slots[index]]
            # A partition that takes no files has no load.
            if loads.get(partition, inf) + weight > bound:
                partition = self._another(slots[index], bound - weight)
            loads[partition] += weight
            found[index] = partition
        return found

    def _another(self, slot: int, most: float) -> int:
        """The first of the file's other candidates whose load is `most` or less; else the partition with the
        lowest load."""
        for _ in range(_TRIES):
            slot = slot * 25_173 + 13_849 & SLOTS - 1
            partition = self._slots[slot]
            if self._loads.get(partition, inf) <= most:
                return partition
        return min(self._loads, key=self._loads.__getitem__)


def jump(key: int, buckets: int) -> int:
    """0 to buckets - 1. With one bucket more, a key stays where it is or goes to the new one."""
    found, following = 0, 0
    while following < buckets:
        found = following
        key = (key * 2862933555777941757 + 1) & _WORD
        following = int((found + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return found


def batches(files: Iterable[File], partitions: Sequence[int]) -> Iterator[Batch]:
    """The files of each partition, window by window, in the order in which they are listed."""
    placement, stream = Placement(partitions), iter(files)
    while window := list(islice(stream, WINDOW * len(partitions))):
        shares: dict[int, list[File]] = {}
        for file, partition in zip(window, placement.place(window), strict=True):
            shares.setdefault(partition, []).append(file)
        for partition in sorted(shares):
            yield Batch(shares[partition], partition)
