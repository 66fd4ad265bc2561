"""The data set as files below the mount point.

Every path is resolved inside it, by the kernel: pods that use the set may put links there at any time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from cache_runtime.beneath import opened_beneath
from cache_runtime.domain.model import Batch, File, FileStat, Obstacle
from cache_runtime.domain.paths import PATH_MAX, encode_path
from cache_runtime.listing import Walker
from cache_runtime.retrying import as_failure, described
from cache_runtime.threads import in_own_thread
from cache_runtime.walk import remove_leftovers
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

T = TypeVar("T")

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.ELOOP, errno.ENAMETOOLONG)
"""There is no such file in the data set."""
_STATS_AT_LEAST = 32
"""Files for which a thread is worth it."""


class Tree:
    """Reads the mounted tree; methods that are not coroutines block and belong in a thread.

    Coroutines raise Retry when the file system fails, and Permanent when it does for good.

    Args:
        own: inodes of the engine's own files.
    """

    def __init__(self, root: Path, own: range, threads: int) -> None:
        self._root, self._own, self._threads = root, own, threads

    def walker(self) -> Walker:
        """For `walk`; to be closed."""
        return Walker(os.fsencode(self._root), self._threads, self._own)

    def walk(self, walker: Walker, path: str, field: str) -> Iterator[File]:
        """The file, or all files below the directory, in one fixed order.

        Raises:
            Permanent: it does not exist, or a symbolic link leads out of the data set.
            OSError: the file system fails.
        """
        raw = path.encode()
        with self._opened(raw, os.O_PATH, field) as handle:
            found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode):
            yield File(encode_path(raw), found.st_size)
        elif stat.S_ISDIR(found.st_mode):
            yield from walker.files(raw)
        else:
            raise _not_found(raw, field)

    def lines(self, path: str, field: str) -> Iterator[bytes]:
        """The lines of a file that are not empty.

        Raises:
            Permanent: as `walk`, or a line is longer than any path.
            OSError: as `walk`.
        """
        raw = path.encode()
        # Without O_NONBLOCK the opening of a pipe would wait for somebody who writes into it.
        with self._opened(raw, os.O_RDONLY | os.O_NONBLOCK, field) as handle:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _not_found(raw, field)
            with os.fdopen(handle, "rb", closefd=False) as lines:
                yield from _lines(lines, f"of {path!r}", field)

    def file(self, path: bytes) -> File:
        """A file that does not exist gets size 0: the agent reports it by name."""
        found = self._stat(path, stat.S_ISREG)
        return File(encode_path(path), found.size if found else 0)

    async def next_batch(self, listing: Iterator[Batch]) -> Batch | None:
        """Of a blocking listing, in a thread; None at its end. Raises Retry when the file system fails."""
        return await in_own_thread(lambda: _next_batch(listing))

    async def stat(self, paths: Sequence[bytes]) -> list[FileStat | None]:
        """None for what is not a regular file. Several are looked up at once: each may be a question to a
        database."""
        size = max(_STATS_AT_LEAST, -(-len(paths) // self._threads))
        shares = [paths[start : start + size] for start in range(0, len(paths), size)]
        found = await asyncio.gather(*(_asked(partial(self._stat_all, each)) for each in shares))
        return [each for answers in found for each in answers]

    async def obstacles(self, paths: Sequence[bytes]) -> list[Obstacle | None]:
        """The obstacle of each file: a file in place of one of its directories, or a directory in its own
        place."""
        return await _asked(lambda: [self._obstacle(path) for path in paths])

    async def directories(self, paths: Sequence[bytes]) -> list[FileStat | None]:
        """None for what is no directory."""
        return await _asked(lambda: [self._stat(path, stat.S_ISDIR) for path in paths])

    async def make_directories(self, paths: Sequence[bytes], field: str) -> list[str]:
        """Create directories with their parents; gives why each could not be made, "" for those made."""
        return await in_own_thread(lambda: [self._make_directories(path, field) for path in paths])

    async def remove_leftovers(self, paths: Sequence[bytes]) -> None:
        """Remove what copies of these files that were broken off have left beside them."""
        await _asked(lambda: self._remove_leftovers(paths))

    async def remove_files(self, paths: Sequence[bytes]) -> None:
        """Remove regular files; what is none, or not there, stays as it is."""
        await _asked(lambda: self._remove_files(paths))

    async def locate(self, path: bytes, field: str) -> Path:
        """The path of an entry whose parent is inside the data set; the entry itself is not followed.

        Raises:
            Permanent: a symbolic link leads out of the data set.
        """
        return await _asked(lambda: self._locate(path, field))

    async def is_own(self, path: bytes) -> bool | None:
        """Whether it is a file of the engine itself; None when there is no such entry, or a link on the way
        leads out of the data set."""
        return await _asked(lambda: self._is_own(path))

    def _locate(self, path: bytes, field: str) -> Path:
        parent, _, name = path.rpartition(b"/")
        try:
            with self._opened(parent, os.O_PATH | os.O_DIRECTORY, field) as handle:
                return Path(f"/proc/self/fd/{handle}").readlink() / os.fsdecode(name)
        except Permanent as error:
            if error.reason != "PathNotFound":
                raise
        return self._root / os.fsdecode(path)

    @contextmanager
    def _opened(self, path: bytes, flags: int, field: str) -> Iterator[int]:
        """Raises Permanent for what is not there, or outside."""
        try:
            with opened_beneath(os.fsencode(self._root), path, flags) as handle:
                yield handle
        except OSError as error:
            if error.errno == errno.EXDEV:
                text = f"{field}: {os.fsdecode(path)!r} leads out of the data set through a symbolic link"
                raise Permanent("InvalidPath", text) from error
            if error.errno in _ABSENT:
                raise _not_found(path, field) from error
            raise _named(error, path) from error

    def _lstat(self, path: bytes) -> os.stat_result | None:
        try:
            with opened_beneath(os.fsencode(self._root), path, os.O_PATH | os.O_NOFOLLOW) as handle:
                return os.fstat(handle)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise _named(error, path) from error

    def _stat_all(self, paths: Sequence[bytes]) -> list[FileStat | None]:
        return [self._stat(path, stat.S_ISREG) for path in paths]

    def _stat(self, path: bytes, is_wanted: Callable[[int], bool]) -> FileStat | None:
        found = self._lstat(path)
        if found is None or not is_wanted(found.st_mode):
            return None
        return FileStat(found.st_ino, found.st_size, found.st_ctime)

    def _obstacle(self, path: bytes) -> Obstacle | None:
        """Files and directories of the engine itself are none."""
        parts = path.split(b"/")
        above = (b"/".join(parts[:depth]) for depth in range(1, len(parts)))
        if name := next((each for each in above if self._is_users(each, stat.S_ISREG)), None):
            return Obstacle(name, is_directory=False)
        return Obstacle(path, is_directory=True) if self._is_users(path, stat.S_ISDIR) else None

    def _is_users(self, path: bytes, is_wanted: Callable[[int], bool]) -> bool:
        found = self._stat(path, is_wanted)
        return found is not None and found.inode not in self._own

    def _is_own(self, path: bytes) -> bool | None:
        found = self._lstat(path)
        return None if found is None else found.st_ino in self._own

    def _remove_leftovers(self, paths: Sequence[bytes]) -> None:
        names = defaultdict[bytes, list[bytes]](list)
        for path in paths:
            directory, _, name = path.rpartition(b"/")
            names[directory].append(name)
        for directory, copied in names.items():
            try:
                remove_leftovers(os.fsencode(self._root), directory, copied)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _named(error, directory) from error

    def _remove_files(self, paths: Sequence[bytes]) -> None:
        for path in paths:
            above, _, name = path.rpartition(b"/")
            if self._stat(path, stat.S_ISREG) is None:
                continue
            try:
                with opened_beneath(os.fsencode(self._root), above, os.O_PATH | os.O_DIRECTORY) as handle:
                    os.unlink(name, dir_fd=handle)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _named(error, path) from error

    def _make_directories(self, path: bytes, field: str) -> str:
        names = [name for name in path.split(b"/") if name]
        try:
            for count, name in enumerate(names):
                self._make_directory(b"/".join(names[:count]), name, field)
        except OSError as error:
            return as_failure(error).message
        except Permanent as error:
            return error.message
        return ""

    def _make_directory(self, above: bytes, name: bytes, field: str) -> None:
        """In the one above, which is open meanwhile."""
        opened = self._opened(above, os.O_PATH | os.O_DIRECTORY, field)
        with opened as handle, suppress(FileExistsError):
            os.mkdir(name, dir_fd=handle)


def _next_batch(listing: Iterator[Batch]) -> Batch | None:
    try:
        return next(listing, None)
    except OSError as error:
        raise Retry(Reason.LISTING_FAILED, described(error)) from error


async def _asked(call: Callable[[], T]) -> T:
    """In a thread. Raises Retry, or Permanent, when the file system fails."""
    try:
        return await in_own_thread(call)
    except OSError as error:
        raise as_failure(error) from error


def _named(error: OSError, path: bytes) -> OSError:
    """What is asked of an open file names no path."""
    return OSError(error.errno, error.strerror, os.fsdecode(path) or ".")


def _lines(file: BinaryIO, where: str, field: str) -> Iterator[bytes]:
    """Never more than a path and its newline at once: a line may be as long as the file."""
    for number, line in enumerate(iter(lambda: file.readline(PATH_MAX + 2), b""), 1):
        name = line.rstrip(b"\n")
        if len(name) > PATH_MAX:
            text = f"line {number} {where} is longer than a path, which has {PATH_MAX} bytes at most"
            raise Permanent("InvalidPath", f"{field}: {text}; give one path a line")
        if name:
            yield name


def _not_found(path: bytes, field: str) -> Permanent:
    return Permanent("PathNotFound", f"{field}: {os.fsdecode(path)!r} does not exist in the data set")
