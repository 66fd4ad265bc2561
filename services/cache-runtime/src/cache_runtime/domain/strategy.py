"""Strategies of a warmup: which partition takes which files, and in which order they are warmed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from cache_runtime.domain import placement, sampler
from cache_runtime.domain.model import Batch, File
from cache_runtime.domain.packed import PackedFiles
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.core.errors import Permanent

WINDOW = 65_536
"""Files that `random` holds in memory to shuffle."""


def shares(warmup: WarmupOperation, files: Iterable[File], partitions: int, seed: str) -> Iterator[Batch]:
    """The files of each partition, so that a new master repeats them.

    Args:
        seed: of the order of `random`.

    Raises:
        Permanent: the strategy is unknown.
    """
    match warmup.strategy:
        case "" | "sequence":
            return placement.batches(files, range(partitions))
        case "random":
            return placement.batches(random(files, seed), range(partitions))
        case "sampler":
            return sampler.batches(_numbered(warmup, files), partitions, _sampler_order(warmup))
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


def _numbered(warmup: WarmupOperation, files: Iterable[File]) -> PackedFiles:
    """Samples are numbered by the list, where there is one."""
    if warmup.file:
        return PackedFiles(files)
    return sampler.in_folder_order(files, warmup.paths[0] if len(warmup.paths) == 1 else "")


def _sampler_order(warmup: WarmupOperation) -> sampler.SamplerOrder:
    asked = warmup.sampler
    if asked is None:
        return sampler.SamplerOrder()
    return sampler.SamplerOrder(max(1, asked.batch_size), asked.shuffle, asked.epoch)
