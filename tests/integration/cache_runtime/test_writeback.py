"""Writeback: what was acknowledged to a pod reaches the store before its node goes."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from paddlewheel.testkit.cache_harness import CacheHarness
from paddlewheel.testkit.wait import eventually

SIZE = 3 << 20


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    options = {"free-space-ratio": "0.01", "backup-meta": "0", "writeback": "true", "upload-limit": "8"}
    return {"MOUNT_OPTIONS": json.dumps(options), "FLUSH_WAIT": "50"}


async def test_an_agent_that_ends_uploads_first_what_pods_have_written(harness: CacheHarness) -> None:
    content = os.urandom(SIZE)
    written = harness.runtimes.mount_path(0) / "checkpoint"
    written.write_bytes(content)

    async def is_reported() -> bool:
        return (await harness.node_status(0)).staged_bytes > 0

    await eventually(is_reported, within=10, every=0.05, what="a report of writes that are on the node only")

    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0

    staged = harness.runtimes.cache_dir(0).glob("*/rawstaging/**/*")
    assert [path for path in staged if path.is_file()] == []
    last = await harness.node_status(0)
    assert (last.mounted, last.staged_bytes, last.staged_unknown) == (False, 0, False)
    elsewhere = harness.runtimes.mount_path(1) / "checkpoint"
    assert await asyncio.to_thread(elsewhere.read_bytes) == content
