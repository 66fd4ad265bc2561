"""The files that `paddle.io.DistributedBatchSampler` gives each rank in one epoch, in the order of its reads.

Rank i reads on the node of partition i. Samples are numbered as Paddle's DatasetFolder numbers files, or by a
ready list. The shuffle is that of `numpy.random.RandomState`, whose stream NumPy keeps stable (NEP 19).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import TypeVar

from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.packed import NUMBERS, PackedFiles

Indices = TypeVar("Indices", bound=MutableSequence[int])

BATCH = 1_000
"""Files of one rank before those of the next: all ranks' first samples are warmed first."""
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The extensions that DatasetFolder accepts by default."""
_STATE_WORDS, _WORD = 624, 0xFFFFFFFF


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


@dataclass(frozen=True)
class Samples:
    """Samples in the order of their numbers, and how many of the listed files are none."""

    files: PackedFiles
    ignored: int = 0


def samples_of(files: Iterable[File], folder: str = "", extensions: Sequence[str] = ()) -> Samples:
    """The samples of DatasetFolder(folder, extensions=extensions): by class, by directory, by name.

    The class is the first directory. Files in the folder itself and files with other extensions are ignored.
    Without `extensions`, images are the samples, and all files of the classes if none is an image.
    """
    start, suffixes = len(folder) + 1 if folder else 0, tuple(map(str.lower, extensions or IMAGES))
    samples, others, ignored = _Classes(), _Classes(), 0
    for file in files:
        directory = file.path[start:].rpartition("/")[0]
        if directory and file.path.lower().endswith(suffixes):
            samples.add(file, directory)
            continue
        ignored += 1
        if directory and not (extensions or samples.files):
            others.add(file, directory)
    if extensions or samples.files:
        return Samples(samples.in_order(), ignored)
    return Samples(others.in_order(), ignored - len(others.files))


class _Classes:
    """Files by the directories in which they are."""

    def __init__(self) -> None:
        self.files = PackedFiles()
        self._found: defaultdict[str, array[int]] = defaultdict(partial(array, NUMBERS))

    def add(self, file: File, directory: str) -> None:
        self._found[directory].append(len(self.files))
        self.files.append(file)

    def in_order(self) -> PackedFiles:
        """By class, by directory, by name. Called once."""
        order = array(NUMBERS)
        for directory in sorted(self._found, key=lambda path: (path.partition("/")[0], path)):
            order.extend(_by_name(self.files, self._found.pop(directory)))
        self.files.reorder(order)
        return self.files


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
    """The order of `numpy.random.RandomState(epoch).shuffle(indices)`, if the sampler shuffles."""
    if not order.shuffle:
        return indices
    random = _random_state(order.epoch)
    for last in range(len(indices) - 1, 0, -1):
        other = _at_most(random, last)
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


def _random_state(seed: int) -> Random:
    """The stream of `numpy.random.RandomState(seed)`: the same generator as Python's, with another start."""
    state = [seed & _WORD]
    for index in range(1, _STATE_WORDS):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & _WORD)
    random = Random()  # noqa: S311 - to repeat the training's order, not to keep a secret
    random.setstate((3, (*state, _STATE_WORDS), None))
    return random


def _at_most(random: Random, largest: int) -> int:
    """A number from 0 to `largest`, as NumPy draws it: the low bits of a word, or of the next that fits."""
    mask = (1 << largest.bit_length()) - 1
    while (found := random.getrandbits(32) & mask) > largest:
        pass
    return found
