"""A directory tree is walked by a process of its own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cache_runtime
from cache_runtime.domain.model import File
from cache_runtime.domain.paths import decode_path
from cache_runtime.frames import Frame, Kind
from cache_runtime.listing import Walker, listed, read_files
from cache_runtime.walk import walk, write_walk
from paddlewheel.testkit.wait import eventually

NONE = range(0)
LONGER_THAN_A_PIPE = [f"{folder}/{'x' * 200}{number}" for folder in "ab" for number in range(1_000)]
"""Files whose listing does not fit into a pipe, so that its process waits for the reader."""
NAMES = st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes of walkers."""
    found, start = list[subprocess.Popen[bytes]](), Walker._start

    def noted(walker: Walker) -> subprocess.Popen[bytes]:
        found.append(start(walker))
        return found[-1]

    monkeypatch.setattr(Walker, "_start", noted)
    return found


def make(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)


def written(top: Path) -> BytesIO:
    """What the process writes, from this one."""
    out = BytesIO()
    write_walk(out, os.fsencode(top), b"", 2, NONE)
    return BytesIO(out.getvalue())


def paths(found: Iterator[File]) -> list[str]:
    return [file.path for file in found]


@given(NAMES, st.lists(st.tuples(NAMES, st.integers(0, 1 << 62)), min_size=1))
def test_names_of_any_bytes_are_read_as_written(path: bytes, files: list[tuple[bytes, int]]) -> None:
    stream = BytesIO()
    block = b"\0".join(b"%s\0%d" % entry for entry in files)
    for frame in (Frame(Kind.FILES, path, block), Frame(Kind.FILES, b"", block), Frame(Kind.END)):
        frame.write(stream)
    found = list(read_files(BytesIO(stream.getvalue())))
    assert [(decode_path(file.path), file.size) for file in found] == [
        (parent + name, size) for parent in (path + b"/", b"") for name, size in files
    ]


def test_directories_are_listed_in_a_fixed_order(tmp_path: Path) -> None:
    make(tmp_path, "b/a", "b/c/d", "a", "c", "b/b")
    assert paths(listed(os.fsencode(tmp_path), b"", 4, NONE)) == ["a", "c", "b/a", "b/b", "b/c/d"]
    assert paths(listed(os.fsencode(tmp_path), b"b", 4, NONE)) == ["b/a", "b/b", "b/c/d"]


def test_files_of_the_engine_are_not_listed(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    inode = (tmp_path / "a").stat().st_ino
    assert paths(listed(os.fsencode(tmp_path), b"", 1, range(inode, inode + 1))) == ["b"]


def test_a_directory_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path, "a", "d/b")
    scan = os.scandir

    def scandir(handle: int) -> object:
        return fail() if Path(f"/proc/self/fd/{handle}").readlink().name == "d" else scan(handle)

    monkeypatch.setattr("cache_runtime.walk.os.scandir", scandir)
    found = read_files(written(tmp_path))
    assert next(found).path == "a"
    with pytest.raises(OSError, match="Input/output error") as error:
        next(found)
    assert (error.value.errno, error.value.filename) == (errno.EIO, "d")


def fail() -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("part", [0, 5, -1])
def test_a_process_that_was_killed_has_not_listed_everything(tmp_path: Path, part: int) -> None:
    make(tmp_path, "a", "b/c")
    stream = written(tmp_path).getvalue()[:part]
    with pytest.raises(OSError, match="has ended"):
        list(read_files(BytesIO(stream)))


async def test_a_listing_that_is_given_up_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setenv("SECRET", "key")
    make(tmp_path, *LONGER_THAN_A_PIPE)
    found = listed(os.fsencode(tmp_path), b"", 1, NONE)
    next(found)
    [process] = started
    assert b"SECRET" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    del found
    await eventually(lambda: process.returncode is not None, what="the process ends")


def test_one_process_walks_directories_one_after_the_other(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    make(tmp_path, "a/b", "c/d")
    walker = Walker(os.fsencode(tmp_path), 1, NONE)
    found = [path for top in (b"c", b"a", b"none", b"c") for path in paths(walker.files(top))]
    walker.close()
    assert found == ["c/d", "a/b", "c/d"]
    assert len(started) == 1


def test_a_walker_that_is_closed_gives_an_error_to_whoever_waits(tmp_path: Path) -> None:
    make(tmp_path, *LONGER_THAN_A_PIPE)
    walker = Walker(os.fsencode(tmp_path), 1, NONE)
    found = walker.files(b"")
    next(found)
    walker.close()
    walker.close()
    with pytest.raises(OSError, match="has ended"):
        list(found)
    with pytest.raises(OSError, match="has ended"):
        walker.files(b"")


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(listed(os.fsencode(tmp_path / "none"), b"", 1, NONE))


def test_a_root_that_is_hidden_meanwhile_is_walked_to_its_end(tmp_path: Path) -> None:
    """Else what is left of it would seem to have vanished, and the listing to be complete."""
    top = tmp_path / "top"
    make(top, "a", "b/c")
    frames = walk(os.fsencode(top), b"", 1, NONE)
    assert next(frames).block == b"a\x001"
    top.rename(tmp_path / "other")
    top.mkdir()
    assert [frame.path for frame in frames] == [b"b"]


def test_modules_are_found_where_this_process_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it by the environment or otherwise."""
    make(tmp_path, "a")
    (tmp_path / "cache_runtime.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", str(Path(cache_runtime.__file__).parent.parent), *sys.path])
    monkeypatch.setattr("sys.executable", sys._base_executable)  # type: ignore[attr-defined] # has no packages
    assert paths(listed(os.fsencode(tmp_path), b"", 1, NONE)) == ["a", "cache_runtime.py"]


def test_a_large_flat_directory_is_listed_with_little_memory(tmp_path: Path) -> None:
    """A million files in one: some 100 MB, of which the client and the agent have others beside."""
    names = [f"part-{number:05}-of-20000.record" for number in range(20_000)]
    for name in names:
        (tmp_path / name).touch()
    tracemalloc.start()
    try:
        found = walk(os.fsencode(tmp_path), b"", 2, NONE)
        next(found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / len(names) < 130
    assert paths(listed(os.fsencode(tmp_path), b"", 2, NONE)) == names


def test_of_large_directories_only_the_next_one_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cache_runtime.walk.HELD", 1)
    names = [f"{folder}/{number}" for folder in "abcdef" for number in range(3)]
    make(tmp_path, *names)
    assert paths(read_files(written(tmp_path))) == names
