"""The agents of a new set: the first one makes the volume, all others begin together once it has mounted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.bus import connect
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.testkit.storage import JuiceFsVolume
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

OTHERS = (1, 2)


async def test_agents_that_begin_together_mount_the_volume_of_the_first(
    tmp_path: Path, nats_url: str, new_volume: Callable[[], JuiceFsVolume]
) -> None:
    bus = await connect(nats_url, name="test")
    runtimes = RuntimeSet(tmp_path, nats_url, new_volume())
    harness = CacheHarness(runtimes, bus)

    async def volume_of(partition: int) -> str:
        async def report() -> NodeStatus | None:
            status = await harness.node_status(partition)
            return status if status.mounted else None

        return (await eventually(report, what=f"partition {partition} is mounted")).volume_id

    try:
        await harness.start(0)
        await harness.start(*OTHERS)
        first, *others = [await volume_of(partition) for partition in (0, *OTHERS)]
        assert others == [first, first]
        (runtimes.mount_path(0) / "a").write_text("data")
        for partition in OTHERS:
            other = runtimes.mount_path(partition) / "a"
            await eventually(lambda: other.exists() and other.read_text() == "data", what=str(other))  # noqa: B023
            assert "formatting volume" not in runtimes.log(partition)
            assert "VolumeLost" not in runtimes.log(partition)
    finally:
        await asyncio.to_thread(runtimes.close)
        await bus.close()
