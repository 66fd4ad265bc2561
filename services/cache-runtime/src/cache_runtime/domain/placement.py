"""Which partition holds a file: the same one in every run, with about as many bytes in each.

Jump consistent hashing (Lamping and Veach, 2014) with bounded loads (Mirrokni, Thorup and Zadimoghaddam,
2017): adding or taking away one of n partitions moves about 1/n of the bytes, so a second warmup finds the
rest in the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from cache_runtime.domain.model import Batch, File

WINDOW = 1_024
"""Files of each partition that are placed at a time: the first chunks are out before all files are listed."""
BOUND = 1.03
"""Load of a partition over the mean, at most, unless a single file is larger than that."""
LEAST_WEIGHT = 4_096
"""Bytes that a file weighs at least: it takes a block of the cache's disk, and a request."""
_TRIES = 8
_WORD = (1 << 64) - 1


class Placement:
    """Places the files of one listing. The same listing is always placed in the same way.

    Args:
        partitions: ordinals of the partitions that take files; not empty.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._loads = dict.fromkeys(partitions, 0)
        self._buckets = max(partitions) + 1
        self._placed = 0

    def place(self, window: Sequence[File]) -> list[int]:
        """The partition of each file. The largest are placed first: small ones fill what is left evenly."""
        weights = [max(file.size, LEAST_WEIGHT) for file in window]
        self._placed += sum(weights)
        bound = self._placed * BOUND / len(self._loads)
        found = [0] * len(window)
        for index in sorted(range(len(window)), key=weights.__getitem__, reverse=True):
            found[index] = self._choose(window[index].path, weights[index], bound)
            self._loads[found[index]] += weights[index]
        return found

    def _choose(self, path: str, weight: int, bound: float) -> int:
        """The first of the file's own candidates with room; else the partition with the lowest load."""
        key = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")
        for _ in range(_TRIES):
            partition = jump(key, self._buckets)
            if self._loads.get(partition, bound) + weight <= bound:
                return partition
            key = (key * 6364136223846793005 + 1442695040888963407) & _WORD
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
