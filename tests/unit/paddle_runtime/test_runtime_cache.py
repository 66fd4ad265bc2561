"""The cache of models on a disk, with a store in memory."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from paddle_runtime import cache as cache_module
from paddle_runtime.cache import Entry, ModelCache
from paddle_runtime.directory import directory_digest
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.ports import StoredFile
from paddlewheel.core.errors import Retry, Unavailable

WHERE = "s3://bucket/model"
GIB = 1 << 30


class MemoryFiles:
    """A store. `broken` makes the n-th read fail after its first byte, counted from 0."""

    def __init__(self, **files: bytes) -> None:
        self.files = {name.replace("_", "."): content for name, content in files.items()}
        self.reads: list[tuple[str, int]] = []
        self.broken = -1
        self.gate = asyncio.Event()
        self.gate.set()
        self.before_read: Callable[[], None] = lambda: None

    async def list(self) -> Sequence[StoredFile]:
        epoch = datetime.fromtimestamp(0, UTC)
        return [StoredFile(name, len(data), data.hex(), epoch) for name, data in self.files.items()]

    async def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
        self.reads.append((file.path, offset))
        self.before_read()
        await self.gate.wait()
        if self.files[file.path].hex() != file.tag:
            raise Retry("StoreChanged", file.path)
        yield self.files[file.path][offset : offset + 1]
        if len(self.reads) - 1 == self.broken:
            raise Unavailable("StoreUnavailable", "cut")
        yield self.files[file.path][offset + 1 :]


class Killed(BaseException):
    """Instead of a SIGKILL."""


class DiskUsage(NamedTuple):
    """As of `shutil.disk_usage`."""

    total: int
    used: int
    free: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def cache(root: Path, limit: int = GIB) -> ModelCache:
    return ModelCache(root, limit)


def models(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


def partial(root: Path) -> list[Path]:
    return list((root / ".partial").iterdir())


async def put(root: Path, where: str, **files: bytes) -> Entry:
    """A model that nobody serves any more."""
    entry = await cache(root).get(MemoryFiles(**files), where, "")
    close(entry)
    return entry


def close(*entries: Entry) -> None:
    for entry in entries:
        entry.lock.close()


def digest_of(store: MemoryFiles, tmp_path: Path) -> str:
    folder = tmp_path / "as-digest"
    folder.mkdir()
    for name, content in store.files.items():
        (folder / name).write_bytes(content)
    return directory_digest(folder)


@contextmanager
def locked(root: Path, name: str) -> Iterator[None]:
    """As by another replica."""
    (root / ".locks").mkdir(parents=True, exist_ok=True)
    with (root / ".locks" / name).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def test_a_model_is_fetched_once_and_named_by_its_digest(root: Path, tmp_path: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    digest = digest_of(store, tmp_path)

    first = await cache(root).get(store, WHERE, digest)
    again = await cache(root).get(store, WHERE, digest)

    assert (first.fetched, again.fetched) == (True, False)
    assert models(root) == [digest.replace(":", "-")]
    assert (first.directory / "m.pdiparams").read_bytes() == b"weights"
    assert len(store.reads) == 2
    close(first, again)


@pytest.mark.parametrize("known", [True, False], ids=["digest", "no digest"])
async def test_while_one_fetches_another_says_that_it_waits_and_then_shares(
    root: Path, tmp_path: Path, known: bool
) -> None:
    store = MemoryFiles(m_json=b"program")
    digest = digest_of(store, tmp_path) if known else ""
    store.gate.clear()

    fetching = asyncio.create_task(cache(root).get(store, WHERE, digest))
    while not store.reads:
        await asyncio.sleep(0)
    with pytest.raises(Retry, match="waiting for another replica"):
        await cache(root).get(store, WHERE, digest)
    store.gate.set()
    first = await fetching
    second = await cache(root).get(store, WHERE, digest)

    assert (first.fetched, second.fetched) == (True, False)
    assert store.reads == [("m.json", 0)]
    close(first, second)


async def test_replicas_verify_a_model_at_the_same_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(root, WHERE, m_json=b"program")
    together = threading.Barrier(2, timeout=30)

    def verify(directory: Path) -> str:
        together.wait()
        return directory_digest(directory)

    monkeypatch.setattr(cache_module, "directory_digest", verify)
    gets = [cache(root).get(MemoryFiles(m_json=b"program"), WHERE, "") for _ in range(2)]
    entries = await asyncio.gather(*gets)

    assert not any(entry.fetched for entry in entries)
    close(*entries)


async def test_a_damaged_model_is_not_read_again_while_another_replica_fetches_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = await put(root, WHERE, m_json=b"program")
    monkeypatch.setattr(cache_module, "directory_digest", lambda _: pytest.fail("was read"))

    with (
        locked(root, f"{damaged.directory.name}.fetch"),
        pytest.raises(Retry, match="waiting for another replica"),
    ):
        await cache(root).get(MemoryFiles(m_json=b"program"), WHERE, "")


async def test_a_model_that_another_has_fetched_meanwhile_is_not_fetched_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found a changed model; the slower must not take away what the faster one serves."""
    old = await put(root, WHERE, m_json=b"program")
    (old.directory / "m.json").write_bytes(b"changed")
    seen, go = threading.Event(), threading.Event()

    def slow(directory: Path) -> str:
        found = directory_digest(directory)
        seen.set()
        assert go.wait(30)
        return found

    store = MemoryFiles(m_json=b"program")
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "directory_digest", slow)
        slower = asyncio.create_task(cache(root).get(store, WHERE, ""))
        assert await asyncio.to_thread(seen.wait, 30)
    faster = await cache(root).get(store, WHERE, "")
    go.set()
    with pytest.raises(Retry, match="another replica has fetched"):
        await slower

    assert faster.fetched
    assert len(store.reads) == 1
    close(faster)


async def test_a_cut_download_serves_nothing_and_goes_on_where_it_ended(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    store.broken = 1

    with pytest.raises(Unavailable):
        await cache(root).get(store, WHERE, "")
    assert models(root) == []

    entry = await cache(root).get(store, WHERE, "")
    assert (entry.directory / "m.json").read_bytes() == b"program"
    assert (entry.directory / "m.pdiparams").read_bytes() == b"weights"
    assert store.reads == [("m.json", 0), ("m.pdiparams", 0), ("m.pdiparams", 1)]
    assert entry.digest == directory_digest(entry.directory)
    assert not partial(root)
    close(entry)


async def test_what_was_fetched_of_another_listing_is_not_mixed_in(root: Path, tmp_path: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    digest = digest_of(store, tmp_path)
    store.files["m.json"] = b"PROGRAM"
    store.broken = 1
    with pytest.raises(Unavailable):
        await cache(root).get(store, WHERE, digest)
    store.files["m.json"] = b"program"

    entry = await cache(root).get(store, WHERE, digest)

    assert (entry.directory / "m.json").read_bytes() == b"program"
    close(entry)


async def test_a_store_that_changes_while_it_is_read_is_listed_again(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    new = {"m.json": b"other program", "m.pdiparams": b"others!"}

    def replace() -> None:
        if len(store.reads) == 2:
            store.files = dict(new)

    store.before_read = replace
    with pytest.raises(Retry, match="StoreChanged"):
        await cache(root).get(store, WHERE, "")
    assert models(root) == []

    entry = await cache(root).get(store, WHERE, "")
    assert {path.name: path.read_bytes() for path in entry.directory.glob("m.*")} == new
    close(entry)


@pytest.mark.parametrize("sent", [b"pro", b"program and more"], ids=["short", "long"])
async def test_a_file_of_another_size_than_listed_is_never_served(root: Path, sent: bytes) -> None:
    class Odd(MemoryFiles):
        """Wrong once, as behind a proxy that hides it."""

        async def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
            self.reads.append((file.path, offset))
            yield (sent if len(self.reads) == 1 else self.files[file.path])[offset:]

    store = Odd(m_json=b"program")
    with pytest.raises(Retry, match=r"m.json has another size"):
        await cache(root).get(store, WHERE, "")
    assert models(root) == []

    entry = await cache(root).get(store, WHERE, "")
    assert (entry.directory / "m.json").read_bytes() == b"program"
    close(entry)


async def test_without_a_digest_a_changed_listing_is_another_model(root: Path) -> None:
    store = MemoryFiles(m_json=b"program")
    first = await cache(root).get(store, WHERE, "")
    store.files["m.json"] = b"PROGRAM"
    second = await cache(root).get(store, WHERE, "")

    assert first.directory != second.directory
    assert second.fetched
    assert (second.directory / "m.json").read_bytes() == b"PROGRAM"
    close(first, second)


async def test_where_a_store_gives_no_tags_the_time_of_the_change_counts(root: Path) -> None:
    class Untagged(MemoryFiles):
        day = 1

        async def list(self) -> Sequence[StoredFile]:
            return [StoredFile("m.json", 7, "", datetime(2026, 1, self.day, tzinfo=UTC))]

        async def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
            yield b"program"[offset:]

    store = Untagged()
    first, same = [await cache(root).get(store, WHERE, "") for _ in range(2)]
    store.day = 2
    changed = await cache(root).get(store, WHERE, "")

    assert [entry.fetched for entry in (first, same, changed)] == [True, False, True]
    close(first, same, changed)


@pytest.mark.parametrize("known", [True, False], ids=["digest", "no digest"])
@pytest.mark.parametrize("damage", ["changed", "missing", "link"])
async def test_a_model_damaged_in_the_cache_is_fetched_again(
    root: Path, tmp_path: Path, known: bool, damage: str
) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    digest = digest_of(store, tmp_path) if known else ""
    entry = await cache(root).get(store, WHERE, digest)
    close(entry)
    weights = entry.directory / "m.pdiparams"
    weights.unlink()
    if damage == "changed":
        weights.write_bytes(b"WEIGHTS")
    if damage == "link":
        weights.symlink_to("/proc/self/environ")

    again = await cache(root).get(store, WHERE, digest)

    assert again.fetched
    assert not weights.is_symlink()
    assert weights.read_bytes() == b"weights"
    close(again)


async def test_killed_while_it_removes_a_model_leaves_no_half_of_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"m_json": b"program", "m_pdiparams": b"weights"}
    old = await put(root, WHERE, **files)
    remove = shutil.rmtree

    def cut(path: Path, ignore_errors: bool = False) -> None:
        if not (path / "m.pdiparams").exists():
            return remove(path, ignore_errors=ignore_errors)
        (path / "m.pdiparams").unlink()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(Killed):
            await cache(root, limit=10).get(MemoryFiles(m_json=b"new"), "s3://b/new", "")
    assert not old.directory.exists()

    again = await cache(root).get(MemoryFiles(**files), WHERE, "")
    assert (again.directory / "m.pdiparams").read_bytes() == b"weights"
    assert not list((root / ".trash").iterdir())
    close(again)


async def test_a_wrong_digest_keeps_nothing(root: Path) -> None:
    wrong = f"sha256:{'0' * 64}"

    with pytest.raises(ModelFault, match=f"expected {wrong}"):
        await cache(root).get(MemoryFiles(m_json=b"program"), WHERE, wrong)

    assert models(root) == []
    assert not partial(root)


async def test_hidden_files_are_left_out_and_an_empty_prefix_is_a_fault(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", _secret=b"x")

    entry = await cache(root).get(store, WHERE, "")

    assert store.reads == [("m.json", 0)]
    close(entry)
    with pytest.raises(ModelFault, match="holds no files"):
        await cache(root).get(MemoryFiles(_secret=b"x"), WHERE, "")


async def test_a_key_that_would_leave_the_cache_is_a_fault(root: Path) -> None:
    store = MemoryFiles(m_json=b"program")
    store.files["../escape"] = b"x"

    with pytest.raises(ModelFault, match="escape"):
        await cache(root).get(store, WHERE, "")

    assert not (root.parent / "escape").exists()


async def test_beyond_the_limit_the_oldest_that_nobody_serves_goes(root: Path) -> None:
    await put(root, "s3://b/old", m_json=b"old" * 100)
    served = await cache(root).get(MemoryFiles(m_json=b"served" * 100), "s3://b/served", "")

    new = await cache(root, limit=1000).get(MemoryFiles(m_json=b"new" * 100), "s3://b/new", "")

    assert models(root) == sorted([served.directory.name, new.directory.name])
    close(served, new)


async def test_room_is_made_before_a_model_is_fetched(root: Path) -> None:
    old = await put(root, "s3://b/old", m_json=b"old" * 100)
    store = MemoryFiles(m_json=b"new" * 100)
    there: list[bool] = []
    store.before_read = lambda: there.append(old.directory.exists())

    close(await cache(root, limit=500).get(store, WHERE, ""))

    assert there == [False]


async def test_room_is_made_on_a_disk_that_is_full_below_the_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written until there is room."""
    await put(root, "s3://b/old", m_json=b"old" * 100)
    written: list[Path] = []

    def full(_: Path) -> DiskUsage:
        written.extend(partial(root))
        return DiskUsage(1000, 1000, 0)

    monkeypatch.setattr(shutil, "disk_usage", full)
    new = await cache(root).get(MemoryFiles(m_json=b"new"), WHERE, "")

    assert models(root) == [new.directory.name]
    assert not written
    close(new)


async def test_a_full_disk_is_left_as_it_was_found(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")

    def full() -> None:
        if len(store.reads) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    store.before_read = full
    with pytest.raises(ModelFault, match="No space left on device: PADDLE_RUNTIME_CACHE_DIR"):
        await cache(root).get(store, WHERE, "")

    assert not partial(root)


async def leave_partial(root: Path, where: str) -> str:
    """Its name; it has 1001 bytes."""
    store = MemoryFiles(m_json=where.encode()[:10] * 100, m_pdiparams=b"weights")
    store.broken = 1
    before = set(partial(root)) if root.exists() else set()
    with pytest.raises(Unavailable):
        await cache(root).get(store, where, "")
    return next(path.name for path in partial(root) if path not in before)


async def test_a_partial_model_goes_first_unless_a_replica_fetches_it(root: Path) -> None:
    await leave_partial(root, "s3://b/given-up")
    fetched = await leave_partial(root, "s3://b/fetched")
    old = await put(root, "s3://b/old", m_json=b"old" * 100)

    with locked(root, f"{fetched}.fetch"):
        new = await cache(root, limit=2000).get(MemoryFiles(m_json=b"new" * 100), WHERE, "")

    assert [path.name for path in partial(root)] == [fetched]
    assert models(root) == sorted([old.directory.name, new.directory.name])
    close(new)


async def test_what_the_cache_did_not_make_is_left_alone(root: Path) -> None:
    foreign = [root / "datasets" / "big", root / "listing-notes" / "big", root / ".trash" / "mine" / "big"]
    for path in foreign:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 2000)

    close(await cache(root, limit=100).get(MemoryFiles(m_json=b"program"), WHERE, ""))

    assert all(path.exists() for path in foreign)


async def test_two_that_make_room_at_once_both_start(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one removes the model between our look at it and ours to remove it."""
    old = await put(root, "s3://b/old", m_json=b"old" * 100)

    def removed_meanwhile(_: Path) -> DiskUsage:
        old.directory.rename(root.parent / "removed")
        return DiskUsage(1000, 1000, 0)

    monkeypatch.setattr(shutil, "disk_usage", removed_meanwhile)
    new = await cache(root).get(MemoryFiles(m_json=b"new"), WHERE, "")

    assert models(root) == [new.directory.name]
    close(new)


async def test_a_model_that_cannot_be_removed_keeps_none_from_starting(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await put(root, "s3://b/old", m_json=b"old" * 100)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path == old.directory:
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    new = await cache(root, limit=100).get(MemoryFiles(m_json=b"new"), WHERE, "")

    assert models(root) == sorted([old.directory.name, new.directory.name])
    close(new)


async def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ModelFault, match="PADDLE_RUNTIME_CACHE_DIR"):
        await cache(tmp_path / "file").get(MemoryFiles(m_json=b"program"), WHERE, "")
