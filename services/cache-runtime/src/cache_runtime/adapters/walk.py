"""Walking the mounted tree: directories are read in parallel, files come out in one fixed order."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from cache_runtime.domain.control import INTERNAL_INODE
from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path


@dataclass
class _Scan:
    """One directory as read, names sorted bytewise."""

    files: list[tuple[bytes, int]] = field(default_factory=list)
    directories: list[bytes] = field(default_factory=list)


def walk(root: bytes, top: bytes, threads: int) -> Iterator[File]:
    """All regular files at or below `root/top`: a directory's files first, then its directories, sorted.

    Symbolic links are not followed and not given. What vanishes meanwhile is left out.

    Raises:
        OSError: the file system fails.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="walk") as pool:
        pending: list[tuple[bytes, Future[_Scan] | None]] = [(top, None)]
        while pending:
            _read_ahead(pool, root, pending, 2 * threads)
            path, future = pending.pop()
            assert future is not None
            scan = future.result()
            for name, size in scan.files:
                yield File(encode_path(join(path, name)), size)
            pending += [(join(path, name), None) for name in reversed(scan.directories)]


def stat_file(root: bytes, path: bytes) -> os.stat_result | None:
    """Of a regular file; None when there is none."""
    try:
        found = os.lstat(join(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _read_ahead(
    pool: ThreadPoolExecutor, root: bytes, pending: list[tuple[bytes, Future[_Scan] | None]], depth: int
) -> None:
    """Start reading those directories whose turn comes next."""
    for i in range(len(pending) - 1, max(-1, len(pending) - 1 - depth), -1):
        path, future = pending[i]
        if future is None:
            pending[i] = (path, pool.submit(_scan, join(root, path)))


def _scan(path: bytes) -> _Scan:
    result = _Scan()
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                _sort_in(result, entry)
    except FileNotFoundError:
        return _Scan()
    result.files.sort()
    result.directories.sort()
    return result


def _sort_in(result: _Scan, entry: os.DirEntry[bytes]) -> None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if found.st_ino >= INTERNAL_INODE:
        return
    if stat.S_ISDIR(found.st_mode):
        result.directories.append(entry.name)
    elif stat.S_ISREG(found.st_mode):
        result.files.append((entry.name, found.st_size))


def join(path: bytes, name: bytes) -> bytes:
    """Like os.path.join, but an absolute name cannot replace the path."""
    return path + b"/" + name if path else name
