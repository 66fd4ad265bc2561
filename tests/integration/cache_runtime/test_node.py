"""The life cycle of a node: mount, records, cache and clearing it, shutdown."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    NodeMounted,
    NodeUnmounted,
    RemoveOperation,
    RunPhase,
    WarmupOperation,
)
from paddlewheel.testkit.wait import eventually


async def test_warm_clear_and_remove_one_after_another(harness: CacheHarness) -> None:
    top = harness.runtimes.mount_path(0)
    fill(top, 12)

    def are_shown() -> bool:
        tops = [harness.runtimes.mount_path(partition) for partition in (0, 1)]
        return all(len(list(each.rglob("*.bin"))) == 12 for each in tops)

    # The kernel may remember for a second that a node has no such name.
    await eventually(are_shown, what="the files on both nodes")
    await harness.run("forget", ClearOperation())  # what is written is cached by the writer
    assert (await harness.run("warm", WarmupOperation(paths=["d0", "d1"]))).files_done == 8
    assert sorted(p.parts[0] for p in await harness.uncached(Path())) == ["d2"] * 4

    async def measured() -> bool:
        nodes = [await harness.node_status(p) for p in (0, 1)]
        full = all(n.mounted and n.total_bytes == 120_000 and n.total_files == 12 for n in nodes)
        assert full, nodes
        assert sum(n.cached_bytes for n in nodes) >= 80_000, nodes
        return all(n.disk_size > n.disk_available > 0 for n in nodes)

    await eventually(measured, what="node records with exact sizes")

    cleared = await harness.run("clear", ClearOperation())
    assert (cleared.phase, cleared.files_done, cleared.files_total) == (RunPhase.SUCCEEDED, 2, 2)
    assert len(await harness.uncached(Path())) == 12
    blocks = [p for d in (0, 1) for p in harness.runtimes.cache_dir(d).rglob("raw/**/*") if p.is_file()]
    assert blocks == []

    refused = await harness.run("clear-2", ClearOperation(paths=["/etc"]))
    assert (refused.phase, refused.reason) == (RunPhase.FAILED, "FilesFailed")
    assert "'/etc' is not a cache directory" in refused.message

    removed = await harness.run("remove", RemoveOperation(paths=["d0", "d1/1.bin", "never/was"]))
    assert (removed.phase, removed.files_done) == (RunPhase.SUCCEEDED, 3)
    assert removed.message == "never/was: did not exist"

    def are_removed() -> bool:
        left = sorted(p.name for p in (top / "d1").iterdir())
        return (left, (top / "d0").exists()) == (["10.bin", "4.bin", "7.bin"], False)

    # It may as well remember what another node has removed.
    await eventually(are_removed, what="the files are gone")


@pytest.mark.long
async def test_sigterm_unmounts_and_a_wrong_volume_is_reported(harness: CacheHarness) -> None:
    async def is_announced() -> bool:
        return any(fact.partition == 0 for fact in await harness.facts(NodeMounted))

    await eventually(is_announced, what="it is mounted")  # told a moment after it is to be seen
    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
    assert not harness.runtimes.is_mounted(0)
    status = await harness.node_status(0)
    assert (status.mounted, status.message) == (False, "stopped")
    facts = await harness.facts(NodeMounted, NodeUnmounted)
    assert [type(f).__name__ for f in facts if f.partition == 0] == ["NodeMounted", "NodeUnmounted"]

    await asyncio.to_thread(harness.runtimes.stop, 1)
    secret = harness.runtimes.directory / "secrets" / "engine.name"
    harness.runtimes.volume = replace(harness.runtimes.volume, name="another")
    harness.runtimes.start(1)

    async def is_reported() -> bool:
        return "holds volume" in (await harness.node_status(1)).message

    await eventually(is_reported, what="the record names the problem")
    assert secret.read_text() == "another"
    *written, _ = harness.runtimes.log(1).split("\n")  # the last line may be half written
    assert json.loads(written[-1])["service"] == "cache-runtime"
