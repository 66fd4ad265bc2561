"""The cache of models on a disk, with a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from paddle_runtime.cache import Entry, ModelCache, directory_digest
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.ports import StoredFile
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Unavailable

WHERE = "s3://bucket/model"
GIB = 1 << 30


class MemoryFiles:
    """A store. `broken` makes the n-th read fail, counted from 0."""

    def __init__(self, **files: bytes) -> None:
        self.files = {name.replace("_", "."): content for name, content in files.items()}
        self.reads: list[str] = []
        self.broken = -1
        self.gate = asyncio.Event()
        self.gate.set()

    async def list(self) -> Sequence[StoredFile]:
        return [StoredFile(name, len(data), str(hash(data))) for name, data in self.files.items()]

    async def read(self, path: str) -> AsyncIterator[bytes]:
        self.reads.append(path)
        await self.gate.wait()
        yield self.files[path][:1]
        if len(self.reads) - 1 == self.broken:
            raise Unavailable("StoreUnavailable", "cut")
        yield self.files[path][1:]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def cache(root: Path, limit: int = GIB) -> ModelCache:
    return ModelCache(root, limit, SystemClock())


def models(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


async def digest_of(store: MemoryFiles, tmp_path: Path) -> str:
    folder = tmp_path / "as-digest"
    folder.mkdir()
    for name, content in store.files.items():
        (folder / name).write_bytes(content)
    return directory_digest(folder)


async def test_a_model_is_fetched_once_and_named_by_its_digest(root: Path, tmp_path: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    digest = await digest_of(store, tmp_path)

    first = await cache(root).get(store, WHERE, digest)
    again = await cache(root).get(store, WHERE, digest)

    assert (first.fetched, again.fetched) == (True, False)
    assert models(root) == [digest.replace(":", "-")]
    assert (first.directory / "m.pdiparams").read_bytes() == b"weights"
    assert len(store.reads) == 2
    close(first, again)


async def test_two_that_start_together_fetch_it_once(root: Path, tmp_path: Path) -> None:
    store = MemoryFiles(m_json=b"program")
    digest = await digest_of(store, tmp_path)
    store.gate.clear()

    both = [asyncio.create_task(cache(root).get(store, WHERE, digest)) for _ in range(2)]
    while not store.reads:
        await asyncio.sleep(0)
    store.gate.set()
    entries = await asyncio.gather(*both)

    assert sorted(entry.fetched for entry in entries) == [False, True]
    assert store.reads == ["m.json"]
    close(*entries)


async def test_a_cut_download_leaves_nothing_that_is_served(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", m_pdiparams=b"weights")
    store.broken = 1

    with pytest.raises(Unavailable):
        await cache(root).get(store, WHERE, "")
    assert models(root) == []

    entry = await cache(root).get(store, WHERE, "")
    assert (entry.directory / "m.pdiparams").read_bytes() == b"weights"
    assert not list((root / ".partial").iterdir())
    close(entry)


async def test_without_a_digest_a_changed_listing_is_another_model(root: Path) -> None:
    store = MemoryFiles(m_json=b"program")
    first = await cache(root).get(store, WHERE, "")
    store.files["m.json"] = b"changed"
    second = await cache(root).get(store, WHERE, "")

    assert first.directory != second.directory
    assert second.fetched
    assert (second.directory / "m.json").read_bytes() == b"changed"
    close(first, second)


async def test_a_wrong_digest_keeps_nothing(root: Path) -> None:
    wrong = f"sha256:{'0' * 64}"

    with pytest.raises(ModelFault, match=f"expected {wrong}"):
        await cache(root).get(MemoryFiles(m_json=b"program"), WHERE, wrong)

    assert models(root) == []
    assert not list((root / ".partial").iterdir())


async def test_hidden_files_are_left_out_and_an_empty_prefix_is_a_fault(root: Path) -> None:
    store = MemoryFiles(m_json=b"program", _secret=b"x")

    entry = await cache(root).get(store, WHERE, "")

    assert store.reads == ["m.json"]
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
    old = await cache(root).get(MemoryFiles(m_json=b"old" * 100), "s3://b/old", "")
    served = await cache(root).get(MemoryFiles(m_json=b"served" * 100), "s3://b/served", "")
    close(old)

    new = await cache(root, limit=1000).get(MemoryFiles(m_json=b"new" * 100), "s3://b/new", "")

    assert models(root) == sorted([served.directory.name, new.directory.name])
    close(served, new)


async def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ModelFault, match="PADDLE_RUNTIME_CACHE_DIR"):
        await cache(tmp_path / "file").get(MemoryFiles(m_json=b"program"), WHERE, "")


def close(*entries: Entry) -> None:
    for entry in entries:
        entry.lock.close()
