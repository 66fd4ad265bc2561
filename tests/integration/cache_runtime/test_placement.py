"""The files that each node has after a warmup, and the bytes that a second one reads from the store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

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
    """Empty the caches: data that was written through a mount may be in the cache of that node already."""
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


async def reads_of_ranks(folder: Path, ranks: int, order: AskedOrder) -> list[set[str]]:
    """The files of each rank, by Paddle's own DatasetFolder and DistributedBatchSampler."""
    program = Path(__file__).parents[2] / "unit" / "cache_runtime" / "paddle_reads.py"

    def ask(cases: list[dict[str, object]]) -> dict[str, list[list[list[int]]]]:
        asked = json.dumps({"cases": cases, "folder": str(folder), "extensions": [None]})
        command = [sys.executable, str(program)]
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=600, check=True)
        answer: dict[str, list[list[list[int]]]] = json.loads(done.stdout.splitlines()[-1])
        return answer

    [samples] = (await asyncio.to_thread(ask, []))["files"]
    case = {**order.model_dump(exclude={"extensions"}), "samples": len(samples), "ranks": ranks}
    [reads] = (await asyncio.to_thread(ask, [case]))["reads"]
    return [{str(samples[index]) for index in read} for read in reads]


async def test_a_node_has_what_its_rank_reads_beside_files_that_are_no_samples(harness: CacheHarness) -> None:
    """DatasetFolder numbers neither what is at its root nor what is no image."""
    top = harness.runtimes.mount_path(0) / "train"
    fill(top, 41, SIZE, suffix=".png")
    for name in ("README.md", "0.png", "d0/labels.txt", "d1/.thumbs"):
        (top / name).write_bytes(bytes(SIZE))
    await cleared(harness)
    asked = AskedOrder(batch_size=4, shuffle=True, epoch=3)
    operation = WarmupOperation(paths=["train"], strategy="sampler", sampler=asked)
    ended = await harness.run("ranks", operation)

    listed = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    for partition, mine in enumerate(await reads_of_ranks(top, 2, asked)):
        cold = {str(path.relative_to("train")) for path in await harness.cold(partition, Path("train"))}
        assert cold == listed - mine
    assert (ended.phase, ended.cached_percent) == (RunPhase.SUCCEEDED, 100.0)
    assert ended.message.startswith("4 files were ignored, as DatasetFolder does")
