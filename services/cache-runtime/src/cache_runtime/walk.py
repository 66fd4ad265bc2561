"""Walking a file system: directories are read in parallel, files are returned in one fixed order.

It is a program, too (`main`), and imports next to nothing: a listing runs in a process of its own, beside the
one that shares out what it finds. In one process the threads that read directories would wait for the
interpreter after each file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from cache_runtime.beneath import opened_beneath, opened_root, opened_within
from cache_runtime.domain.paths import join
from cache_runtime.frames import Frame, Kind

_LEFTOVER = re.compile(rb"\.jfs\.(.*)\.tmp\.[0-9]+", re.DOTALL)
_KEPT = 200
"""Bytes of a name that the name of its temporary file has."""
HELD = 200_000
"""Files of directories that were read ahead, above which only the next one is read: they are in memory."""
BLOCK = 4096
"""Files in one frame, at most."""


@dataclass
class _Scan:
    """One directory, names sorted bytewise."""

    files: list[bytes] = field(default_factory=list)
    """Name, NUL, size: a directory may have a million, and objects of these take three times the memory.
    They are sorted as the names are: no name has a NUL, and nothing is less."""
    directories: list[bytes] = field(default_factory=list)


def main(root: str, threads: str, first: str, last: str) -> None:
    """Answer each frame on standard input with those of a walk, until there are no more.

    Args:
        first, last: inodes from one to the other are the engine's own.
    """
    own = range(int(first), int(last) + 1)
    # Who has asked may be gone: nobody wants the rest.
    with suppress(BrokenPipeError), os.fdopen(1, "wb", buffering=1 << 18) as out, os.fdopen(0, "rb") as asked:
        while top := _asked(asked):
            write_walk(out, os.fsencode(root), top.path, int(threads), own)
            out.flush()


def _asked(stream: IO[bytes]) -> Frame | None:
    try:
        return Frame.read(stream)
    except EOFError:
        return None


def write_walk(out: IO[bytes], root: bytes, top: bytes, threads: int, own: range) -> None:
    """The last frame tells whether it is complete. Raises BrokenPipeError."""
    try:
        for frame in walk(root, top, threads, own, before_waiting=out.flush):
            frame.write(out)
    except BrokenPipeError:
        raise
    except OSError as error:
        Frame(Kind.FAILED, os.fsencode(error.filename or b"."), b"%d" % (error.errno or 0)).write(out)
    else:
        Frame(Kind.END).write(out)


def walk(
    root: bytes,
    top: bytes,
    threads: int,
    own: range,
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[Frame]:
    """All regular files at or below `root/top`: a directory's files first, then its directories, sorted.

    Symbolic links are neither followed nor returned, nor are files that vanish meanwhile, nor what
    interrupted copies have left.

    Args:
        own: inodes of files of the engine, which are not returned.
        before_waiting: called before a directory is waited for.

    Raises:
        OSError: the file system fails.
    """
    # Opened once: below a root that was unmounted meanwhile, everything would seem to have vanished.
    with opened_root(root) as handle, ThreadPoolExecutor(threads) as pool:

        def submit(path: bytes) -> Future[_Scan]:
            return pool.submit(_scan, handle, path, own)

        pending: list[tuple[bytes, Future[_Scan] | None]] = [(top, None)]
        try:
            while pending:
                _read_ahead(submit, pending, 2 * threads if _held(pending[-8 * threads :]) < HELD else 1)
                path, future = pending.pop()
                assert future is not None
                if not future.done():
                    before_waiting()
                scan = future.result()
                for start in range(0, len(scan.files), BLOCK):
                    yield Frame(Kind.FILES, path, b"\0".join(scan.files[start : start + BLOCK]))
                pending += [(join(path, name), None) for name in reversed(scan.directories)]
        finally:
            pool.shutdown(cancel_futures=True)


def _held(pending: list[tuple[bytes, Future[_Scan] | None]]) -> int:
    """Files that were read ahead."""
    read = (future for _, future in pending if future is not None and future.done())
    return sum(len(future.result().files) for future in read if future.exception() is None)


def _read_ahead(
    submit: Callable[[bytes], Future[_Scan]], pending: list[tuple[bytes, Future[_Scan] | None]], depth: int
) -> None:
    """Start reading the directories that come next."""
    for i in range(len(pending) - 1, max(-1, len(pending) - 1 - depth), -1):
        path, future = pending[i]
        if future is None:
            pending[i] = (path, submit(path))


def _scan(root: int, path: bytes, own: range) -> _Scan:
    """A directory that was replaced by a link that leads out has vanished."""
    result = _Scan()
    try:
        with (
            opened_within(root, path, os.O_RDONLY | os.O_DIRECTORY) as handle,
            os.scandir(handle) as entries,
        ):
            for entry in entries:
                _add(result, entry, own)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EXDEV):
            raise OSError(error.errno, error.strerror, os.fsdecode(path) or ".") from error
        return _Scan()
    result.files.sort()
    result.directories.sort()
    return result


def _add(result: _Scan, entry: os.DirEntry[str], own: range) -> None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if found.st_ino in own:
        return
    name = entry.name.encode("utf-8", "surrogateescape")
    if stat.S_ISREG(found.st_mode):
        if not is_leftover(name):
            result.files.append(b"%s\0%d" % (name, found.st_size))
    elif stat.S_ISDIR(found.st_mode):
        result.directories.append(name)


def is_leftover(name: bytes) -> bool:
    """What the client writes to before it renames; one that was killed leaves it behind."""
    return name.startswith(b".jfs.") and _LEFTOVER.fullmatch(name) is not None


def remove_leftovers(root: bytes, directory: bytes, names: Iterable[bytes]) -> None:
    """Remove what clients that were killed have left of these files, and of no others: another client may be
    writing them at this moment. One that writes a file whose name begins with the same `_KEPT` bytes fails
    with it once, and is tried again.

    Args:
        names: of files in the directory.

    Raises:
        OSError: the file system fails, or there is no such directory.
    """
    starts = {name[:_KEPT] for name in names}
    with opened_beneath(root, directory, os.O_RDONLY | os.O_DIRECTORY) as handle:
        with os.scandir(handle) as entries:
            found = [entry.name for entry in entries if _is_left_of(entry, starts)]
        for name in found:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)


def _is_left_of(entry: os.DirEntry[str], starts: Container[bytes]) -> bool:
    left = _LEFTOVER.fullmatch(os.fsencode(entry.name))
    return left is not None and left[1][:_KEPT] in starts and entry.is_file(follow_symlinks=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
