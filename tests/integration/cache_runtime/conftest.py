"""Two real agents of one data set, with the records and facts on a real bus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.bus import connect
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    """Override to make chunks small or the store slow."""
    return {}


def _with_keys(runtimes: RuntimeSet, store: ObjectStore) -> RuntimeSet:
    runtimes.write_secret("source", {"access-key": store.access_key, "secret-key": store.secret_key})
    return runtimes


@pytest.fixture
async def harness(
    tmp_path: Path,
    nats_url: str,
    juicefs_volume: JuiceFsVolume,
    object_store: ObjectStore,
    chunk_settings: dict[str, str],
) -> AsyncIterator[CacheHarness]:
    """Two mounted agents, for a test that breaks or measures them."""
    runtimes = _with_keys(RuntimeSet(tmp_path, nats_url, juicefs_volume, chunk_settings), object_store)
    async with running(runtimes, 0, 1) as harness:
        yield harness


async def _make_streams(url: str) -> None:
    """Agents format no volume before they know that the set has none."""
    bus = await connect(url, name="test")
    await bus.close()


def lent_in(directory: Path) -> Path:
    """What the shared agents may copy from."""
    lent = directory / "lent"
    lent.mkdir(exist_ok=True)
    return lent


@pytest.fixture(scope="session")
def shared_runtimes(
    tmp_path_factory: pytest.TempPathFactory,
    new_volume: Callable[[], JuiceFsVolume],
    object_store: ObjectStore,
) -> Iterator[RuntimeSet]:
    """Two agents with a bus of their own, for tests that leave them unchanged."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    asyncio.run(_make_streams(server.url))
    directory = tmp_path_factory.mktemp("shared")
    settings = {"CHUNK_FILES": "7", "LOCAL_SOURCES": json.dumps([str(lent_in(directory))])}
    runtimes = _with_keys(RuntimeSet(directory, server.url, new_volume(), settings), object_store)
    try:
        runtimes.start(0)
        runtimes.start(1)
        runtimes.wait_mounted(0, 1)
        yield runtimes
    finally:
        runtimes.close()
        server.stop()


@pytest.fixture
async def shared_harness(shared_runtimes: RuntimeSet) -> AsyncIterator[CacheHarness]:
    """The shared agents; a test uses run ids and paths of its own."""
    harness = CacheHarness(shared_runtimes, await connect(shared_runtimes.nats_url, name="test"))
    try:
        yield harness
    finally:
        await harness.bus.close()
