"""One number for a set of files, whatever their order: it tells what was listed from what was done."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol

_MASK = (1 << 63) - 1


class _Named(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


def digest_of(files: Iterable[_Named]) -> int:
    """The sum of the hashes of path and size, modulo 2^63. About 1 µs for each file."""
    hashes = (blake2b(f"{file.size} {file.path}".encode(), digest_size=8).digest() for file in files)
    return sum_of(map(int.from_bytes, hashes))


def sum_of(digests: Iterable[int]) -> int:
    """The digest of all files together."""
    return sum(digests) & _MASK
