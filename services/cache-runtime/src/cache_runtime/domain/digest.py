"""One number for the files of some chunks: it tells what was listed from what was done."""

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
    """A hash of the paths and sizes of a chunk, in its order, below 2^63; 0 for none."""
    text = "\0".join([f"{file.size} {file.path}" for file in files])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) & _MASK if text else 0


def sum_of(digests: Iterable[int]) -> int:
    """The digest of several chunks, whatever their order."""
    return sum(digests) & _MASK
