"""Levels of a cache with sizes of their own, although the client divides one size evenly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from dataset_controller.domain.paths import Places
from dataset_controller.domain.sampleset.model import CacheSpec
from dataset_controller.domain.sampleset.parse import resolve_spec
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.testkit.samplesets import make_sample_set
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

MIB = 1 << 20
MEMORY, DISK = 4, 12


def cache_of(directory: Path) -> CacheSpec:
    """As dataset-controller reads it from a manifest."""
    levels = [
        {"mediumType": "MEM", "path": f"{directory}/memory", "cacheSize": MEMORY},
        {"mediumType": "SSD", "path": f"{directory}/disk", "cacheSize": DISK},
    ]
    obj = make_sample_set(cache={"levels": levels})
    obj["metadata"]["uid"] = "uid-1"
    return resolve_spec(obj, Places(cache_roots=(str(directory),))).cache


@pytest.fixture
def chunk_settings(tmp_path: Path) -> dict[str, str]:
    cache = cache_of(tmp_path)
    return {"CACHE_DIRS": ":".join(cache.paths), "CACHE_SIZE_MIB": str(cache.size_mib)}


def mebibytes_in(directory: Path) -> float:
    blocks = directory.rglob("raw/**/*")
    return sum(path.stat().st_size for path in blocks if path.is_file()) / MIB


async def test_a_small_level_stays_small_beside_a_large_one(harness: CacheHarness, tmp_path: Path) -> None:
    # Partition 1 has the same directories here, so it ends before the caches are filled.
    await asyncio.to_thread(harness.runtimes.stop, 1)
    fill(harness.runtimes.mount_path(0), 48, MIB)
    await harness.request("warm", WarmupOperation(), partitions=1)
    await harness.ended("warm")

    async def filled() -> bool:
        memory, disk = mebibytes_in(tmp_path / "memory"), mebibytes_in(tmp_path / "disk")
        # Evicted blocks are removed a moment later.
        return 0 < memory <= MEMORY and MEMORY < disk <= DISK

    await eventually(filled, what="caches within their sizes")
