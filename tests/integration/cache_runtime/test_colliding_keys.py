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


FORMER = {"f": b"f", "d/x": b"x", "d/e/y": b"y", "ok": b"1"}
PRESENT = {"f/1": b"1", "f/g/2": b"22", "d": b"d", "ok": b"1"}
"""`f` was a file and is a directory, `d` was a directory and is a file."""


async def test_delete_dst_removes_what_is_in_the_way(shared_harness: CacheHarness, flat: FlatStore) -> None:
    assert (await sync(shared_harness, flat, "way", FORMER)).phase is RunPhase.SUCCEEDED
    state = await sync(shared_harness, flat, "way", PRESENT, delete_dst=True)
    assert (state.phase, state.message) == (
        RunPhase.SUCCEEDED,
        "1 file was there with the same size and not compared",
    )
    assert tree(shared_harness, "way") == PRESENT


async def test_without_delete_dst_the_message_names_the_path_and_the_command(
    shared_harness: CacheHarness, flat: FlatStore
) -> None:
    assert (await sync(shared_harness, flat, "kept", FORMER)).phase is RunPhase.SUCCEEDED
    state = await sync(shared_harness, flat, "kept", PRESENT)
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 1)
    for key, kind, path in (
        ("d", "directory", "kept/d"),
        ("f/1", "file", "kept/f"),
        ("f/g/2", "file", "kept/f"),
    ):
        found = f"{key}: {path!r} is a {kind} in the data set"
        assert found in state.message
    assert "`paddlewheel data remove default/digits kept/f`" in state.message
    assert tree(shared_harness, "kept") == FORMER


@pytest.mark.parametrize("delete_dst", [False, True])
async def test_nothing_is_removed_for_a_source_that_has_both(
    shared_harness: CacheHarness, flat: FlatStore, delete_dst: bool
) -> None:
    """With the file in the data set first, and with the directory first."""
    top = f"both-{delete_dst}"
    assert (await sync(shared_harness, flat, top, {"g/1": b"1", "h": b"h"})).phase is RunPhase.SUCCEEDED
    both = {"g": b"g", "g/1": b"1", "h": b"h", "h/1": b"1"}
    state = await sync(shared_harness, flat, top, both, delete_dst=delete_dst)
    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 2)
    assert "g: the source has the object 'g' and objects below 'g/'" in state.message
    assert "h/1: the source has the object 'h' and objects below 'h/'" in state.message
    assert tree(shared_harness, top) == {"g/1": b"1", "h": b"h"}
