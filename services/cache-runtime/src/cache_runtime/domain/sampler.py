"""Which files `paddle.io.DistributedBatchSampler` gives each rank in one epoch, and in which order.

Rank i reads on the node of partition i. Samples are numbered as Paddle's DatasetFolder numbers files, or by a
ready list. The shuffle is that of `numpy.random.RandomState`, whose stream NumPy keeps stable (NEP 19).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.packed import NUMBERS, PackedFiles

Indices = TypeVar("Indices", bound=MutableSequence[int])

BATCH = 1_000
"""Files of one rank before those of the next: all ranks' first samples are warmed first."""
_STATE_WORDS = 624
_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class SamplerOrder:
    """The arguments of the sampler. `epoch` is the seed of the shuffle, as in `set_epoch`."""

    batch_size: int = 1
    shuffle: bool = False
    epoch: int = 0


def batches(files: PackedFiles, ranks: int, order: SamplerOrder) -> Iterator[Batch]:
    """The files of each rank in the order of its reads. Some are at two ranks, to fill up the last round."""
    shares = split_by_rank(shuffled(padded(len(files), ranks), order), ranks, order.batch_size)
    for start in range(0, len(shares[0]), BATCH):
        for rank, share in enumerate(shares):
            yield Batch([files[index] for index in share[start : start + BATCH]], rank)


def in_folder_order(files: Iterable[File], folder: str = "") -> PackedFiles:
    """As DatasetFolder(folder) finds them: by class, which is the first directory, by directory, by name."""
    start = len(folder) + 1 if folder else 0
    packed = PackedFiles()
    found: defaultdict[str, array[int]] = defaultdict(partial(array, NUMBERS))
    for number, file in enumerate(files):
        packed.append(file)
        found[file.path[start:].rpartition("/")[0]].append(number)
    order = array(NUMBERS)
    for directory in sorted(found, key=lambda path: (path.partition("/")[0], path)):
        order.extend(_by_name(packed, found.pop(directory)))
    packed.reorder(order)
    return packed


def _by_name(files: PackedFiles, numbers: array[int]) -> Iterable[int]:
    """Files of one directory. Most are listed in this order, and to sort a million takes 100 MB."""
    in_order = pairwise(files[number].path for number in numbers)
    if all(before <= after for before, after in in_order):
        return numbers
    return sorted(numbers, key=lambda number: files[number].path)


def padded(samples: int, ranks: int) -> array[int]:
    """0 to samples - 1, and again from 0 until the ranks share them evenly; empty without samples."""
    total = -(-samples // ranks) * ranks
    return array(NUMBERS, (index % samples for index in range(total)))


def shuffled(indices: Indices, order: SamplerOrder) -> Indices:
    """As `numpy.random.RandomState(epoch).shuffle(indices)`, if the sampler shuffles."""
    if not order.shuffle:
        return indices
    words = _mersenne_twister(order.epoch)
    for last in range(len(indices) - 1, 0, -1):
        other = _at_most(words, last)
        indices[last], indices[other] = indices[other], indices[last]
    return indices


def split_by_rank(indices: array[int], ranks: int, batch_size: int) -> list[array[int]]:
    """Batches go to the ranks in turn; what is left after whole rounds is split evenly."""
    left = len(indices) % (batch_size * ranks)
    whole, share = len(indices) - left, left // ranks
    found = []
    for rank in range(ranks):
        own = array(NUMBERS)
        for start in range(rank * batch_size, whole, batch_size * ranks):
            own += indices[start : start + batch_size]
        found.append(own + indices[whole + rank * share : whole + (rank + 1) * share])
    return found


def _mersenne_twister(seed: int) -> Iterator[int]:
    """Words of 32 bits: MT19937 of Matsumoto and Nishimura, initialized from one word as in 2002."""
    state = [seed & _WORD]
    for index in range(1, _STATE_WORDS):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & _WORD)
    while True:
        for index in range(_STATE_WORDS):
            joined = (state[index] & 0x80000000) | (state[(index + 1) % _STATE_WORDS] & 0x7FFFFFFF)
            twisted = (joined >> 1) ^ (0x9908B0DF if joined & 1 else 0)
            state[index] = state[(index + 397) % _STATE_WORDS] ^ twisted
        yield from map(_tempered, state)


def _tempered(word: int) -> int:
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def _at_most(words: Iterator[int], largest: int) -> int:
    """Uniform in 0 to `largest`: as many bits as it has, drawn again while they exceed it."""
    mask = (1 << largest.bit_length()) - 1
    while (found := next(words) & mask) > largest:
        pass
    return found
