"""Objects that are replaced while they are copied, also by larger and smaller ones."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.test_copies import Copies, copies

from cache_runtime.engines.ports import Copied
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState, SyncOperation
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.link import Link
from paddlewheel.testkit.storage import ObjectStore

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MEBIBYTE = 1 << 20
SECOND = 1.1
"""Stores tell the time of an object in whole seconds: what is replaced by as many bytes within the second in
which it was written looks the same."""
SIZE = 24 * MEBIBYTE
"""Read in parts of 10 MiB at most."""
MBPS = 80
VERSIONS = {"overwritten": SIZE, "grown": SIZE + 5 * MEBIBYTE, "shrunk": SIZE // 2}
__all__ = ["copies"]


@dataclass
class Changing:
    """A store whose object is replaced when a part of it was read."""

    store: ObjectStore
    link: Link

    def put(self, bucket: str, content: bytes, key: str = "object") -> None:
        """By the filer, which replaces an object whatever it is."""
        url = f"http://{self.store.filer}/buckets/{bucket}/{key}"
        request = urllib.request.Request(url, data=content, method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        urllib.request.urlopen(request, timeout=60).close()

    def remove(self, bucket: str, key: str) -> None:
        url = f"http://{self.store.filer}/buckets/{bucket}/{key}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60).close()

    def replace_once_read(self, bucket: str, content: bytes) -> asyncio.Task[None]:
        """When more was read than what is asked about the object beforehand. The copy waits meanwhile."""
        self.link.hold_after(MEBIBYTE)
        return asyncio.create_task(self._replace(bucket, content))

    async def _replace(self, bucket: str, content: bytes) -> None:
        async with asyncio.timeout(90):
            await self.link.is_held.wait()
        await asyncio.sleep(SECOND)
        try:
            await asyncio.to_thread(self.put, bucket, content)
        finally:
            self.link.release()

    def source(self, bucket: str) -> SyncOperation:
        return SyncOperation(
            source=replace(self.store, endpoint=f"127.0.0.1:{self.link.port}").uri(bucket), secret="source"
        )


@pytest.fixture
async def changing(object_store: ObjectStore) -> AsyncIterator[Changing]:
    link = Link(free_ports(1)[0], object_store.endpoint)
    await link.open()
    yield Changing(object_store, link)
    await link.cut()


def old(size: int = SIZE) -> bytes:
    return b"a" * size


def new(size: int) -> bytes:
    return b"b" * size


LONG = pytest.mark.long
"""The client tries for a while to read what is not there any more."""


@pytest.mark.parametrize("change", ["overwritten", "grown", pytest.param("shrunk", marks=LONG)])
async def test_no_file_of_two_versions_counts_as_copied(
    copies: Copies, changing: Changing, change: str
) -> None:
    """By its size the next copy would find it done, unless it is forced. Of one that became shorter than
    what was to be read next, nothing may have arrived."""
    bucket, content = f"torn-{change}", new(VERSIONS[change])
    copies.use_store(changing.store)
    changing.store.make_bucket(bucket)
    changing.put(bucket, old())
    sync = changing.source(bucket)
    replacing = changing.replace_once_read(bucket, content)
    torn = set[bytes]()
    copied = await copies.transfer.copy(sync, [b"object"], MBPS, torn)
    await replacing
    assert set(copied.failed) == {b"object"}
    assert torn == {b"object"} or (change == "shrunk" and not copies.written())
    again = sync.model_copy(update={"force_update": True})
    assert await copies.transfer.copy(again, [b"object"], 0, set()) == Copied()
    assert copies.written() == {"object": content}


async def test_what_the_last_pass_copies_while_it_changes_is_named_and_stays_in_the_source(
    copies: Copies, changing: Changing
) -> None:
    bucket, torn = "torn-last", set[bytes]()
    copies.use_store(changing.store)
    copies.fill({"object": bytes(SIZE)})
    changing.store.make_bucket(bucket)
    changing.put(bucket, old())
    content = new(SIZE)
    replacing = changing.replace_once_read(bucket, content)
    with pytest.raises((Permanent, Retry), match=r"DeleteFailed: .*object changed during sync"):
        await copies.transfer.delete_copied(changing.source(bucket), MBPS, torn)
    await replacing
    assert torn == {b"object"}
    copied = await copies.transfer.copy(changing.source(bucket), [b"object"], 0, set())
    assert not copied.failed, "it is still in the source"


@pytest.mark.parametrize("options", [{"update": True}, {"force_update": True}])
async def test_what_leaves_the_source_before_its_turn_is_not_copied(
    copies: Copies, changing: Changing, options: dict[str, bool]
) -> None:
    """An older file of that name would count as the copy."""
    bucket = f"left-{''.join(options)}".replace("_", "-")
    copies.use_store(changing.store)
    copies.fill({"z": b"old"})
    changing.store.make_bucket(bucket)
    for key, content in {"object": old(), "z": b"new"}.items():
        changing.put(bucket, content, key)
    sync = changing.source(bucket).model_copy(update={"threads": 1, **options})
    changing.link.hold_after(MEBIBYTE)
    copying = asyncio.create_task(copies.transfer.copy(sync, [b"object", b"z"], MBPS, set()))
    async with asyncio.timeout(90):
        await changing.link.is_held.wait()
    await asyncio.to_thread(changing.remove, bucket, "z")
    changing.link.release()
    copied = await copying
    assert (copied.failed, copied.kept) == ({b"z": "has left the source"}, 0)


@LONG
@pytest.mark.parametrize("change", VERSIONS)
async def test_a_sync_ends_with_one_version_or_names_the_file(
    shared_harness: CacheHarness, changing: Changing, change: str
) -> None:
    bucket, content = f"changed-{change}", new(VERSIONS[change])
    changing.store.make_bucket(bucket)
    changing.put(bucket, old())
    sync = changing.source(bucket).model_copy(update={"destination": bucket, "bandwidth_limit": 2 * MBPS})
    replacing = changing.replace_once_read(bucket, content)
    state = await shared_harness.run(bucket, sync)
    await replacing
    check(state, shared_harness, bucket, content)


def check(state: RunState, harness: CacheHarness, bucket: str, content: bytes) -> None:
    """What was listed with another size cannot be said to be copied."""
    found = (harness.runtimes.mount_path(0) / bucket / "object").read_bytes()
    assert found == content
    if len(content) == SIZE:
        assert (state.phase, state.message) == (RunPhase.SUCCEEDED, "")
    else:
        assert (state.phase, state.reason) == (RunPhase.FAILED, "FilesFailed")
        assert "object: size differs from the source" in state.message
