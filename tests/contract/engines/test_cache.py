"""NodeCache: a file counts as cached when all of it is really on the node."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.contract.engines.suite import THREADS, Node

from cache_runtime.domain.model import CacheReport
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.wait import eventually

FILES = {f"d{number}/f{number}": bytes([number]) * (10_000 + number) for number in range(8)}
SIZE = sum(map(len, FILES.values()))


async def check(node: Node, *names: str) -> CacheReport:
    return await node.engine.cache.check(await node.found(*names), THREADS)


async def warm(node: Node, *names: str) -> None:
    await node.engine.cache.warm(await node.found(*names), THREADS)


async def test_what_is_warmed_is_cached_and_nothing_else(node: Node) -> None:
    async with node.mounted():
        await node.fill(FILES)
        first, *others = FILES
        assert await check(node, *FILES) == CacheReport(len(FILES), SIZE, SIZE)
        await warm(node, first)
        assert await check(node, first) == CacheReport(1, len(FILES[first]), 0)
        assert await check(node, *FILES) == CacheReport(len(FILES), SIZE, SIZE - len(FILES[first]))
        await warm(node, *others)
        assert await check(node, *FILES) == CacheReport(len(FILES), SIZE, 0)
        assert (await node.engine.cache.use()).cached == SIZE
        await node.seen(first, FILES[first])


async def test_the_cache_outlives_the_process(node: Node) -> None:
    async with node.mounted():
        await node.fill(FILES)
        await warm(node, *FILES)
    node.next_process()
    async with node.mounted():
        assert (await check(node, *FILES)).missing == 0


async def test_a_file_that_was_copied_again_is_not_cached(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"old", "b": b"old"})
        await warm(node, "a", "b")
        node.put({"a": b"new content"})
        assert await node.copy("a") == {}

        async def is_missing() -> bool:
            return await check(node, "a", "b") == CacheReport(2, 14, 11)

        # An engine may remember for a second how long a file was.
        await eventually(is_missing, what="the new file to be missing in the cache")
        await warm(node, "a")
        assert (await check(node, "a", "b")).missing == 0
        await node.seen("a", b"new content")


async def test_empty_files_are_cached_at_once(node: Node) -> None:
    async with node.mounted():
        await node.fill({"empty": b""})
        await warm(node, "empty")
        assert await check(node, "empty") == CacheReport(1, 0, 0)


async def test_each_name_of_a_file_counts(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"1" * 1000, "d/b": b"2" * 1000})
        await asyncio.to_thread(os.link, node.engine.mount.path / "a", node.engine.mount.path / "d" / "again")
        names = ("a", "d/b", "d/again")
        await warm(node, *names)
        assert await check(node, *names) == CacheReport(3, 3000, 0)


async def test_clear_empties_the_cache_and_only_that(node: Node) -> None:
    async with node.mounted():
        await node.fill(FILES)
        await warm(node, *FILES)
        beside = Path(node.caches[0], "of another volume")
        beside.write_bytes(b"1")
        await node.engine.cache.clear(node.caches)
        assert (await check(node, *FILES)).missing == SIZE
        assert (await node.engine.cache.use()).cached == 0
        assert beside.read_bytes() == b"1"
        assert await node.content() == FILES
        await warm(node, *FILES)
        assert (await check(node, *FILES)).missing == 0


async def test_clear_of_one_directory_leaves_the_others(node: Node) -> None:
    async with node.mounted():
        await node.fill(FILES)
        await warm(node, *FILES)
        await node.engine.cache.clear(node.caches[:1])
        assert 0 < (await check(node, *FILES)).missing < SIZE
        await node.engine.cache.clear(node.caches[1:])
        assert (await check(node, *FILES)).missing == SIZE


async def test_without_writeback_nothing_is_staged(node: Node) -> None:
    assert await node.engine.cache.staged_bytes() == 0
    async with node.mounted():
        await node.fill({"a": b"1"})
        assert await node.engine.cache.staged_bytes() == 0


async def test_without_the_mount_nothing_is_claimed(node: Node) -> None:
    cache, files = node.engine.cache, [2]
    for attempt in (cache.check(files, 1), cache.warm(files, 1), cache.use()):
        with pytest.raises(Retry):
            await attempt
