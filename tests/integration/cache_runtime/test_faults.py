"""Whatever fails during a warmup, it succeeds in the end: every file cached, none counted twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness

from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation, WarmupOperation
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.storage import ObjectStore, run_juicefs
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)

FILES, SIZE = 90, 250_000


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    """Chunks of a megabyte over a link of 8 Mbit per second: a second each."""
    options = {"free-space-ratio": "0.01", "backup-meta": "0", "download-limit": "8", "prefetch": "0"}
    return {"CHUNK_MIB": "1", "MOUNT_OPTIONS": json.dumps(options)}


@pytest.fixture
async def filled(harness: CacheHarness, tmp_path: Path, object_store: ObjectStore) -> CacheHarness:
    """A data set of which nothing is cached yet, and a warmup that is half done."""
    source = tmp_path / "source"
    for number in range(FILES):
        path = source / f"part-{number % 7}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(2, "big") * (SIZE // 2))
    object_store.put_tree(source, "faults")
    synced = await harness.run("sync", SyncOperation(source=object_store.uri("faults"), secret="source"))
    assert (synced.phase, synced.files_done) == (RunPhase.SUCCEEDED, FILES)
    await harness.request("warm", WarmupOperation())
    await eventually(lambda: _both_began(harness), what="both agents have done a chunk")
    return harness


async def _both_began(harness: CacheHarness) -> bool:
    done = [(await harness.part("warm", p)).watermark for p in (0, 1)]
    return all(done) and sum(done) < 16


async def _check(harness: CacheHarness) -> None:
    """The run's counts are exact, and JuiceFS's own command agrees that all is cached."""
    state = await harness.ended("warm", within=150)
    assert (state.phase, state.message) == (RunPhase.SUCCEEDED, "")
    assert (state.files_done, state.bytes_done) == (FILES, FILES * SIZE)
    assert (state.files_total, state.bytes_total, state.cached_percent) == (FILES, FILES * SIZE, 100.0)
    parts = [await harness.part("warm", p) for p in (0, 1)]
    assert sum(part.files for part in parts) == FILES
    assert all(part.watermark and not part.chunks for part in parts)
    assert await harness.uncached(Path()) == []
    listing = harness.runtimes.directory / "list"
    assert sum([await _cached_files(harness, p, listing) for p in (0, 1)]) >= FILES


async def _cached_files(harness: CacheHarness, partition: int, listing: Path) -> int:
    """How many files lie wholly in this node's cache; `juicefs warmup --check` must agree."""
    root = harness.runtimes.mount_path(partition)
    cold = await harness.cold(partition, Path())
    warm = [p for p in root.glob("part-*/*.bin") if p.relative_to(root) not in cold]
    listing.write_text("".join(f"{path}\n" for path in warm))
    output = await asyncio.to_thread(run_juicefs, "warmup", "--check", "--file", str(listing))
    assert f"{len(warm)} files checked" in output
    assert "(100.0%) cached" in output
    return len(warm)


async def test_an_agent_killed_midway_repeats_only_unrecorded_chunks(filled: CacheHarness) -> None:
    before = await filled.part("warm", 1)
    filled.runtimes.kill(1)
    filled.runtimes.start(1)

    await _check(filled)
    after = await filled.part("warm", 1)
    assert before.watermark < after.watermark


@pytest.mark.long
async def test_the_work_of_an_agent_that_stays_away_is_done_by_another(filled: CacheHarness) -> None:
    filled.runtimes.kill(1)

    async def told() -> bool:
        state = await filled.state("warm")
        return state.reason == "PartitionAway" and "its work is done by partition 0" in state.message

    await eventually(told, every=0.1, what="the state says who does the work")
    state = await filled.ended("warm", within=90)

    # What the lost node had warmed is in no cache that is there.
    assert (state.phase, state.reason) == (RunPhase.SUCCEEDED, "PartlyCached")
    assert (state.files_done, state.bytes_done) == (FILES, FILES * SIZE)
    assert 0 < state.cached_percent < 100
    parts = [await filled.part("warm", p) for p in (0, 1)]
    assert sum(part.files for part in parts) == FILES
    assert parts[1].agent == "digits-runtime-0"


@pytest.mark.long
async def test_a_share_without_an_agent_is_done_by_those_that_are_there(filled: CacheHarness) -> None:
    """Nothing was ever heard of partitions 2 and 3, so nobody waits for them."""
    await filled.request("more", WarmupOperation(), partitions=4)
    state = await filled.ended("more")

    assert (state.phase, state.files_done, state.cached_percent) == (RunPhase.SUCCEEDED, FILES, 100.0)
    assert {(await filled.part("more", p)).agent[-1] for p in (2, 3)} <= {"0", "1"}


@pytest.mark.long
async def test_work_that_the_bus_has_lost_is_published_again(filled: CacheHarness) -> None:
    await filled.bus.work.purge(work_filter(filled.runtimes.uid))

    await _check(filled)


@pytest.mark.long
async def test_another_agent_takes_over_when_the_master_dies(filled: CacheHarness) -> None:
    first = await filled.state("warm")
    dead = int(first.master[-1])
    filled.runtimes.kill(dead)

    async def taken_over() -> bool:
        state = await filled.state("warm")
        return bool(state.master == f"digits-runtime-{1 - dead}" and state.term == first.term + 1)

    await eventually(taken_over, what="the other agent leads")
    filled.runtimes.start(dead)
    await _check(filled)


async def test_a_bus_killed_midway_loses_nothing(filled: CacheHarness, nats_server: NatsServer) -> None:
    nats_server.kill()
    await asyncio.sleep(2)  # a while without any bus; chunks in work go on meanwhile
    nats_server.start()

    await _check(filled)


@pytest.mark.long
async def test_a_mount_killed_midway_is_restored(filled: CacheHarness) -> None:
    for pid in filled.runtimes.mount_processes(0):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: "not mounted" in filled.runtimes.log(0), what="the loss is noticed")

    await _check(filled)
