"""One node's life: mount, records, cache and its clearing, and the way down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    NodeMounted,
    NodeStatus,
    NodeUnmounted,
    RemoveOperation,
    RunPhase,
    WarmupOperation,
)
from paddlewheel.contracts.wire import from_json
from paddlewheel.testkit.wait import eventually


def fill(top: Path, files: int, size: int = 10_000) -> None:
    for number in range(files):
        path = top / f"d{number % 3}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number % 256]) * size)


async def node_status(rig: Any, partition: int) -> NodeStatus:
    entry = await rig.bus.key_value("pw_cache_nodes").get(f"{rig.runtimes.uid}.{partition}")
    return from_json(NodeStatus, entry.value)


async def facts_of(bus: Bus, *kinds: type) -> list[Any]:
    """All facts of these kinds stored so far."""
    from datetime import UTC, datetime

    found = []
    stream = bus.read(Reading(("pw.evt.cache.>",), datetime(2020, 1, 1, tzinfo=UTC)))
    try:
        async with asyncio.timeout(1.5):
            async for delivery in stream:
                found.append(delivery.event.data)
    except TimeoutError:
        await stream.aclose()
    return [fact for fact in found if isinstance(fact, kinds)]


async def test_warm_clear_and_remove_one_after_another(rig: Any) -> None:
    top = rig.runtimes.mount_path(0)
    fill(top, 12)
    await rig.run("forget", ClearOperation())  # what is written is cached by the writer
    assert (await rig.run("warm", WarmupOperation(paths=["d0", "d1"]))).files_done == 8
    assert sorted(p.parts[0] for p in await rig.uncached(Path())) == ["d2"] * 4

    async def measured() -> bool:
        nodes = [await node_status(rig, p) for p in (0, 1)]
        full = all(n.mounted and n.total_bytes == 120_000 and n.total_files == 12 for n in nodes)
        assert full, nodes
        assert sum(n.cached_bytes for n in nodes) >= 80_000, nodes
        return all(n.disk_size > n.disk_available > 0 for n in nodes)

    await eventually(measured, within=10, what="node records with exact sizes")

    cleared = await rig.run("clear", ClearOperation())
    assert (cleared.phase, cleared.files_done, cleared.files_total) == (RunPhase.SUCCEEDED, 2, 2)
    assert len(await rig.uncached(Path())) == 12
    blocks = [p for d in (0, 1) for p in rig.runtimes.cache_dir(d).rglob("raw/**/*") if p.is_file()]
    assert blocks == []

    refused = await rig.run("clear-2", ClearOperation(paths=["/etc"]))
    assert (refused.phase, refused.reason) == (RunPhase.FAILED, "FilesFailed")
    assert "'/etc' is not a cache directory" in refused.message

    removed = await rig.run("remove", RemoveOperation(paths=["d0", "d1/1.bin", "never/was"]))
    assert (removed.phase, removed.files_done) == (RunPhase.SUCCEEDED, 3)
    assert sorted(p.name for p in (top / "d1").iterdir()) == ["10.bin", "4.bin", "7.bin"]
    assert not (top / "d0").exists()


async def test_sigterm_unmounts_and_a_wrong_volume_is_named(rig: Any) -> None:
    assert await asyncio.to_thread(rig.runtimes.stop, 0) == 0
    assert not rig.runtimes.is_mounted(0)
    status = await node_status(rig, 0)
    assert (status.mounted, status.message) == (False, "stopped")
    facts = await facts_of(rig.bus, NodeMounted, NodeUnmounted)
    assert [type(f).__name__ for f in facts if f.partition == 0] == ["NodeMounted", "NodeUnmounted"]

    await asyncio.to_thread(rig.runtimes.stop, 1)
    secret = rig.runtimes.directory / "secrets" / "engine.name"
    rig.runtimes.volume = type(rig.runtimes.volume)(**{**vars(rig.runtimes.volume), "name": "another"})
    rig.runtimes.start(1)

    async def told() -> bool:
        return "holds volume" in (await node_status(rig, 1)).message

    await eventually(told, within=20, what="the record names the problem")
    assert secret.read_text() == "another"
    assert json.loads(rig.runtimes.log(1).splitlines()[-1])["service"] == "cache-runtime"
