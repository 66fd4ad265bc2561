"""Mount options that let the kernel remember files for long: what a run reports does not depend on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation
from paddlewheel.testkit.storage import ObjectStore

pytestmark = pytest.mark.long

CACHES = ("attr-cache", "entry-cache", "dir-entry-cache", "negative-entry-cache")
SECONDS = "3600"


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    options = {"free-space-ratio": "0.01", "backup-meta": "0", **dict.fromkeys(CACHES, SECONDS)}
    return {"MOUNT_OPTIONS": json.dumps(options)}


def remember(top: Path, names: list[str]) -> list[int]:
    """Have the kernel remember the sizes of these files, and that some do not exist."""
    return [path.stat().st_size if (path := top / name).exists() else -1 for name in names]


async def test_a_sync_does_not_verify_what_the_kernel_remembers(
    harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    fill(tmp_path / "source", 12)
    object_store.put_tree(tmp_path / "source", "remembered")
    sync = SyncOperation(source=object_store.uri("remembered"), secret="source")
    assert (await harness.run("first", sync)).phase is RunPhase.SUCCEEDED
    names = [f"d{number % 3}/{number}.bin" for number in range(15)]
    for partition in (0, 1):
        sizes = remember(harness.runtimes.mount_path(partition), names)
        assert sizes == [10_000] * 12 + [-1] * 3

    fill(tmp_path / "source", 15, 20_000)
    object_store.put_tree(tmp_path / "source", "remembered")
    second = await harness.run("second", sync)
    assert (second.phase, second.files_done, second.message) == (RunPhase.SUCCEEDED, 15, "")
