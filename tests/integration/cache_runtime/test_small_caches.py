"""A data set that is larger than the caches: nothing is claimed that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, RunState, WarmupOperation
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

MIB = 1 << 20
SIZE = MIB
FILES = 48
CACHE_MIB = 8


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    return {"CACHE_SIZE_MIB": str(CACHE_MIB), "CHUNK_MIB": "4"}


def claimed_bytes(state: RunState) -> int:
    return round(state.cached_percent * FILES * SIZE / 100)


async def really_cached(harness: CacheHarness) -> int:
    """Bytes of files that a partition holds completely; a file is a block."""
    cold = [await harness.cold(partition, Path()) for partition in (0, 1)]
    return sum(SIZE * (FILES - len(files)) for files in cold)


async def test_a_warmup_claims_only_what_the_caches_hold_at_its_end(harness: CacheHarness) -> None:
    fill(harness.runtimes.mount_path(0), FILES, SIZE)
    await harness.run("forget", ClearOperation())

    ended = await harness.run("warm", WarmupOperation())

    assert (ended.phase, ended.reason) == (RunPhase.SUCCEEDED, "PartlyCached"), ended
    assert ended.files_done == FILES
    assert 0 < claimed_bytes(ended) <= await really_cached(harness) <= 2 * CACHE_MIB * MIB
    assert "of 48 MiB" in ended.message

    async def reported() -> bool:
        nodes = [await harness.node_status(partition) for partition in (0, 1)]
        return all(
            (n.cache_capacity, n.staged_bytes) == (CACHE_MIB * MIB, 0)
            and 0 < n.cached_bytes <= CACHE_MIB * MIB
            for n in nodes
        )

    await eventually(reported, what="reports with the caches' own sizes")


async def test_nodes_count_what_is_read_from_their_caches(harness: CacheHarness) -> None:
    top = harness.runtimes.mount_path(0)
    fill(top, 4, SIZE)
    for path in sorted(top.glob("d*/*.bin")):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        assert len(os.read(descriptor, SIZE)) > 0
        os.close(descriptor)

    async def counted() -> bool:
        return (await harness.node_status(0)).hit_bytes > 0

    await eventually(counted, what="a report of bytes read from the cache")


async def test_an_agent_that_was_killed_midway_claims_no_more_than_its_cache_holds(
    harness: CacheHarness,
) -> None:
    fill(harness.runtimes.mount_path(0), FILES, SIZE)
    await harness.run("forget", ClearOperation())
    await harness.request("warm", WarmupOperation())

    harness.runtimes.kill(1)
    await harness.start(1)
    ended = await harness.ended("warm")

    assert (ended.phase, ended.reason) == (RunPhase.SUCCEEDED, "PartlyCached"), ended
    assert claimed_bytes(ended) <= 2 * CACHE_MIB * MIB
