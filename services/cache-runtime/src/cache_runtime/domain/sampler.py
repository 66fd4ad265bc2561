"""Which files `paddle.io.DistributedBatchSampler` gives each rank in one epoch, and in which order.

Rank i reads on the node of partition i. Samples are numbered as Paddle's DatasetFolder numbers files, or by a
ready list. The shuffle is that of `numpy.random.RandomState`, whose stream NumPy keeps stable (NEP 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from posixpath import split

from cache_runtime.domain.model import Batch, File

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


def batches(files: Iterable[File], ranks: int, order: SamplerOrder) -> Iterator[Batch]:
    """The files of each rank in the order of its reads. Some are at two ranks, to fill up the last round."""
    numbered = list(files)
    shares = split_by_rank(shuffled(padded(len(numbered), ranks), order), ranks, order.batch_size)
    for start in range(0, len(shares[0]), BATCH):
        for rank, share in enumerate(shares):
            yield Batch([numbered[index] for index in share[start : start + BATCH]], rank)


def in_folder_order(files: Iterable[File], folder: str = "") -> list[File]:
    """As DatasetFolder(folder) finds them: by class, which is the first directory, by directory, by name."""
    start = len(folder) + 1 if folder else 0
    return sorted(files, key=lambda file: _place(file.path[start:]))


def _place(path: str) -> tuple[str, str, str]:
    directory, name = split(path)
    return directory.partition("/")[0], directory, name


def padded(samples: int, ranks: int) -> list[int]:
    """0 to samples - 1, and again from 0 until the ranks share them evenly; empty without samples."""
    total = -(-samples // ranks) * ranks
    return [index % samples for index in range(total)]


def shuffled(indices: list[int], order: SamplerOrder) -> list[int]:
    """As `numpy.random.RandomState(epoch).shuffle(indices)`, if the sampler shuffles."""
    if not order.shuffle:
        return indices
    words = _mersenne_twister(order.epoch)
    for last in range(len(indices) - 1, 0, -1):
        other = _at_most(words, last)
        indices[last], indices[other] = indices[other], indices[last]
    return indices


def split_by_rank(indices: Sequence[int], ranks: int, batch_size: int) -> list[list[int]]:
    """Batches go to the ranks in turn; what is left after whole rounds is split evenly."""
    left = len(indices) % (batch_size * ranks)
    whole, share = len(indices) - left, left // ranks
    found = []
    for rank in range(ranks):
        starts = range(rank * batch_size, whole, batch_size * ranks)
        own = [index for start in starts for index in indices[start : start + batch_size]]
        found.append(own + list(indices[whole + rank * share : whole + (rank + 1) * share]))
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
