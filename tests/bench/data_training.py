"""Images per second of a Paddle program that reads a data set, from a narrow store and from warm nodes."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
from tests.bench.data_stand import DataStand, data_stand
from tests.bench.rows import Row

from paddlewheel.contracts.generated.cache_v1 import SamplerOrder, WarmupOperation

STORE_MBPS = 50
IMAGES, CLASSES = 1_200, 10
READER = Path(__file__).with_name("train_reads.py")
BY_SAMPLER = WarmupOperation(
    paths=["train"],
    strategy="sampler",
    sampler=SamplerOrder(batch_size=32, shuffle=True, epoch=1, extensions=[".npy"]),
)
BY_PLACEMENT = WarmupOperation(paths=["train"])
"""A share of the files for each node, whichever rank reads them: what round-robin gives."""
AS_IN_THE_SEEDS = {1: 1.81, 2: 3.33}
"""Warm over cold with one reader and with two, as the authors of the original measured it."""


async def measure() -> list[Row]:
    return [row for nodes, goal in AS_IN_THE_SEEDS.items() for row in await _measure(nodes, goal)]


async def _measure(nodes: int, goal: float) -> list[Row]:
    """The nodes share the bandwidth of the store."""
    async with data_stand(nodes, {"download-limit": str(STORE_MBPS // nodes)}) as stand:
        await asyncio.to_thread(_make_images, stand.mount() / "train")
        await stand.empty_caches(nodes)
        cold = await _epoch(stand, nodes)
        warm, local = await _warm_epoch(stand, nodes, BY_SAMPLER)
        _, by_chance = await _warm_epoch(stand, nodes, BY_PLACEMENT)
    return [
        Row(f"data.floor_images_per_s_cold_on_{nodes}", cold, 0.0, "/s", at_least=True),
        Row(f"data.images_per_s_warm_over_cold_on_{nodes}", warm / cold, goal, "x", at_least=True),
        Row(f"data.floor_local_reads_of_placement_on_{nodes}", by_chance, 0.0, "x", at_least=True),
        Row(f"data.local_reads_of_a_sampler_on_{nodes}", local, 0.99, "x", at_least=True),
    ]


async def _warm_epoch(stand: DataStand, nodes: int, warmup: WarmupOperation) -> tuple[float, float]:
    """Images per second, and the share of bytes that came from the reader's own node."""
    await stand.empty_caches(nodes)
    await stand.seconds(warmup, nodes)
    before = stand.relay.received
    rate = await _epoch(stand, nodes)
    return rate, 1 - (stand.relay.received - before) / _size(stand.mount() / "train")


def _make_images(top: Path) -> None:
    """Not with np.save to the mount: it holds the interpreter while it writes, and the relay needs it."""
    random = np.random.default_rng(1)
    for number in range(IMAGES):
        folder = top / f"c{number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        image = BytesIO()
        np.save(image, random.integers(0, 256, (108, 108, 3), dtype=np.uint8))
        (folder / f"{number:05d}.npy").write_bytes(image.getvalue())


def _size(top: Path) -> int:
    return sum(path.stat().st_size for path in top.rglob("*.npy"))


async def _epoch(stand: DataStand, nodes: int) -> float:
    """Images per second of all nodes together; rank i reads on node i."""
    return sum(await asyncio.gather(*(_read(stand.mount(rank), rank, nodes) for rank in range(nodes))))


async def _read(mount: Path, rank: int, ranks: int) -> float:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(READER), str(mount / "train"), str(rank), str(ranks),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, f"the reader of rank {rank} failed"
    return float(output.splitlines()[-1])
