"""Files of 20 GB without content: more than a node has memory, cache or room for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill
from tests.integration.cache_runtime.conftest import lent_in

from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation, WarmupOperation
from paddlewheel.testkit.storage import run_juicefs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SIZE = 20_000_000_000
ROOM_GIB = 1


@pytest.fixture
def chunk_settings(tmp_path: Path) -> dict[str, str]:
    return {"LOCAL_SOURCES": json.dumps([str(lent_in(tmp_path))])}


def make_sparse(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(SIZE)


async def test_a_sparse_file_of_a_set_is_warmed_with_the_others(harness: CacheHarness) -> None:
    """Nothing of it is in the store, so nothing of it can be missing in a cache."""
    top = harness.runtimes.mount_path(0)
    make_sparse(top / "in" / "sparse")
    fill(top / "in", 6)
    state = await harness.run("warm", WarmupOperation())
    assert (state.phase, state.message, state.files_done) == (RunPhase.SUCCEEDED, "", 7)
    assert await harness.uncached(Path("in")) == []


@pytest.mark.long
async def test_a_sparse_file_that_the_volume_has_no_room_for_is_named_and_the_others_arrive(
    harness: CacheHarness,
) -> None:
    """A copy has all the zeros."""
    metaurl = harness.runtimes.volume.metaurl
    await asyncio.to_thread(run_juicefs, "config", metaurl, "--capacity", str(ROOM_GIB), "--yes")
    lent = lent_in(harness.runtimes.directory)
    fill(lent, 6)
    make_sparse(lent / "sparse")
    sync = SyncOperation(source=f"file://{lent}", destination="in")
    state = await harness.run("sync", sync, within=800)
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 6)
    assert "sparse: " in state.message
    assert "no space left" in state.message.lower()
    assert not (harness.runtimes.mount_path(0) / "in" / "sparse").exists()
