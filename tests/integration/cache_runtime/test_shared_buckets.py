"""Two data sets with their volumes in one bucket, and with one source: what one deletes, the other keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.bus import connect
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

FILES, SIZE = 9, 20_000


@dataclass
class Neighbour:
    """A data set with one agent."""

    harness: CacheHarness

    async def run(self, run_id: str, operation: WireModel) -> None:
        await self.harness.request(run_id, operation, partitions=1)
        state = await self.harness.ended(run_id)
        assert state.phase is RunPhase.SUCCEEDED, state.message

    @property
    def top(self) -> Path:
        return self.harness.runtimes.mount_path(0)

    async def fill(self, time: str, sync: SyncOperation) -> None:
        await self.run(f"sync-{time}", sync)
        await self.run(f"warm-{time}", WarmupOperation())

    async def state(self) -> tuple[dict[str, bytes], set[Path]]:
        """Content, and what its cache does not hold."""
        paths = [path for path in (self.top / "in").rglob("*") if path.is_file()]
        content = {str(path.relative_to(self.top)): path.read_bytes() for path in paths}
        return content, await self.harness.cold(0, Path("in"))


@pytest.fixture
async def neighbours(
    tmp_path: Path, nats_url: str, new_volume: Callable[[], JuiceFsVolume], object_store: ObjectStore
) -> AsyncIterator[list[Neighbour]]:
    """On one node and in one bucket."""
    async with AsyncExitStack() as stack:
        made = []
        for name in ("digits", "digits-2"):
            runtimes = RuntimeSet(tmp_path / name, nats_url, new_volume(), name=name)
            runtimes.directory.mkdir()
            keys = {"access-key": object_store.access_key, "secret-key": object_store.secret_key}
            runtimes.write_secret("source", keys)
            bus = await connect(nats_url, name="test")
            stack.push_async_callback(bus.close)
            stack.push_async_callback(asyncio.to_thread, runtimes.close)
            made.append(Neighbour(CacheHarness(runtimes, bus)))
            await made[-1].harness.start(0)
        yield made


async def test_what_one_set_deletes_its_neighbour_keeps(
    neighbours: list[Neighbour], object_store: ObjectStore, tmp_path: Path
) -> None:
    one, other = neighbours
    assert one.harness.runtimes.volume.bucket == other.harness.runtimes.volume.bucket
    fill(tmp_path / "source", FILES, SIZE)
    object_store.put_tree(tmp_path / "source", "one-source")
    sync = SyncOperation(source=object_store.uri("one-source"), secret="source", destination="in")
    await asyncio.gather(one.fill("first", sync), other.fill("first", sync))
    before = await other.state()
    assert (len(before[0]), before[1]) == (FILES, set())

    (one.top / "in" / "extra").write_bytes(b"extra")
    (other.top / "beside").write_bytes(b"of the other alone")
    await one.run("delete-dst", sync.model_copy(update={"delete_dst": True}))
    await eventually(lambda: not (one.top / "in" / "extra").exists())
    assert await other.state() == before
    await one.run("clear", ClearOperation())
    assert await one.harness.cold(0, Path("in")) != set()
    assert await other.state() == before
    await one.run("remove", RemoveOperation(paths=["in", "beside"]))
    await eventually(lambda: not (one.top / "in").exists())
    await other.run("clear", ClearOperation())

    # From the store, of which nothing is in a cache any more.
    assert (await other.state())[0] == before[0]
    assert (other.top / "beside").read_bytes() == b"of the other alone"
    await one.fill("again", sync)
    assert (await one.state()) == before
