"""The copies of files that this node has in its cache directories, by their paths in the data set."""

from __future__ import annotations

import os
import stat
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cache_runtime.beneath import opened_beneath
from cache_runtime.engines.directory.copying import (
    CopyError,
    Manner,
    Pace,
    Place,
    copy_file,
    opened_file,
    remove,
)
from cache_runtime.engines.directory.entries import Entry, entries, look_up
from cache_runtime.retrying import described
from cache_runtime.walk import is_leftover
from paddlewheel.core.errors import Retry

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Copies:
    """Methods block.

    Args:
        root: of the data set.
        limit: bytes over all directories.
        free_ratio: share of their disks that stays free.
    """

    def __init__(self, root: bytes, directories: Sequence[str], limit: int, free_ratio: float) -> None:
        self._root, self._directories = root, list(directories)
        self._limit, self._free_ratio = limit, free_ratio
        self._lock, self.used = threading.Lock(), 0
        self.layers: list[bytes] = []
        """A directory in each cache directory, in which the copies have their names."""
        self._failing: frozenset[bytes] = frozenset()
        """Of them, those with a problem, and all until the first sweep."""

    @property
    def sound(self) -> list[bytes]:
        """The layers for pods. In the others a copy may be of what the file was once."""
        return [layer for layer in self.layers if layer not in self._failing]

    def open(self, volume_id: str) -> Mapping[str, OSError]:
        """Use what earlier processes have left of this volume. Returns and raises as `sweep`."""
        self.layers = [os.fsencode(f"{directory}/{volume_id}/raw") for directory in self._directories]
        self._failing = frozenset(self.layers)
        return self.sweep()

    def has(self, path: bytes, found: os.stat_result) -> bool:
        """Whether there is a copy of the file as it was found in the data set. Raises OSError."""
        layer = self._layer(path)
        copy = None if layer in self._failing else look_up(layer, path)
        return copy is not None and _is_same(copy, found)

    def add(self, path: bytes, pace: Pace) -> None:
        """Copy a file, unless there is no room. Raises CopyError or OSError."""
        layer = self._layer(path)
        if layer in self._failing:
            raise CopyError("its cache directory fails")
        with opened_file(Place(self._root, path)) as (handle, found):
            self._check_room(layer, found.st_size)
            self._make_directories(layer, path.rpartition(b"/")[0])
            former = look_up(layer, path)
            manner = Manner(keeps_owner=True, replacing=self._lock)
            copy_file(handle, found, Place(layer, path), pace, manner)
        with self._lock:
            self.used += found.st_size - (former.st_size if former is not None else 0)

    def drop(self, path: bytes) -> None:
        """Remove the copies of a file, or of all below a directory. Raises OSError."""
        for layer in self.sound:
            if (found := look_up(layer, path)) is not None:
                size = _size(layer, path, found)
                remove(layer, path)
                with self._lock:
                    self.used = max(0, self.used - size)

    def clear(self, directories: Sequence[str]) -> Mapping[str, OSError]:
        """Remove all copies in these cache directories, as far as they can be removed. Returns and raises as
        `sweep`, of these directories."""
        problems = list[tuple[str, OSError]]()
        for layer, directory in zip(self.layers, self._directories, strict=True):
            if directory in directories:
                problems += [(directory, problem) for problem in _clear(layer)]
        problems += [found for found in self.sweep().items() if found[0] in directories]
        return dict(reversed(problems))

    def sweep(self) -> Mapping[str, OSError]:
        """Remove the copies of what has changed in the data set, or has gone. Where a copy or a disk fails,
        the others are swept nevertheless, and its layer is not `sound` until a sweep goes well.

        Returns:
            The first problem of each cache directory that has one.

        Raises:
            Retry: the data set cannot be read.
        """
        used, problems = 0, dict[str, OSError]()
        by_directory = dict(zip(self._directories, self.layers, strict=True))
        for directory, layer in by_directory.items():
            left, found = self._sweep(layer)
            if found:
                problems[directory] = found[0]
            else:
                used += left
        with self._lock:
            self.used, self._failing = used, frozenset(by_directory[directory] for directory in problems)
        return problems

    def _sweep(self, layer: bytes) -> tuple[int, list[OSError]]:
        """Bytes that are left, and what has failed."""
        left, problems = 0, list[OSError]()
        with _noted(problems):
            if layer in self._failing:  # its disk may be another one by now, with nothing on it
                _prepare(layer)
            self._adopt(layer, b"")
            for entry in entries(layer):
                with _noted(problems):
                    left += self._sweep_entry(layer, entry)
        return left, problems

    def _sweep_entry(self, layer: bytes, entry: Entry) -> int:
        """Bytes that are left."""
        path = entry.key.rstrip(b"/")
        if entry.is_directory:
            self._adopt(layer, path)
            return 0
        return self._keep(layer, path)

    def _keep(self, layer: bytes, path: bytes) -> int:
        """Bytes of the copy; 0 when it had to be removed."""
        copy, found = look_up(layer, path), self._look_up(path)
        if copy is not None and found is not None and _is_same(copy, found):
            return copy.st_size
        with self._lock:  # not before: the file server may not answer
            now = look_up(layer, path)
            if now is not None and _state(now) != _state(copy):
                return now.st_size  # another one has taken its place
            remove(layer, path)
        return 0

    def _adopt(self, layer: bytes, path: bytes) -> None:
        """The owner and permissions that a directory has in the data set; without it, the copies go."""
        own, found = look_up(layer, path), self._look_up(path)
        if own is None:
            return
        if found is None or not stat.S_ISDIR(found.st_mode):
            remove(layer, path)
        elif (own.st_mode, own.st_uid, own.st_gid) != (found.st_mode, found.st_uid, found.st_gid):
            with suppress(FileNotFoundError), opened_beneath(layer, path, _OPEN) as handle:
                os.fchown(handle, found.st_uid, found.st_gid)
                os.fchmod(handle, stat.S_IMODE(found.st_mode))

    def _look_up(self, path: bytes) -> os.stat_result | None:
        """In the data set. Raises Retry: its file system is not a disk of this cache."""
        try:
            return look_up(self._root, path)
        except OSError as error:
            raise Retry("MountLost", f"the data set: {described(error)}") from error

    def _layer(self, path: bytes) -> bytes:
        return self.layers[zlib.crc32(path) % len(self.layers)]

    def _check_room(self, layer: bytes, size: int) -> None:
        disk = os.statvfs(layer)
        room = disk.f_bavail * disk.f_frsize - int(self._free_ratio * disk.f_blocks * disk.f_frsize)
        if size > min(room, self._limit - self.used):
            raise CopyError("the cache is full")

    def _make_directories(self, layer: bytes, path: bytes) -> None:
        """They hide those of the data set, so they have the same owner and permissions."""
        names = path.split(b"/") if path else []
        for count in range(1, len(names) + 1):
            above, name = b"/".join(names[: count - 1]), names[count - 1]
            found = look_up(self._root, b"/".join(names[:count]))
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise CopyError("vanished")
            with opened_beneath(layer, above, _OPEN) as handle, suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=handle)
                os.chown(name, found.st_uid, found.st_gid, dir_fd=handle, follow_symlinks=False)
                os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=handle)


@contextmanager
def _noted(problems: list[OSError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problems.append(error)


def _clear(layer: bytes) -> list[OSError]:
    """What has failed."""
    problems = list[OSError]()
    with _noted(problems):
        for path in list(_path(layer).iterdir()):
            with _noted(problems):
                remove(layer, os.fsencode(path.name))
    return problems


def _size(layer: bytes, path: bytes, found: os.stat_result) -> int:
    """Bytes of a file, or of all files below a directory."""
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    return sum(entry.found.st_size for entry in entries(layer, path) if not entry.is_directory)


def _is_same(copy: os.stat_result, found: os.stat_result) -> bool:
    """Whether one is a copy of the other as it is now, by what a copy takes over."""
    return _signature(copy) == _signature(found)


def _state(copy: os.stat_result | None) -> tuple[int, ...]:
    """Another one for each copy that takes its place."""
    return () if copy is None else (copy.st_dev, copy.st_ino, copy.st_ctime_ns)


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns


def _prepare(layer: bytes) -> None:
    """Make the directory, without what a process that was killed has left of copies. Raises OSError."""
    _path(layer).mkdir(parents=True, exist_ok=True)
    for path in list(_path(layer).rglob(".jfs.*.tmp.*")):
        if is_leftover(os.fsencode(path.name)):
            path.unlink(missing_ok=True)


def _path(layer: bytes) -> Path:
    return Path(os.fsdecode(layer))
