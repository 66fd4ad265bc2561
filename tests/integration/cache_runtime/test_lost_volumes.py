"""The database of a volume is emptied: nothing else takes its place, and a backup brings all back."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, SyncOperation
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore, running_redis
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Database:
    """A Redis of one's own, whose database 1 has the volume, and 2 takes the backup."""

    def __init__(self, url: str) -> None:
        self._url, self.metaurl = url, f"{url}/1"

    def swap(self) -> None:
        """Move the backup and what is there into each other's place."""
        self._ask("swapdb", "1", "2")

    def keys(self) -> list[str]:
        return self._ask("-n", "1", "keys", "*").split()

    def _ask(self, *command: str) -> str:
        line = ["redis-cli", "-u", self._url, *command]
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture
def database() -> Iterator[Database]:
    with running_redis() as url:
        yield Database(url)


@pytest.fixture
async def harness(
    tmp_path: Path,
    nats_url: str,
    juicefs_volume: JuiceFsVolume,
    database: Database,
    object_store: ObjectStore,
) -> AsyncIterator[CacheHarness]:
    """One agent that has mounted, with a file of the volume."""
    runtimes = RuntimeSet(tmp_path, nats_url, replace(juicefs_volume, metaurl=database.metaurl))
    runtimes.write_secret(
        "source", {"access-key": object_store.access_key, "secret-key": object_store.secret_key}
    )
    async with running(runtimes, 0) as harness:
        (runtimes.mount_path(0) / "a").write_text("data")
        yield harness


async def _lost(harness: CacheHarness) -> NodeStatus:
    async def report() -> NodeStatus | None:
        status = await harness.node_status(0)
        return status if status.ailment == "VolumeLost" else None

    return await eventually(report, every=0.2, what="ailment VolumeLost")


async def _mounted(harness: CacheHarness) -> NodeStatus:
    async def report() -> NodeStatus | None:
        status = await harness.node_status(0)
        return status if status.mounted and status.volume_id else None

    return await eventually(report, every=0.2, what="a report of the mount")


async def test_a_database_that_was_emptied_waits_for_its_backup(
    harness: CacheHarness, database: Database
) -> None:
    before = (await _mounted(harness)).volume_id
    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
    database.swap()
    harness.runtimes.start(0)
    ill = await _lost(harness)
    assert (ill.mounted, ill.volume_id) == (False, before)
    assert f"was mounted from volume {before}" in ill.ailment_message
    assert "restore the database from its backup" in ill.ailment_message
    assert database.keys() == []
    database.swap()
    await asyncio.to_thread(harness.runtimes.wait_mounted, 0)
    assert (harness.runtimes.mount_path(0) / "a").read_text() == "data"


async def test_a_database_that_is_emptied_under_a_mount(harness: CacheHarness, database: Database) -> None:
    """The client notices when it next renews its session, and ends."""
    before = (await _mounted(harness)).volume_id
    database.swap()
    assert (await _lost(harness)).volume_id == before
    database.swap()
    assert (await _mounted(harness)).volume_id == before
    assert (harness.runtimes.mount_path(0) / "a").read_text() == "data"


async def test_nothing_is_formatted_where_both_the_database_and_the_store_were_emptied(
    harness: CacheHarness, database: Database, object_store: ObjectStore
) -> None:
    """Nothing but the record knows that there was a volume."""
    await _mounted(harness)
    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
    database.swap()
    _empty(object_store, harness.runtimes.volume.name)
    harness.runtimes.start(0)
    assert not (await _lost(harness)).mounted
    assert database.keys() == []


async def test_a_store_with_data_and_an_empty_database_are_no_new_volume(
    harness: CacheHarness, database: Database
) -> None:
    """Of a set that has no record: this is what the client itself refuses."""
    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
    database.swap()
    harness.runtimes.uid = "another"
    harness.runtimes.start(0)
    ill = await _lost(harness)
    assert "the database in metaurl is empty, and the store has objects below" in ill.ailment_message
    assert database.keys() == []


async def test_a_sync_does_not_write_into_another_volume_than_is_mounted(
    harness: CacheHarness, object_store: ObjectStore, juicefs_volume: JuiceFsVolume, tmp_path: Path
) -> None:
    """The Secret names another one by now: a volume of the same name in another database."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "b").write_text("new")
    bucket = f"source-{harness.runtimes.uid}"
    object_store.put_tree(tmp_path / "source", bucket)
    other = RuntimeSet(
        tmp_path / "other", harness.runtimes.nats_url, _elsewhere(juicefs_volume, object_store)
    )
    (tmp_path / "other").mkdir()
    try:
        other.start(0)
        await asyncio.to_thread(other.wait_mounted, 0)
        harness.runtimes.write_secret("engine", other.volume.secret())
        operation = SyncOperation(source=object_store.uri(bucket), secret="source")
        await harness.request("sync-1", operation, partitions=1)
        ended = await harness.ended("sync-1")
        assert ended.reason == "FilesFailed"
        assert "and the set was mounted from volume" in ended.message
        assert not (other.mount_path(0) / "b").exists()
    finally:
        await asyncio.to_thread(other.close)


def _elsewhere(volume: JuiceFsVolume, store: ObjectStore) -> JuiceFsVolume:
    store.make_bucket("elsewhere")
    return replace(volume, bucket=f"http://{store.endpoint}/elsewhere")


def _empty(store: ObjectStore, volume: str) -> None:
    url = f"http://{store.filer}/buckets/volumes/{volume}?recursive=true"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30).close()
