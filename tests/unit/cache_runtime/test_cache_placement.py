"""A file has the same partition in every run, and the partitions have about as many bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_runtime.domain.model import File
from cache_runtime.domain.placement import BOUND, LEAST_WEIGHT, WINDOW, Placement, batches, jump

FILES = st.lists(
    st.builds(File, st.text(min_size=1, max_size=20), st.integers(0, 1 << 20)),
    max_size=60,
    unique_by=lambda file: file.path,
)
PARTITIONS = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


def long_tailed(count: int, seed: int = 1) -> list[File]:
    """Sizes from bytes to hundreds of MB: most files are small, most bytes are in large ones."""
    random = Random(seed)
    return [File(f"{n % 97}/{n}.bin", int(math.exp(random.gauss(10, 2)))) for n in range(count)]


def owners(files: Sequence[File], partitions: Sequence[int]) -> dict[str, int]:
    return {
        file.path: batch.partition
        for batch in batches(files, partitions)
        for file in batch.files
        if batch.partition is not None
    }


def moved(files: Sequence[File], before: Sequence[int], after: Sequence[int]) -> float:
    """Share of the bytes with another partition."""
    old, new = owners(files, before), owners(files, after)
    return sum(f.size for f in files if old[f.path] != new[f.path]) / sum(f.size for f in files)


@given(FILES, PARTITIONS)
def test_every_file_is_placed_once_on_a_partition_that_takes_part(
    files: list[File], partitions: list[int]
) -> None:
    placed = [file for batch in batches(files, partitions) for file in batch.files]
    assert sorted(placed) == sorted(files)
    assert set(owners(files, partitions).values()) <= set(partitions)


@given(FILES, PARTITIONS)
def test_no_partition_has_more_than_the_bound_and_one_file(files: list[File], partitions: list[int]) -> None:
    weights = {file.path: max(file.size, LEAST_WEIGHT) for file in files}
    loads: Counter[int] = Counter()
    for path, partition in owners(files, partitions).items():
        loads[partition] += weights[path]
    mean = sum(weights.values()) / len(partitions)
    assert max(loads.values(), default=0) <= mean * BOUND + max(weights.values(), default=0)


@pytest.mark.parametrize("partitions", [2, 4, 10])
def test_a_long_tail_of_sizes_is_balanced_over_many_windows(partitions: int) -> None:
    files = long_tailed(3 * WINDOW * partitions + 7)
    loads: Counter[int] = Counter()
    found = owners(files, range(partitions))
    for file in files:
        loads[found[file.path]] += file.size
    assert max(loads.values()) * partitions / sum(loads.values()) <= 1.05


@pytest.mark.parametrize("partitions", [2, 4, 10])
def test_a_partition_more_takes_its_share_and_moves_little_else(partitions: int) -> None:
    files = long_tailed(20_000)
    share = moved(files, range(partitions), range(partitions + 1))
    assert 0.8 / (partitions + 1) < share < 1.5 / (partitions + 1)


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_a_partition_that_is_away_gives_its_share_to_the_others(gone: int) -> None:
    files = long_tailed(20_000)
    assert 0.1 < moved(files, range(5), [n for n in range(5) if n != gone]) < 0.3


def test_new_files_move_almost_none_of_the_others() -> None:
    files = long_tailed(20_000)
    before = owners(files, range(4))
    after = owners([*files, *(File(f"new/{n}", 1000) for n in range(200))], range(4))
    assert sum(before[f.path] != after[f.path] for f in files) < len(files) * 0.02


def test_empty_files_are_spread() -> None:
    counts = Counter(Placement(range(4)).place([File(str(n), 0) for n in range(400)]))
    assert max(counts.values()) <= 103


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 2000))
def test_a_key_stays_or_goes_to_the_new_bucket(key: int, buckets: int) -> None:
    before, after = jump(key, buckets), jump(key, buckets + 1)
    assert 0 <= before < buckets
    assert after in (before, buckets)
