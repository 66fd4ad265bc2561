"""Data operations on real agents: over one bare client, over the number of agents, and what they read."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from random import Random

from tests.bench import data_planning, data_sets, data_traffic, data_training
from tests.bench.data_stand import DataStand, data_stand
from tests.bench.rows import Row
from tests.integration.cache_runtime.cache_harness import fill

from cache_runtime.domain.model import File
from cache_runtime.domain.placement import batches
from paddlewheel.contracts.generated.cache_v1 import SyncOperation, WarmupOperation
from paddlewheel.testkit.storage import run_juicefs

MEGABYTE = 1 << 20
LIMIT_MBPS = 40
"""What each agent may download; with four of them well below what two cores can do."""
SCALED_FILES = 80
SMALL_FILES, SMALL_SIZE = 2_000, 4_096
ROUNDS = 5
AGENTS = 3
CLUSTER_MBPS = 60
"""Of all agents together."""


async def measure() -> list[Row]:
    return [
        *_balance(),
        *await _scaling(),
        *await _reads(),
        *await _limited(),
        *await _small_files(),
        *await data_planning.measure(),
        *await data_traffic.measure(),
        *await data_training.measure(),
        *await data_sets.measure(),
    ]


def _balance() -> list[Row]:
    """Sizes of images with a few archives: lognormal, most files are small, most bytes are in large ones."""
    random = Random(1)
    files = [File(f"{n % 997}/{n}.bin", int(math.exp(random.gauss(10, 2)))) for n in range(100_000)]
    rows = []
    for partitions in (4, 16):
        loads = [0] * partitions
        for batch in batches(files, range(partitions)):
            assert batch.partition is not None
            loads[batch.partition] += sum(file.size for file in batch.files)
        share = max(loads) * partitions / sum(loads)
        rows.append(Row(f"data.largest_of_{partitions}_partitions_over_mean", share, 1.05, "x"))
    return rows


async def _scaling() -> list[Row]:
    """The same warmup on 1, 2 and 4 agents, each with a limit of its own."""
    async with data_stand(4, {"download-limit": str(LIMIT_MBPS)}) as stand:
        await asyncio.to_thread(fill, stand.mount(), SCALED_FILES, MEGABYTE)
        seconds = {}
        for agents in (1, 2, 4):
            await stand.empty_caches(4)
            seconds[agents] = await stand.seconds(WarmupOperation(), agents)
    return [
        Row("data.floor_warmup_on_1_agent", seconds[1], 60.0, "s"),
        *(
            Row(
                f"data.warmup_speedup_of_{n}_agents_over_{n}",
                seconds[1] / seconds[n] / n,
                0.85,
                "x",
                at_least=True,
            )
            for n in (2, 4)
        ),
    ]


async def _reads() -> list[Row]:
    """Bytes from the object store over those of the data set, with three agents."""
    async with data_stand(AGENTS) as stand:
        source = stand.folder / "source"
        await asyncio.to_thread(fill, source, 60, MEGABYTE)
        await asyncio.to_thread(stand.store.put_tree, source, "source")
        size = 60 * MEGABYTE
        sync = SyncOperation(source=stand.store.uri("source"), secret="source")
        synced = await _received(stand, sync)
        await stand.empty_caches(AGENTS)
        warmed = await _received(stand, WarmupOperation())
        again = await _received(stand, WarmupOperation())
    return [
        Row(f"data.read_by_a_sync_of_{AGENTS}_agents_over_size", synced / size, 1.05, "x"),
        Row(f"data.read_by_a_warmup_of_{AGENTS}_agents_over_size", warmed / size, 1.05, "x"),
        Row("data.read_by_a_second_warmup_over_size", again / size, 0.01, "x"),
    ]


async def _limited() -> list[Row]:
    """Mbit per second from the store over the whole run, over the limit of all agents together."""
    async with data_stand(AGENTS) as stand:
        source = stand.folder / "source"
        await asyncio.to_thread(fill, source, 150, MEGABYTE)
        await asyncio.to_thread(stand.store.put_tree, source, "source")
        sync = SyncOperation(source=stand.store.uri("source"), secret="source", bandwidth_limit=CLUSTER_MBPS)
        before = stand.relay.received
        seconds = await stand.seconds(sync, AGENTS)
        share = (stand.relay.received - before) * 8 / 1e6 / seconds / CLUSTER_MBPS
    return [
        Row(f"data.mbps_of_a_sync_of_{AGENTS}_agents_over_its_limit", share, 1.05, "x"),
        Row("data.mbps_of_a_limited_sync_over_its_limit_at_least", share, 0.5, "x", at_least=True),
    ]


async def _received(stand: DataStand, operation: SyncOperation | WarmupOperation) -> int:
    before = stand.relay.received
    await stand.seconds(operation, AGENTS)
    return stand.relay.received - before


async def _small_files() -> list[Row]:
    """One agent over the bus, and one bare client, in turn."""
    async with data_stand(1) as stand:
        source = stand.folder / "source"
        await asyncio.to_thread(fill, source, SMALL_FILES, SMALL_SIZE)
        await asyncio.to_thread(stand.store.put_tree, source, "source")
        syncs, bare_syncs, checked_syncs, warmups, bare_warmups = [], [], [], [], []
        for number in range(ROUNDS):
            bare_syncs.append(await asyncio.to_thread(_bare_sync, stand, f"bare-{number}"))
            checked = await asyncio.to_thread(_bare_sync, stand, f"checked-{number}", "--check-change")
            checked_syncs.append(checked)
            asked = SyncOperation(
                source=stand.store.uri("source"), secret="source", destination=f"ours-{number}"
            )
            syncs.append(await stand.seconds(asked, 1))
        for _ in range(ROUNDS):
            await stand.empty_caches(1)
            bare_warmups.append(await asyncio.to_thread(_bare_warmup, stand))
            await stand.empty_caches(1)
            warmups.append(await stand.seconds(WarmupOperation(paths=["ours-0"]), 1))
    floors = statistics.median(bare_syncs), statistics.median(bare_warmups)
    checked_floor = statistics.median(checked_syncs)
    return [
        Row(f"data.floor_juicefs_sync_of_{SMALL_FILES}", floors[0], 60.0, "s"),
        Row("data.sync_over_juicefs_sync", statistics.median(syncs) / floors[0], 1.25, "x"),
        Row("data.sync_over_juicefs_sync_check_change", statistics.median(syncs) / checked_floor, 1.25, "x"),
        Row(f"data.floor_juicefs_warmup_of_{SMALL_FILES}", floors[1], 60.0, "s"),
        Row("data.warmup_over_juicefs_warmup", statistics.median(warmups) / floors[1], 1.25, "x"),
    ]


def _bare_sync(stand: DataStand, destination: str, *flags: str) -> float:
    """With `--check-change` it asks for each object again after its copy, as every sync of ours does."""
    keys = {"MINIO_ACCESS_KEY": stand.store.access_key, "MINIO_SECRET_KEY": stand.store.secret_key}
    began = time.monotonic()
    run_juicefs(
        "sync", *flags, "--metrics", "127.0.0.1:0", stand.store.uri("source"), f"jfs://BENCH/{destination}/",
        env={**keys, "BENCH": stand.metaurl},
    )  # fmt: skip
    return time.monotonic() - began


def _bare_warmup(stand: DataStand) -> float:
    """Of the same list, which is written before the clock starts."""
    top = stand.mount()
    listing = stand.folder / "list"
    listing.write_text("\n".join(str(path) for path in sorted((top / "ours-0").rglob("*.bin"))))
    began = time.monotonic()
    run_juicefs("warmup", "--file", str(listing))
    return time.monotonic() - began
