"""Sizes of the levels of a cache. JuiceFS takes one size and divides it evenly over all directories: 4 GiB in
memory and 100 GiB on a disk would become 52 GiB in each. So a larger directory is given as several of one
size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARTS_MAX = 128
"""Directories that the client is given at most; each is scanned and watched by itself."""


@dataclass(frozen=True)
class Division:
    """Parts of each directory, 0 for one that is too small to be used, and the size of all parts in MiB."""

    parts: Mapping[str, int]
    size_mib: int


def divide(sizes: Mapping[str, int]) -> Division:
    """Parts of equal size, none of which makes its directory larger than it may be.

    Args:
        sizes: MiB by directory. One below 1/128 of all is left out, since it would make all parts that small.
    """
    total = sum(sizes.values())
    used = {path: size for path, size in sizes.items() if size * PARTS_MAX >= total}
    divisions = (_divided(used, max(1, min(used.values()) // n)) for n in range(1, PARTS_MAX + 1))
    best = max((d for d in divisions if _count(d) <= PARTS_MAX), key=lambda d: (d.size_mib, -_count(d)))
    return Division({path: best.parts.get(path, 0) for path in sizes}, best.size_mib)


def _divided(sizes: Mapping[str, int], unit: int) -> Division:
    parts = {path: size // unit for path, size in sizes.items()}
    return Division(parts, unit * sum(parts.values()))


def _count(division: Division) -> int:
    return sum(division.parts.values())
