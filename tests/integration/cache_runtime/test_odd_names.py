"""Unusual file names survive sync, lists and warmup, byte for byte."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness

from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation, WarmupOperation
from paddlewheel.testkit.storage import ObjectStore

NAMES = [
    b"plain.png", b"two words.png", b"quote\"s and 'single' `ticks`.png", b"new\nline.png", b"\nfirst",
    b"last\n",
    b"-leading-dash", b"--files-from=x", "中文/图片 一.png".encode(), b" leading space", b"trailing space ",
    b"folder with space /x", b"tab\there", b"return\r", b"percent%20.txt", b"%", b"star*?[x]", b"#comment",
    b"a+b&c=d;e",
    b"$(touch evil)", b"deep/er/and/deeper/file", "emoji😀".encode(), b"e\xcc\x81", b".hidden", b"colon:name",
    b"empty", b"~tilde", b"{brace,s}", b"pipe|name", b"<angle>", b"at@sign",
    b"x (12 bytes) [worker@sync.go:1]",
]  # fmt: skip


def make_tree(top: Path, names: list[bytes]) -> dict[bytes, str]:
    """Create files of different sizes; returns their digests."""
    digests = {}
    for number, name in enumerate(names):
        path = top / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = b"" if name == b"empty" else (b"%d:" % number + name) * (100 * number + 1)
        path.write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def digests_of(top: Path) -> dict[bytes, str]:
    """Digests of the files that are there."""
    files = [path for path in top.rglob("*") if path.is_file()]
    return {os.fsencode(p.relative_to(top)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


async def test_unusual_names_survive_sync_list_and_warmup(
    shared_harness: CacheHarness, tmp_path: Path, object_store: ObjectStore
) -> None:
    wanted = make_tree(tmp_path / "source", NAMES)
    object_store.put_tree(tmp_path / "source", "pictures", "train set")

    source = object_store.uri("pictures", "train%20set")
    synced = await shared_harness.run(
        "sync-1", SyncOperation(source=source, secret="source", destination="a b/中")
    )
    assert (synced.phase, synced.reason, synced.message) == (RunPhase.SUCCEEDED, "", "")
    assert (synced.files_done, synced.files_total) == (len(NAMES), len(NAMES))
    for partition in (0, 1):
        assert digests_of(shared_harness.runtimes.mount_path(partition) / "a b/中") == wanted

    warmed = await shared_harness.run("warm-1", WarmupOperation(strategy="random", paths=["a b"]))
    assert (warmed.phase, warmed.message, warmed.files_done) == (RunPhase.SUCCEEDED, "", len(NAMES))
    assert warmed.cached_percent == 100.0
    assert warmed.bytes_done == warmed.bytes_total == synced.bytes_done
    assert await shared_harness.uncached(Path("a b/中")) == []
    shares = [(await shared_harness.part("warm-1", p)).bytes for p in (0, 1)]
    assert max(shares) - min(shares) <= max(100 * n * 60 for n in range(len(NAMES)))


@pytest.mark.long
async def test_names_that_are_not_utf8_are_warmed(shared_harness: CacheHarness) -> None:
    names = [b"\xff\xfe.bin", b"dir\xe9/x\xe9", b"100%FF"]
    make_tree(shared_harness.runtimes.mount_path(0) / "bytes", names)

    warmed = await shared_harness.run("warm-2", WarmupOperation(paths=["bytes"]))

    assert (warmed.phase, warmed.message, warmed.files_done) == (RunPhase.SUCCEEDED, "", 3)
    assert await shared_harness.uncached(Path("bytes")) == []


@pytest.mark.long
async def test_a_ready_list_is_warmed_and_a_missing_line_is_named(shared_harness: CacheHarness) -> None:
    top = shared_harness.runtimes.mount_path(0)
    make_tree(top, [b"x 1", "图/y".encode(), b"cold"])
    (top / "list.txt").write_text("x 1\n图/y\n")

    warmed = await shared_harness.run("warm-3", WarmupOperation(file="list.txt"))
    assert (warmed.phase, warmed.files_done) == (RunPhase.SUCCEEDED, 2)

    (top / "list.txt").write_text("x 1\ngone.png\n")
    failed = await shared_harness.run("warm-4", WarmupOperation(file="list.txt"))
    assert (failed.phase, failed.reason, failed.files_done) == (RunPhase.FAILED, "FilesFailed", 1)
    assert "gone.png: not found" in failed.message
    assert (failed.files_failed, failed.bytes_done == failed.bytes_total) == (1, True)
    assert failed.cached_percent == 50.0
