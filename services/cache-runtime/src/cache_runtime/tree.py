"""The data set as files below the mount point. Every path is resolved inside it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path

from cache_runtime.domain.model import File, FileStat
from cache_runtime.domain.paths import encode_path, join
from cache_runtime.walk import IsInternal, walk
from paddlewheel.core.errors import Permanent, Retry

BATCH = 1000


class Tree:
    """Reads the mounted tree; methods that are not coroutines block and belong in a thread."""

    def __init__(self, root: Path, is_internal: IsInternal, threads: int) -> None:
        self._root, self._is_internal, self._threads = root, is_internal, threads

    def walk(self, path: str, field: str) -> Iterator[File]:
        """The file, or all files below the directory, in one fixed order.

        Raises:
            Permanent: it does not exist, or a symbolic link leads out of the data set.
            OSError: the file system fails.
        """
        raw = path.encode()
        top = self.resolve(path, field)
        if found := self._stat(raw):
            yield File(encode_path(raw), found.size)
            return
        if not top.is_dir():
            raise Permanent("PathNotFound", f"{field}: {path!r} does not exist in the data set")
        yield from walk(os.fsencode(self._root), raw, self._threads, self._is_internal)

    def lines(self, path: str, field: str) -> Iterator[bytes]:
        """The lines of a file that are not empty. Raises as `walk`."""
        source = self.resolve(path, field)
        if not source.is_file():
            raise Permanent("PathNotFound", f"{field}: {path!r} does not exist in the data set")
        with source.open("rb") as lines:
            for line in lines:
                if name := line.rstrip(b"\n"):
                    yield name

    def file(self, path: bytes) -> File:
        """A file that does not exist gets size 0: the agent reports it by name."""
        found = self._stat(path)
        return File(encode_path(path), found.size if found else 0)

    async def batches(self, files: Iterator[File]) -> AsyncIterator[Sequence[File]]:
        """Run a blocking listing in a thread. Raises Retry when the file system fails."""
        while batch := await asyncio.to_thread(_next_batch, files):
            yield batch

    async def stat(self, paths: Sequence[bytes]) -> list[FileStat | None]:
        """None for what is not a regular file."""
        return await asyncio.to_thread(lambda: [self._stat(path) for path in paths])

    async def are_directories(self, paths: Sequence[bytes]) -> list[bool]:
        """Whether each path is a directory."""
        return await asyncio.to_thread(lambda: [(self._root / os.fsdecode(path)).is_dir() for path in paths])

    async def make_directories(self, paths: Sequence[bytes], field: str) -> None:
        """Create directories with their parents. Raises Permanent for one outside the data set."""
        await asyncio.to_thread(self._make_directories, paths, field)

    async def locate(self, path: bytes, field: str) -> Path:
        """The path of an entry whose parent is inside the data set; the entry itself is not followed.

        Raises:
            Permanent: a symbolic link leads out of the data set.
        """
        named = Path(os.fsdecode(path))
        return await asyncio.to_thread(lambda: self.resolve(str(named.parent), field) / named.name)

    async def inode(self, path: Path) -> int | None:
        """None when there is no such entry."""
        return await asyncio.to_thread(_inode, path)

    def resolve(self, path: str, field: str) -> Path:
        """The real path, after symbolic links.

        Raises:
            Permanent: `InvalidPath`; it is outside the data set.
        """
        real, top = Path(os.path.realpath(self._root / path)), Path(os.path.realpath(self._root))
        if real == top or top in real.parents:
            return real
        text = f"{field}: {path!r} leads out of the data set through a symbolic link"
        raise Permanent("InvalidPath", text)

    def _stat(self, path: bytes) -> FileStat | None:
        try:
            found = os.lstat(join(os.fsencode(self._root), path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(found.st_ino, found.st_size) if stat.S_ISREG(found.st_mode) else None

    def _make_directories(self, paths: Sequence[bytes], field: str) -> None:
        for path in paths:
            self.resolve(os.fsdecode(path), field).mkdir(parents=True, exist_ok=True)


def _next_batch(files: Iterator[File]) -> list[File]:
    try:
        return list(islice(files, BATCH))
    except OSError as error:
        raise Retry("ListingFailed", f"{error.strerror}: {error.filename!r}") from error


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
