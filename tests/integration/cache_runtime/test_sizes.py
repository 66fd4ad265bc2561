"""The sizes that nodes report follow rmr and clear, at the shipped interval."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    NodeStatus,
    RemoveOperation,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

WITHIN = 90.0


@pytest.fixture
def chunk_settings(tmp_path: Path) -> dict[str, str]:
    return {"STATUS_INTERVAL": "10", "CACHE_DIRS": f"{tmp_path}/fast:{tmp_path}/slow"}


async def nodes(harness: CacheHarness) -> list[NodeStatus]:
    return [await harness.node_status(partition) for partition in (0, 1)]


def size_measured_at(report: NodeStatus) -> datetime | None:
    """The time at which the size was current, by the same rule as in dataset-controller."""
    return report.updated_at and report.updated_at - timedelta(seconds=report.size_age)


def bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("raw/**/*") if path.is_file())


async def test_the_first_size_after_a_sync_is_that_of_all_its_files(
    harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    """A set is Ready with this size."""
    top, source = harness.runtimes.mount_path(0), tmp_path / "source"
    for number in range(4):
        fill(source, 100 * (number + 1), 1_000 * (number + 1))
        object_store.put_tree(source, "measured")
        sync = SyncOperation(source=object_store.uri("measured"), secret="source", destination=f"to-{number}")
        ended_at = (await harness.run(f"sync-{number}", sync)).ended_at
        assert ended_at is not None

        async def measured(since: datetime = ended_at) -> NodeStatus | None:
            current = [n for n in await nodes(harness) if (size_measured_at(n) or since) > since]
            return current[0] if current else None

        report = await eventually(measured, within=WITHIN, what="a size of after the sync")
        sizes = [path.stat().st_size for path in top.glob("to-*/**/*") if path.is_file()]
        assert (report.total_files, report.total_bytes) == (len(sizes), sum(sizes))


async def test_sizes_follow_removed_files_and_cleared_caches(harness: CacheHarness, tmp_path: Path) -> None:
    fill(harness.runtimes.mount_path(0), 40)
    await harness.run("warm", WarmupOperation())

    async def warmed() -> bool:
        return all(n.cached_bytes >= 200_000 and n.total_bytes == 400_000 for n in await nodes(harness))

    await eventually(warmed, within=WITHIN, what="reports of warm caches")

    await harness.run("clear-fast", ClearOperation(paths=[str(tmp_path / "fast")]))
    left = bytes_in(tmp_path / "slow")
    assert (left > 0, bytes_in(tmp_path / "fast")) == (True, 0)

    async def half_cleared() -> bool:
        return all(0 < n.cached_bytes <= left for n in await nodes(harness))

    await eventually(half_cleared, within=WITHIN, what="reports without the cleared directory")

    await harness.run("remove", RemoveOperation(paths=["d0"]))

    async def removed() -> bool:
        return all((n.total_files, n.total_bytes) == (26, 260_000) for n in await nodes(harness))

    await eventually(removed, within=WITHIN, what="reports without the removed files")

    await harness.run("clear", ClearOperation())

    async def cleared() -> bool:
        return all(n.cached_bytes == 0 for n in await nodes(harness))

    await eventually(cleared, within=WITHIN, what="reports of empty caches")
