"""A data set that is larger than the caches: nothing is claimed that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, RunState, WarmupOperation
from paddlewheel.testkit.cache_harness import CacheHarness, fill

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
