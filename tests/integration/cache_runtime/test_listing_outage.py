"""A store that goes away in the middle of a listing: the listing begins again, and the run ends right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness

from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.link import Link
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FILES = 1500
"""More than a page of the listing."""
CUT_AFTER = 240_000
"""Bytes from the store: the listing has 295,000, two thirds of them in its first page."""
STORE_OUTAGE_TIMEOUT_SECONDS = 20.0
"""Seconds: longer than three tries of a copy take."""


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    """Several chunks of the first page are done, or being done, when the store goes away."""
    return {"CHUNK_FILES": "150"}


@pytest.fixture
async def link(object_store: ObjectStore) -> AsyncIterator[Link]:
    """The way of the agents to the source; their volume has another."""
    link = Link(free_ports(1)[0], object_store.endpoint)
    await link.open()
    yield link
    await link.cut()


@pytest.mark.long
async def test_a_store_that_goes_away_in_the_middle_of_a_listing_costs_no_file(
    harness: CacheHarness, tmp_path: Path, object_store: ObjectStore, link: Link
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    contents = {f"{number:05d}.bin": f"{number}".encode() for number in range(FILES)}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    await asyncio.to_thread(object_store.put_tree, source, "cut-listing")
    reached = replace(object_store, endpoint=f"127.0.0.1:{link.port}")

    link.cut_after(CUT_AFTER)
    await harness.request("cut", SyncOperation(source=reached.uri("cut-listing"), secret="source"))
    await link.is_cut.wait()
    assert not (await harness.state("cut")).listed

    await asyncio.sleep(STORE_OUTAGE_TIMEOUT_SECONDS)

    async def is_told() -> bool:
        return (await harness.state("cut")).reason == "ListingRetried"

    await eventually(is_told, what="the listing is tried again")
    await link.open()

    state = await harness.ended("cut", within=150)
    assert (state.phase, state.reason) == (RunPhase.SUCCEEDED, ""), state
    assert (state.files_done, state.files_total) == (FILES, FILES)
    top = harness.runtimes.mount_path(1)
    found = await asyncio.to_thread(lambda: {name: (top / name).read_bytes() for name in contents})
    assert found == contents
