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
from cache_runtime.engines.directory.layers import Layer, layers_of
from cache_runtime.engines.directory.standstill import Step
from cache_runtime.retrying import described
from paddlewheel.core.errors import Permanent, Retry

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Copies:
    """Methods block.

    Args:
        root: of the data set.
        limit: bytes over all directories, which have equal shares.
        free_ratio: share of their disks that stays free.
    """

    def __init__(self, root: bytes, directories: Sequence[str], limit: int, free_ratio: float) -> None:
        self._root = root
        self._lock = threading.Lock()
        """Of what is known of sweeps and layers. No disk is asked while it is held: one that hangs would keep
        all others."""
        self._directories = list(directories)
        self._placed = layers_of(directories, limit, free_ratio)
        """By the hash of a path."""
        self.layers = list(dict.fromkeys(self._placed))
        self._sweeps, self._swept = 0, ""
        self.problems: Mapping[str, OSError] = {}
        """As the last sweep has found them."""

    @property
    def step(self) -> Step:
        """At which the last sweep is, if it goes on."""
        return Step(self._swept, sum(layer.steps for layer in self.layers))

    @property
    def used(self) -> int:
        """Bytes of all copies for pods."""
        return sum(layer.used for layer in self.layers if layer.is_sound)

    @property
    def sound(self) -> list[bytes]:
        """The layers for pods. In the others a copy may be of what the file was once."""
        return [layer.path for layer in self.layers if layer.is_sound]

    def open(self, volume_id: str) -> None:
        """Use what earlier processes have left of this volume, once a sweep has compared it. Waits for no
        disk."""
        with self._lock:
            self._sweeps += 1
            for layer in self.layers:
                layer.use(volume_id)

    def has(self, path: bytes, found: os.stat_result) -> bool:
        """Whether there is a copy of the file as it was found in the data set. Raises OSError."""
        layer = self._layer(path)
        copy = look_up(layer.path, path) if layer.is_sound else None
        return copy is not None and _is_same(copy, found)

    def add(self, path: bytes, pace: Pace) -> None:
        """Copy a file, unless there is no room. Raises CopyError or OSError."""
        layer = self._layer(path)
        if not layer.is_sound:
            raise CopyError("its cache directory fails, or has not been compared with the data set")
        with opened_file(Place(self._root, path)) as (handle, found):
            self._make_way(layer, path, found, pace)
            with layer.room_for(found.st_size):
                self._make_directories(layer.path, path.rpartition(b"/")[0])
                manner = Manner(keeps_owner=True, replacing=layer.changing)
                copy_file(handle, found, Place(layer.path, path), pace, manner)

    def _make_way(self, layer: Layer, path: bytes, found: os.stat_result, pace: Pace) -> None:
        """A copy of what the file was needs room. One that another thread has just made goes on."""
        with layer.changing:
            pace.check()
            former = look_up(layer.path, path)
            if former is not None and not _is_same(former, found):
                _remove(layer, path)

    def drop(self, path: bytes) -> None:
        """Remove the copies of a file, or of all below a directory. Raises OSError."""
        for layer in self.layers:
            if layer.is_sound:
                _remove(layer, path)

    def clear(self, directories: Sequence[str]) -> Mapping[str, OSError]:
        """Remove all copies in these cache directories, as far as they can be removed. Returns and raises as
        `sweep`, of these directories. Raises Permanent for a part of a level: copies are in the level's own
        directory."""
        levels = dict(zip(self._directories, self._placed, strict=True))
        for directory in directories:
            if (level := levels[directory].directory) not in directories:
                text = f"clearOptions.paths: {directory!r} is a part of {level!r}: clear that, or all"
                raise Permanent("InvalidPath", text)
        problems = list[tuple[str, OSError]]()
        for layer in self.layers:
            if layer.directory in directories:
                problems += [(layer.directory, problem) for problem in _clear(layer)]
        problems += [found for found in self.sweep().items() if found[0] in directories]
        return dict(reversed(problems))

    def remove_numbered(self) -> None:
        """What an older release has placed elsewhere, as far as it can be removed."""
        for layer in self.layers:
            layer.remove_numbered()

    def sweep(self) -> Mapping[str, OSError]:
        """Remove the copies of what has changed in the data set, or has gone. Where a copy or a disk fails,
        the others are swept nevertheless, and its layer is not `sound` until a sweep goes well. One that
        began before another, as on a file server that has gone, says nothing of the layers, and ends soon.

        Returns:
            The first problem of each cache directory that has one.

        Raises:
            Retry: the data set cannot be read.
        """
        with self._lock:
            self._sweeps = number = self._sweeps + 1
        problems = dict[str, OSError]()
        for layer in self.layers:
            with self._lock:
                if number == self._sweeps:
                    self._swept = layer.directory
            for problem in self._sweep(layer, number)[:1]:
                problems[layer.directory] = problem
        with self._lock:
            if number == self._sweeps:
                self.problems = problems
        return problems

    def _sweep(self, layer: Layer, number: int) -> list[OSError]:
        """What has failed."""
        left, changes, problems = 0, layer.changes, list[OSError]()
        with _noted(problems):
            with layer.changing:  # what a sweep before it has begun to change is part of what it compares
                pass
            if not layer.is_sound:
                layer.prepare()
            self._adopt(layer, b"", number)
            for entry in entries(layer.path):
                if number != self._sweeps:  # or a server that is slow would be asked by each of them
                    break
                layer.steps += 1
                with _noted(problems):
                    left += self._sweep_entry(layer, entry, number)
        with self._lock:
            if number == self._sweeps:
                if not problems:
                    layer.settle(left, changes)
                layer.is_sound = not problems
        return problems

    def _sweep_entry(self, layer: Layer, entry: Entry, number: int) -> int:
        """Bytes that are left."""
        path = entry.key.rstrip(b"/")
        if entry.is_directory:
            self._adopt(layer, path, number)
            return 0
        return self._keep(layer, path, number)

    def _keep(self, layer: Layer, path: bytes, number: int) -> int:
        """Bytes of the copy; 0 when it had to be removed."""
        copy, found = look_up(layer.path, path), self.find(path)
        if copy is not None and found is not None and _is_same(copy, found):
            return copy.st_size
        with layer.changing:  # not before: the file server may not answer
            now = look_up(layer.path, path)
            if now is not None and _state(now) != _state(copy):
                return now.st_size  # another one has taken its place
            self._remove_stale(layer, path, number)
        return 0

    def _remove_stale(self, layer: Layer, path: bytes, number: int) -> None:
        """Unless another sweep has begun: what a file server that has gone answers says nothing of copies of
        its successor's files."""
        if number == self._sweeps:
            _remove(layer, path)

    def _adopt(self, layer: Layer, path: bytes, number: int) -> None:
        """The owner and permissions that a directory has in the data set; without it, the copies go."""
        own, found = look_up(layer.path, path), self.find(path)
        if own is None:
            return
        if found is None or not stat.S_ISDIR(found.st_mode):
            with layer.changing:
                self._remove_stale(layer, path, number)
        elif (own.st_mode, own.st_uid, own.st_gid) != (found.st_mode, found.st_uid, found.st_gid):
            with (
                layer.changing,
                suppress(FileNotFoundError),
                opened_beneath(layer.path, path, _OPEN) as handle,
            ):
                if number == self._sweeps:  # as in `_remove_stale`
                    os.fchown(handle, found.st_uid, found.st_gid)
                    os.fchmod(handle, stat.S_IMODE(found.st_mode))

    def find(self, path: bytes) -> os.stat_result | None:
        """What the data set has there. Raises Retry: its file system is not a disk of this cache."""
        try:
            return look_up(self._root, path)
        except OSError as error:
            raise Retry("MountLost", f"the data set: {described(error)}") from error

    def _layer(self, path: bytes) -> Layer:
        return self._placed[zlib.crc32(path) % len(self._placed)]

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


def _clear(layer: Layer) -> list[OSError]:
    """What has failed."""
    problems = list[OSError]()
    with _noted(problems):
        for path in list(Path(os.fsdecode(layer.path)).iterdir()):
            with _noted(problems):
                _remove(layer, os.fsencode(path.name))
    return problems


def _remove(layer: Layer, path: bytes) -> None:
    """The copies of a file, or of all below a directory; the layer itself stays. Raises OSError."""
    if path and (found := look_up(layer.path, path)) is not None:
        size = _size(layer.path, path, found)
        remove(layer.path, path)
        layer.shrink(size)


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
