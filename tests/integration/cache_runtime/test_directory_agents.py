"""Runs of real agents on the engine `directory`, from source to copies, over a real bus."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill, running
from tests.integration.cache_runtime.directory_nodes import DirectoryRuntimes, SharedVolume

from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.testkit.storage import JuiceFsVolume
from paddlewheel.testkit.wait import eventually

FILES, SIZE = 30, 10_000


@pytest.fixture
async def harness(tmp_path: Path, nats_url: str) -> AsyncIterator[CacheHarness]:
    volume = SharedVolume(tmp_path / "shared" / "set")
    settings = {
        "ENGINE": "directory",
        "SHARED_VOLUMES": json.dumps([str(tmp_path / "shared")]),
        "LOCAL_SOURCES": json.dumps([str(tmp_path / "lent")]),
        "MOUNT_OPTIONS": json.dumps({"free-space-ratio": "0.01"}),
        "CHUNK_FILES": "7",
    }
    runtimes = DirectoryRuntimes(tmp_path / "nodes", nats_url, cast(JuiceFsVolume, volume), settings)
    runtimes.directory.mkdir()
    async with running(runtimes, 0, 1) as harness:
        yield harness


def copies(harness: CacheHarness) -> dict[str, bytes]:
    """Of both nodes."""
    tops = [top for p in (0, 1) for top in harness.runtimes.cache_dir(p).glob("*/raw")]
    files = [(top, path) for top in tops for path in top.rglob("*") if path.is_file()]
    return {str(path.relative_to(top)): path.read_bytes() for top, path in files}


async def test_sync_warmup_remove_and_clear(harness: CacheHarness, tmp_path: Path) -> None:
    fill(tmp_path / "lent", FILES, SIZE)
    source = {
        str(p.relative_to(tmp_path / "lent")): p.read_bytes() for p in (tmp_path / "lent").rglob("*.bin")
    }
    synced = await harness.run("sync", SyncOperation(source=f"file://{tmp_path / 'lent'}"))
    assert (synced.phase, synced.message) == (RunPhase.SUCCEEDED, "")
    shared = tmp_path / "shared" / "set"
    assert {str(p.relative_to(shared)): p.read_bytes() for p in shared.rglob("*.bin")} == source
    assert copies(harness) == {}

    warmed = await harness.run("warm", WarmupOperation())
    assert (warmed.phase, warmed.message) == (RunPhase.SUCCEEDED, "")
    assert copies(harness) == source
    parts = [await harness.part("warm", partition) for partition in (0, 1)]
    assert sum(part.files for part in parts) == FILES
    assert sum(part.cached_bytes for part in parts) == FILES * SIZE
    assert all(part.cached_bytes for part in parts)

    removed = await harness.run("remove", RemoveOperation(paths=["d0"]))
    assert removed.phase == RunPhase.SUCCEEDED
    assert not any(
        path.startswith("d0/") for path in (str(p.relative_to(shared)) for p in shared.rglob("*.bin"))
    )

    cleared = await harness.run("clear", ClearOperation())
    assert cleared.phase == RunPhase.SUCCEEDED
    assert copies(harness) == {}

    async def are_counted() -> bool:
        found = [await harness.node_status(partition) for partition in (0, 1)]
        return all((s.total_files, s.cached_bytes) == (FILES - FILES // 3, 0) for s in found)

    await eventually(are_counted, what="size and cache in the records of the nodes")
