"""Writeback: what was acknowledged to a pod reaches the store before its node goes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.link import Link
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

SIZE = 3 << 20
OPTIONS = {"free-space-ratio": "0.01", "backup-meta": "0", "writeback": "true"}


@pytest.fixture
async def link(object_store: ObjectStore) -> AsyncIterator[Link]:
    """The way of the agents to the store, on which its answers can be held back."""
    link = Link(free_ports(1)[0], object_store.endpoint)
    await link.open()
    yield link
    await link.cut()


@pytest.fixture
async def harness(
    tmp_path: Path, nats_url: str, juicefs_volume: JuiceFsVolume, link: Link
) -> AsyncIterator[CacheHarness]:
    """Two mounted agents."""
    volume = replace(juicefs_volume, bucket=f"http://127.0.0.1:{link.port}/volumes")
    settings = {"MOUNT_OPTIONS": json.dumps(OPTIONS), "FLUSH_WAIT": "50"}
    async with running(RuntimeSet(tmp_path, nats_url, volume, settings), 0, 1) as harness:
        yield harness


async def test_an_agent_that_ends_uploads_first_what_pods_have_written(
    harness: CacheHarness, link: Link
) -> None:
    content = os.urandom(SIZE)
    written = harness.runtimes.mount_path(0) / "checkpoint"
    link.hold_after(0)
    await asyncio.to_thread(written.write_bytes, content)

    async def is_reported() -> bool:
        return (await harness.node_status(0)).staged_bytes > 0

    await eventually(is_reported, what="a report of writes that are on the node only")
    link.release()

    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0

    staged = harness.runtimes.cache_dir(0).glob("*/rawstaging/**/*")
    assert [path for path in staged if path.is_file()] == []
    last = await harness.node_status(0)
    assert (last.mounted, last.staged_bytes, last.staged_unknown) == (False, 0, False)
    elsewhere = harness.runtimes.mount_path(1) / "checkpoint"
    assert await asyncio.to_thread(elsewhere.read_bytes) == content
