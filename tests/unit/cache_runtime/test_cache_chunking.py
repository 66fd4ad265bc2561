"""Chunks are complete, bounded, balanced and reproducible."""

from __future__ import annotations

from collections import Counter

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cache_runtime.domain.chunking import Limits, Splitter, encoded_size, split
from cache_runtime.domain.model import File, ListedChunk
from cache_runtime.domain.strategy import random, shares
from cache_runtime.publication import MAX_CHUNK, pack, unpack
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, WarmupOperation
from paddlewheel.core.errors import Permanent

FILES = st.lists(st.builds(File, st.text(min_size=1, max_size=20), st.integers(0, 1000)), max_size=80)
LIMITS = st.builds(Limits, st.integers(1, 2000), st.integers(1, 20), st.integers(100, 2000))


def make_splitter(partitions: int, limits: Limits | None = None) -> Splitter:
    return Splitter("run-1", partitions, limits or Limits())


@given(FILES, st.integers(1, 5), LIMITS)
def test_every_file_is_in_exactly_one_chunk(files: list[File], partitions: int, limits: Limits) -> None:
    splitter = make_splitter(partitions, limits)
    chunks = list(split(files, splitter))

    assert sorted(f for chunk in chunks for f in chunk.files) == sorted(files)
    for index, total in enumerate(splitter.totals):
        own = [chunk for chunk in chunks if chunk.partition == index]
        assert [chunk.id for chunk in own] == list(range(total.chunks))
        assert sum(len(chunk.files) for chunk in own) == total.files
        assert sum(f.size for chunk in own for f in chunk.files) == total.bytes


@given(FILES, st.integers(1, 5), LIMITS)
def test_chunks_stay_within_their_limits(files: list[File], partitions: int, limits: Limits) -> None:
    held = Counter[int]()
    for chunk in split(files, make_splitter(partitions, limits)):
        size = sum(f.size for f in chunk.files)
        if len(chunk.files) > 1:
            assert len(chunk.files) <= limits.files
            assert size <= limits.bytes_after(held[chunk.partition])
            assert sum(encoded_size(f.path) for f in chunk.files) <= limits.encoded
        held[chunk.partition] += size


def test_chunks_of_a_large_partition_are_larger_but_small_beside_the_whole() -> None:
    held, sizes = 0, []
    for chunk in split((File(str(n), 1 << 20) for n in range(100_000)), make_splitter(1)):
        sizes.append(sum(f.size for f in chunk.files))
        assert sizes[-1] <= max(Limits().bytes, held // Limits().share)
        held += sizes[-1]
    assert max(sizes) <= Limits().growth * Limits().bytes
    assert len(sizes) < 300


@given(FILES, st.integers(1, 5))
def test_partitions_differ_by_at_most_the_largest_file(files: list[File], partitions: int) -> None:
    splitter = make_splitter(partitions)
    list(split(files, splitter))
    loads = [total.bytes for total in splitter.totals]
    assert max(loads) - min(loads) <= max((f.size for f in files), default=0)


def test_empty_files_are_spread_too() -> None:
    splitter = make_splitter(2)
    list(split([File(str(n), 0) for n in range(10)], splitter))
    assert [total.files for total in splitter.totals] == [5, 5]


@given(FILES, st.integers(1, 4), LIMITS)
def test_the_same_files_give_the_same_chunks(files: list[File], partitions: int, limits: Limits) -> None:
    first = list(split(files, make_splitter(partitions, limits)))
    assert first == list(split(files, make_splitter(partitions, limits)))


def test_a_file_larger_than_a_chunk_is_a_chunk_alone() -> None:
    files = [File("a", 1), File("big", 100), File("b", 1)]
    chunks = list(split(files, make_splitter(1, Limits(bytes=10))))
    assert [[f.path for f in chunk.files] for chunk in chunks] == [["a"], ["big"], ["b"]]


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=60), st.integers(1, 70))
def test_random_gives_every_file_once_in_an_order_of_the_seed(paths: list[str], window: int) -> None:
    files = [File(path, 1) for path in paths]
    once = list(random(files, "run-1", window))
    assert sorted(once) == sorted(files)
    assert once == list(random(files, "run-1", window))


def test_random_differs_by_run_and_sequence_does_not() -> None:
    files = [File(str(n), 1) for n in range(50)]

    def order(strategy: str, seed: str) -> list[File]:
        warmup = WarmupOperation(strategy=strategy)
        return [file for batch in shares(warmup, files, 1, seed) for file in batch.files]

    assert order("random", "a") != order("random", "b")
    assert order("sequence", "a") == order("", "b") == files


def test_the_worst_chunk_fits_the_bus_and_comes_back() -> None:
    """Control characters take six bytes each in JSON, and random ones do not compress."""
    files = [File("".join(chr(n * k % 31 + 1) for k in range(200)) + str(n), n) for n in range(5000)]
    for chunk in split(files, make_splitter(1)):
        data = pack(chunk)
        assert len(data) < 960 * 1024
        assert [(e.path, e.size) for e in unpack(data).files] == [tuple(f) for f in chunk.files]


def test_a_chunk_keeps_its_place() -> None:
    files = [FileEntry(path="a%FF", size=1 << 40), FileEntry(path='"\\\n \u3000é', size=0)]
    listed = [File(file.path, file.size) for file in files]
    assert unpack(pack(ListedChunk("run-7", 3, 12, listed))) == Chunk(
        run_id="run-7", partition=3, id=12, files=files
    )


def test_a_file_for_one_partition_goes_there_and_nowhere_else() -> None:
    splitter = make_splitter(3)
    chunks = [*splitter.add([File("b", 0)], 2), *splitter.add([File("a", 0)], 0), *splitter.flush()]
    assert [(chunk.partition, chunk.id, chunk.files) for chunk in chunks] == [
        (0, 0, [File("a", 0)]),
        (2, 0, [File("b", 0)]),
    ]
    assert [(t.files, t.chunks) for t in splitter.totals] == [(1, 1), (0, 0), (1, 1)]


def test_a_chunk_that_unpacks_to_more_than_any_is_refused_before_it_takes_the_memory() -> None:
    bomb = zstandard.ZstdCompressor(level=3).compress(b" " * (MAX_CHUNK + 1))
    with pytest.raises(Permanent, match="more than"):
        unpack(bomb)
