"""Real agents that show tokens do a run, and finish it although bus-auth is killed meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill
from tests.integration.cache_runtime.plain_agents import PlainRuntimes

from paddlewheel.bus import connect
from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation, WarmupOperation
from paddlewheel.testkit.bus_auth import BusAuthStand
from paddlewheel.testkit.chart_bus import BUS_CA, PATIENCE
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

FILES, SIZE = 30, 10_000


@asynccontextmanager
async def two_agents(stand: BusAuthStand, folder: Path) -> AsyncIterator[CacheHarness]:
    """Of one data set, with the token of its pod; they are driven as dataset-controller."""
    owner, _, token = await stand.agent(stand.home)
    (folder / "token").write_text(token)
    settings = {
        "LOCAL_SOURCES": json.dumps([str(folder / "lent")]),
        "CHUNK_FILES": "3",
        "SET_NAMESPACE": stand.home,
        "NATS_TLS_DIR": str(stand.bus.folder / BUS_CA),
        "NATS_TOKEN_FILE": str(folder / "token"),
    }
    runtimes = PlainRuntimes(
        folder / "nodes",
        stand.bus.url.replace("127.0.0.1", "localhost"),
        settings=settings,
        uid=owner["metadata"]["uid"],
        namespace=stand.home,
    )
    runtimes.directory.mkdir()
    driver = await connect(
        stand.access("dataset-controller", await stand.allow_role("dataset-controller")), name="test"
    )
    harness = CacheHarness(runtimes, driver)
    try:
        await harness.start(0, 1)
        yield harness
    finally:
        await asyncio.to_thread(runtimes.close)
        await driver.close()


async def test_a_run_is_finished_although_bus_auth_is_killed(own_stand: BusAuthStand, tmp_path: Path) -> None:
    fill(tmp_path / "lent", FILES, SIZE)
    async with own_stand.installed(), two_agents(own_stand, tmp_path) as harness:
        synced = await harness.run("sync", SyncOperation(source=f"file://{tmp_path / 'lent'}"))
        assert (synced.phase, synced.message) == (RunPhase.SUCCEEDED, "")

        await harness.request("warm", WarmupOperation())
        await own_stand.stop()
        await harness.request("after", WarmupOperation())
        await own_stand.start()

        for run in ("warm", "after"):
            ended = await harness.ended(run)
            assert (ended.phase, ended.message) == (RunPhase.SUCCEEDED, "")
            parts = [await harness.part(run, partition) for partition in (0, 1)]
            assert sum(part.files for part in parts) == FILES

        async def are_reported() -> bool:
            found = [await harness.node_status(partition) for partition in (0, 1)]
            return all(status.total_files == FILES for status in found)

        await eventually(are_reported)
        assert await ended_runs(own_stand) == 3


async def ended_runs(stand: BusAuthStand) -> int:
    """Facts that tell the end of a run."""
    async with stand.enter("operator", await stand.allow_role("operator")) as operator:
        subject = f"pw.evt.cache.run.ended.v1.{stand.home}.>"
        info = await operator.client.jetstream(timeout=PATIENCE).stream_info(
            "PW_CACHE", subjects_filter=subject
        )
        return sum((info.state.subjects or {}).values())
