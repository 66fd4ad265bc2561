"""Which node has which files after a warmup, and what a second one reads from the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from cache_runtime.domain.model import File
from cache_runtime.domain.sampler import SamplerOrder, batches, in_folder_order
from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, WarmupOperation
from paddlewheel.contracts.generated.cache_v1 import SamplerOrder as AskedOrder

pytestmark = pytest.mark.long

SIZE = 20_000


def read_from_store(harness: CacheHarness, partition: int) -> int:
    """Bytes that the mounted client has read from the object store since it was started."""
    lines = (harness.runtimes.mount_path(partition) / ".stats").read_text().splitlines()
    counters = dict(line.split(None, 1) for line in lines)
    return int(float(counters.get("juicefs_object_request_data_bytes_GET", 0)))


async def warm(
    harness: CacheHarness, run_id: str, operation: WarmupOperation, partitions: int = 2
) -> list[int]:
    """Returns the bytes that each node has read for it."""
    before = [read_from_store(harness, partition) for partition in (0, 1)]
    await harness.request(run_id, operation, partitions)
    ended = await harness.ended(run_id)
    assert (ended.phase, ended.message) == (RunPhase.SUCCEEDED, "")
    return [read_from_store(harness, partition) - before[partition] for partition in (0, 1)]


async def cleared(harness: CacheHarness) -> None:
    """What was written through a mount may be in the cache of that node already."""
    assert (await harness.run("clear", ClearOperation())).phase is RunPhase.SUCCEEDED


async def test_a_second_warmup_reads_only_what_is_new(harness: CacheHarness) -> None:
    top = harness.runtimes.mount_path(0)
    fill(top, 200, SIZE)
    await cleared(harness)
    first = await warm(harness, "first", WarmupOperation())
    assert sum(first) == 200 * SIZE

    fill(top / "more", 6, SIZE)
    second = await warm(harness, "second", WarmupOperation(strategy="random"))
    # Each new file may move one other to make room for it.
    assert sum(second) <= 2 * 6 * SIZE
    assert not await harness.uncached(Path())


async def test_another_partition_takes_its_share_only(harness: CacheHarness) -> None:
    fill(harness.runtimes.mount_path(0), 200, SIZE)
    await cleared(harness)
    assert await warm(harness, "alone", WarmupOperation(), partitions=1) == [200 * SIZE, 0]
    of_old, of_new = await warm(harness, "both", WarmupOperation(), partitions=2)
    assert of_old == 0
    assert 0.4 * 200 * SIZE < of_new < 0.6 * 200 * SIZE


async def test_a_node_has_what_its_rank_reads(harness: CacheHarness) -> None:
    top = harness.runtimes.mount_path(0)
    fill(top, 41, SIZE)
    await cleared(harness)
    asked = AskedOrder(batch_size=4, shuffle=True, epoch=3)
    await warm(harness, "ranks", WarmupOperation(strategy="sampler", sampler=asked))

    listed = [File(str(path.relative_to(top)), SIZE) for path in top.rglob("*.bin")]
    shares = list(batches(in_folder_order(listed), 2, SamplerOrder(4, shuffle=True, epoch=3)))
    for partition in (0, 1):
        mine = {file.path for batch in shares if batch.partition == partition for file in batch.files}
        cold = {str(path) for path in await harness.cold(partition, Path())}
        assert cold == {file.path for file in listed} - mine
