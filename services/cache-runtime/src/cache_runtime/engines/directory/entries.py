"""What is in a directory, link or not; whoever writes into it meanwhile, nothing outside is read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from cache_runtime.beneath import opened_beneath
from cache_runtime.walk import is_leftover

_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


class Entry(NamedTuple):
    """One entry. The key of a directory ends with `/`."""

    key: bytes
    found: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.found.st_mode)


def entries(root: bytes, top: bytes = b"", *, with_leftovers: bool = False) -> Iterator[Entry]:
    """All entries below `root/top`, in the order of their keys; keys are relative to `root/top`.

    Directories that vanish meanwhile are left out, and else also what interrupted copies have left.

    Raises:
        OSError: the file system fails.
    """
    pending = _scan(root, top, b"", with_leftovers)
    while pending:
        entry = pending.pop()
        yield entry
        if entry.is_directory:
            pending += _scan(root, top, entry.key, with_leftovers)


def look_up(root: bytes, path: bytes) -> os.stat_result | None:
    """Of an entry that is no link and not behind one, None when there is none. Raises OSError."""
    try:
        with opened_beneath(root, path, os.O_PATH | os.O_NOFOLLOW) as handle:
            return os.fstat(handle)
    except OSError as error:
        if error.errno in _VANISHED:
            return None
        raise


def _scan(root: bytes, top: bytes, key: bytes, with_leftovers: bool) -> list[Entry]:
    """The last one first."""
    path = b"/".join(filter(None, (top, key.rstrip(b"/"))))
    try:
        with (
            opened_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as handle,
            os.scandir(handle) as found,
        ):
            chosen = (each for each in found if with_leftovers or not is_leftover(os.fsencode(each.name)))
            listed = [_entry(key, entry) for entry in chosen]
    except OSError as error:
        if key and error.errno in _VANISHED:
            return []
        raise
    return sorted((entry for entry in listed if entry is not None), reverse=True)


def _entry(above: bytes, entry: os.DirEntry[str]) -> Entry | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    end = b"/" if stat.S_ISDIR(found.st_mode) else b""
    return Entry(above + os.fsencode(entry.name) + end, found)
