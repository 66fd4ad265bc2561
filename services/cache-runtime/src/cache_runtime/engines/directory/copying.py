"""Copying and removing files below a directory: whole or not at all, and no link is followed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from cache_runtime.beneath import opened_beneath
from cache_runtime.walk import temporary_name

_BLOCK = 1 << 20
_KEEPS_NAMES = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EINVAL, errno.EACCES)
"""Somebody has removed the directory, or put a link in its place; or its file system knows no such call, or
refuses to have it read: NFS servers may, and keep names by themselves."""
_HERE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


class CopyError(Exception):
    """Why a file is not copied."""


@dataclass(frozen=True)
class Place:
    """A file below a root."""

    root: bytes
    path: bytes


@dataclass(frozen=True)
class Manner:
    """How a file is copied.

    Args:
        keeps_owner: with its owner and permissions.
        replacing: entered while it takes the place of an older one.
    """

    keeps_owner: bool = False
    replacing: AbstractContextManager[object] = field(default_factory=nullcontext)


_PLAIN = Manner()


class Pace:
    """At most so many Mbit per second (0 = no limit) over all threads, until `stop`."""

    def __init__(self, mbps: int = 0) -> None:
        self.stop = threading.Event()
        self._mbps, self._lock, self._free_at = mbps, threading.Lock(), 0.0

    def check(self) -> None:
        """Raises CopyError after `stop`."""
        if self.stop.is_set():
            raise CopyError("cancelled")

    def spend(self, count: int) -> None:
        """Wait for the turn of so many bytes. Raises CopyError after `stop`."""
        pause = 0.0
        if self._mbps:
            with self._lock:
                now = time.monotonic()
                pause = max(0.0, self._free_at - now)
                self._free_at = max(now, self._free_at) + count * 8 / (self._mbps * 1e6)
        if self.stop.wait(pause):
            raise CopyError("cancelled")


@contextmanager
def opened_file(place: Place) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor of a regular file. Raises CopyError or OSError."""
    # Without O_NONBLOCK the opening of a pipe would wait for somebody who writes into it.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with opened_beneath(place.root, place.path, flags) as handle:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise CopyError("is no regular file")
        yield handle, found


def copy_file(source: int, found: os.stat_result, target: Place, pace: Pace, manner: Manner = _PLAIN) -> None:
    """Copy an open file with its time of modification. Others see the old file, or the new one.

    Args:
        found: its state before; one that changes meanwhile is not copied.
        target: its directory exists.

    Raises:
        CopyError: the source changed, or `pace` was stopped.
        OSError: it cannot be read, or the target not be written.
    """
    above, _, name = target.path.rpartition(b"/")
    with (
        opened_beneath(target.root, above, _HERE) as directory,
        _new_file(directory, name) as (writer, temporary),
    ):
        _copy_content(source, writer, pace)
        if _state(os.fstat(source)) != _state(found):
            raise CopyError("changed while it was copied")
        if manner.keeps_owner:
            os.fchown(writer, found.st_uid, found.st_gid)
            os.fchmod(writer, stat.S_IMODE(found.st_mode))
        os.utime(writer, ns=(found.st_atime_ns, found.st_mtime_ns))
        # Else a crash could leave a file of the right size and time with other content.
        os.fsync(writer)
        with manner.replacing:
            pace.check()  # writing to the disk may have taken long
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def keep_names(root: bytes, directory: bytes) -> None:
    """Have on disk which names are in a directory: a crash may take those of files that were written safely.
    Raises OSError."""
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with opened_beneath(root, directory, flags) as handle:
            os.fsync(handle)
    except OSError as error:
        if error.errno not in _KEEPS_NAMES:
            raise


def make_directories(root: bytes, path: bytes) -> None:
    """With its parents, each in the one before that is open. Raises OSError."""
    names = path.split(b"/") if path else []
    for count, name in enumerate(names):
        with (
            opened_beneath(root, b"/".join(names[:count]), _HERE) as handle,
            suppress(FileExistsError),
        ):
            os.mkdir(name, 0o755, dir_fd=handle)


def remove(root: bytes, path: bytes, stop: threading.Event | None = None) -> None:
    """With all that is in it, until `stop`. What is gone already is no error. Raises OSError: ECANCELED after
    `stop`."""
    above, _, name = path.rpartition(b"/")
    with suppress(FileNotFoundError), opened_beneath(root, above, _HERE) as handle:
        if not stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=handle)
            return
        try:
            _remove_directory(os.fsdecode(name), handle, stop or threading.Event())
        except RecursionError as error:
            raise OSError(errno.ELOOP, "too many directories in each other", os.fsdecode(name)) from error


def _remove_directory(name: str, above: int, stop: threading.Event) -> None:
    """As `shutil.rmtree`, which nobody can stop."""
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        with os.scandir(handle) as found:
            listed = list(found)
        for entry in listed:
            if stop.is_set():
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED), name)
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    _remove_directory(entry.name, handle, stop)
                else:
                    os.unlink(entry.name, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=above)


def remove_empty(root: bytes, path: bytes) -> None:
    """A directory, unless there is something in it. Raises OSError."""
    above, _, name = path.rpartition(b"/")
    with suppress(FileNotFoundError), opened_beneath(root, above, _HERE) as handle:
        try:
            os.rmdir(name, dir_fd=handle)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


@contextmanager
def _new_file(directory: int, final: bytes) -> Iterator[tuple[int, bytes]]:
    """Is gone afterwards unless it was renamed; listings leave its name out.

    Args:
        final: the name that it is to get.
    """
    name = temporary_name(final, secrets.randbits(63))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o644, dir_fd=directory)
    try:
        yield handle, name
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _copy_content(source: int, target: int, pace: Pace) -> None:
    while block := os.read(source, _BLOCK):
        pace.spend(len(block))
        while block:
            block = block[os.write(target, block) :]


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
