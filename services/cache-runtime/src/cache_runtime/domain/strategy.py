"""The order in which files are assigned to partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from cache_runtime.domain.model import File
from paddlewheel.core.errors import Permanent

WINDOW = 65_536
"""Files that `random` holds in memory to shuffle."""


def sequence(files: Iterable[File], _: str) -> Iterable[File]:
    """As listed."""
    return files


def random(files: Iterable[File], seed: str, window: int = WINDOW) -> Iterator[File]:
    """Shuffled in windows, the same way for the same seed, so that a new master repeats the order."""
    stream = iter(files)
    while part := list(islice(stream, window)):
        yield from sorted(part, key=lambda file: _rank(seed, file.path))


def _rank(seed: str, path: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{path}".encode(), digest_size=16).digest()


STRATEGIES: dict[str, Callable[[Iterable[File], str], Iterable[File]]] = {
    "": sequence,
    "sequence": sequence,
    "random": random,
}


def order(name: str, files: Iterable[File], seed: str) -> Iterable[File]:
    """Order files by a strategy. Raises Permanent for an unknown one."""
    if name not in STRATEGIES:
        known = ", ".join(filter(None, STRATEGIES))
        raise Permanent("UnknownStrategy", f"warmupOptions.strategyName: {name!r} is not one of {known}")
    return STRATEGIES[name](files, seed)
