"""Keys of an object store that cannot all be files of one file system."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.flat_store import FlatStore, flat_store

from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState, SyncOperation

pytestmark = pytest.mark.long


@pytest.fixture
def flat() -> Iterator[FlatStore]:
    with flat_store() as store:
        yield store


async def sync(
    harness: CacheHarness, store: FlatStore, to: str, objects: dict[str, bytes], **options: object
) -> RunState:
    """Sync a source that has these objects into the directory `to`."""
    store.objects = objects
    operation = SyncOperation(source=store.uri, secret="source", destination=to)
    return await harness.run(f"{to}-{uuid.uuid4()}", operation.model_copy(update=options))


def tree(harness: CacheHarness, top: str) -> dict[str, bytes]:
    """The files below a directory, read past the caches of the kernel: each test has its own directory."""
    root = harness.runtimes.mount_path(1) / top
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_keys_that_are_no_paths_are_refused_by_name(
    shared_harness: CacheHarness, flat: FlatStore
) -> None:
    right, wrong = {"a/b": b"right", "c": b"c"}, ("a//b", "a/./b", "/a/b", "./c")
    state = await sync(shared_harness, flat, "no-paths", {**right, **dict.fromkeys(wrong, b"wrong")})
    assert (state.phase, state.reason) == (RunPhase.FAILED, "FilesFailed")
    assert (state.files_done, state.files_total) == (2, 6)
    assert all(f"{key}: the key has an empty part" in state.message for key in ("a//b", "/a/b"))
    assert all(f"{key}: the key has the part '.'" in state.message for key in ("a/./b", "./c"))
    assert tree(shared_harness, "no-paths") == right
