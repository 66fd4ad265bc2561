"""Strategies of a warmup: which partition takes which files, and in which order they are warmed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from cache_runtime.domain import placement, sampler
from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.packed import PackedFiles
from paddlewheel.contracts.generated.cache_v1 import SamplerOrder as AskedOrder
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent

WINDOW = 65_536
"""Files that `random` holds in memory to shuffle."""


def shares(warmup: WarmupOperation, files: Iterable[File], partitions: int, seed: str) -> Iterator[Batch]:
    """The files of each partition, so that a new master repeats them.

    Args:
        seed: the seed of the strategy `random`.

    Raises:
        Permanent: the strategy is unknown.
    """
    match warmup.strategy:
        case "" | "sequence":
            return placement.batches(files, range(partitions))
        case "random":
            return placement.batches(random(files, seed), range(partitions))
        case "sampler":
            return _by_rank(warmup, files, partitions)
        case unknown:
            text = f"warmupOptions.strategyName: {unknown!r} is not one of sequence, random, sampler"
            raise Permanent("UnknownStrategy", text)


def random(files: Iterable[File], seed: str, window: int = WINDOW) -> Iterator[File]:
    """Shuffled in windows, the same way for the same seed."""
    stream = iter(files)
    while part := list(islice(stream, window)):
        yield from sorted(part, key=lambda file: _rank(seed, file.path))


def _rank(seed: str, path: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{path}".encode(), digest_size=16).digest()


def _by_rank(warmup: WarmupOperation, files: Iterable[File], ranks: int) -> Iterator[Batch]:
    """Raises Permanent when there are files, and none is a sample."""
    asked = warmup.sampler or AskedOrder()
    samples = _samples(warmup, files, asked.extensions)
    if samples.ignored:
        yield Batch((), remark=_ignored(samples, asked.extensions or sampler.IMAGES))
    order = sampler.SamplerOrder(max(1, asked.batch_size), asked.shuffle, asked.epoch)
    yield from sampler.batches(samples.files, ranks, order)


def _samples(warmup: WarmupOperation, files: Iterable[File], extensions: Sequence[str]) -> sampler.Samples:
    """Samples are numbered by the list, where there is one."""
    if warmup.file:
        return sampler.Samples(PackedFiles(files))
    return sampler.samples_of(files, warmup.paths[0] if len(warmup.paths) == 1 else "", extensions)


def _ignored(samples: sampler.Samples, extensions: Sequence[str]) -> str:
    """The remark on files that are no samples. Raises Permanent when all are such."""
    why = f"they are not below a class directory, or their names do not end with {', '.join(extensions)}"
    if not samples.files:
        text = f"none of {samples.ignored} files is a sample of DatasetFolder: {why}"
        raise Permanent(Reason.NO_SAMPLES, f"warmupOptions.sampler.extensions: {text}")
    count = "1 file was" if samples.ignored == 1 else f"{samples.ignored} files were"
    return f"{count} ignored, as DatasetFolder does: {why}"
