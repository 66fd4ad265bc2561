"""The mount through which the client reads a lent directory, while the node's mounts change."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cache_runtime.local_sources import LocalSources
from paddlewheel.core.errors import Permanent

pytestmark = pytest.mark.long


@contextmanager
def mounted(path: Path) -> Iterator[None]:
    """A file system of its own, with one file, which tells its copies of what is mounted in it."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "shared", "tmpfs", path], check=True)
    try:
        (path / "inner").write_text("inner")
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Path]:
    """A lent directory that is a mount, as in the agent's pod."""
    root = tmp_path / "lent with space"
    with mounted(root):
        (root / "set" / "sub").mkdir(parents=True)
        (root / "set" / "file").write_text("file")
        (root / "other").mkdir()
        yield root


@pytest.fixture
async def sources(tmp_path: Path, lent: Path) -> AsyncIterator[LocalSources]:
    made = LocalSources([str(lent)], tmp_path / "state")
    try:
        yield made
    finally:
        await made.close()


async def read(sources: LocalSources, directory: Path) -> list[str]:
    located = await sources.locate(f"file://{directory}")
    assert located is not None
    return sorted(path.name for path in Path(located).iterdir())


def mounts_in(directory: Path) -> list[str]:
    """Those of this test: others mount as well."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


async def test_a_lent_directory_is_read_only_and_is_mounted_once(
    sources: LocalSources, lent: Path, tmp_path: Path
) -> None:
    assert await read(sources, lent / "set") == ["file", "sub"]
    mounts = mounts_in(tmp_path / "state")
    assert mounts
    located = await sources.locate(f"file://{lent}/set")
    assert located is not None
    assert mounts_in(tmp_path / "state") == mounts
    with pytest.raises(OSError, match="Read-only"):
        (Path(located) / "new").touch()


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("place", ["set/sub", "set"])
async def test_a_mount_in_the_source_or_on_the_way_to_it_is_refused_by_name(
    sources: LocalSources, lent: Path, place: str, is_before: bool
) -> None:
    """Its files would be missing from the listing, and delete-dst would delete them from the data set."""
    if not is_before:
        await read(sources, lent / "set")
    with mounted(lent / place):
        with pytest.raises(Permanent) as found:
            await sources.locate(f"file://{lent}/set")
        assert found.value.reason == "SourceNotAllowed"
        assert str(lent / place) in found.value.message
        assert await read(sources, lent / "other") == []
    assert await read(sources, lent / "set") == ["file", "sub"]


async def test_a_mount_that_is_lent_itself_is_a_source(tmp_path: Path, lent: Path) -> None:
    sources = LocalSources([str(lent), str(lent / "set")], tmp_path / "state")
    with mounted(lent / "set"):
        try:
            assert await read(sources, lent / "set") == ["inner"]
        finally:
            await sources.close()


async def test_a_lent_directory_that_is_mounted_anew_is_seen_anew(sources: LocalSources, lent: Path) -> None:
    with mounted(lent):
        assert await read(sources, lent) == ["inner"]
    assert await read(sources, lent) == ["inner", "other", "set"]


async def test_whoever_lists_a_directory_is_not_moved_to_what_is_mounted_there_meanwhile(
    sources: LocalSources, lent: Path
) -> None:
    """The rest of the listing would be missing, and delete-dst would delete it from the data set."""
    before = await sources.locate(f"file://{lent}")
    assert before is not None
    with mounted(lent):
        after = await sources.locate(f"file://{lent}")
        assert after is not None
        assert await sources.locate(f"file://{lent}") == after != before
        assert [path.name for path in Path(before, "set").glob("f*")] == ["file"]
        assert [path.name for path in Path(after).iterdir()] == ["inner"]


async def test_nothing_that_is_mounted_later_appears_in_the_view(sources: LocalSources, lent: Path) -> None:
    """There its links would be followed."""
    view = await sources.locate(f"file://{lent}")
    assert view is not None
    with mounted(lent / "set" / "sub"):
        assert not list(Path(view, "set", "sub").iterdir())


async def test_nothing_stays_mounted(tmp_path: Path, sources: LocalSources, lent: Path) -> None:
    await read(sources, lent)
    with mounted(lent):
        await read(sources, lent)
    await sources.close()
    assert mounts_in(tmp_path / "state") == []
