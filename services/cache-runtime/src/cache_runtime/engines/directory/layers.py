"""One level of the cache on this node: a directory in which copies have their names, and the room in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from cache_runtime.engines.directory.copying import CopyError, remove
from cache_runtime.engines.directory.entries import entries
from cache_runtime.retrying import described
from cache_runtime.walk import is_leftover

log = structlog.get_logger(__name__)


class Layer:
    """Methods block.

    Args:
        directory: of the cache.
        limit: bytes that it may hold.
        free_ratio: share of its disk that stays free.
        numbered: directories of its level in which older releases have placed copies.
    """

    def __init__(self, directory: str, limit: int, free_ratio: float, numbered: Sequence[str] = ()) -> None:
        self.directory, self._limit, self._free_ratio = directory, limit, free_ratio
        self._numbered = list(numbered)
        self.path = b""
        self.changing = threading.Lock()
        """Held while something in it is replaced, changed or removed: its disk may hang then."""
        self.is_sound = False
        """All that is in it has been compared with the data set, and its disk is well."""
        self.used = self.changes = 0
        """Bytes of copies, and how often that has changed."""
        self._lock, self._promised, self._free = threading.Lock(), 0, 0
        self._is_clean = False
        self.steps = 0
        """Of comparisons: whether one goes on is told by others that follow."""

    def use(self, volume_id: str) -> None:
        """For copies of this volume."""
        self.path, self.is_sound = os.fsencode(f"{self.directory}/{volume_id}/raw"), False

    def prepare(self) -> None:
        """Make the directory: its disk may be another one by now, with nothing on it. Once also remove what
        a process that was killed has left of copies: later that would be what is being copied. Raises
        OSError.
        """
        Path(os.fsdecode(self.path)).mkdir(parents=True, exist_ok=True)
        if not self._is_clean:
            for entry in entries(self.path, with_leftovers=True):
                self.steps += 1
                if entry.is_file and is_leftover(entry.key.rpartition(b"/")[2]):
                    remove(self.path, entry.key)
        self._is_clean = True

    def remove_numbered(self) -> None:
        """What an older release has placed elsewhere, as far as it can be removed. Nobody waits for that: it
        may be millions of files, and nobody uses them."""
        below = os.path.relpath(self.path, os.fsencode(self.directory))
        while self._numbered:
            directory = self._numbered.pop()
            try:
                remove(os.fsencode(directory), below)
            except OSError as error:
                log.warning("copies of an older release stay", directory=directory, problem=described(error))

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """For a copy of that size, from its begin: others are made at the same time. Raises CopyError when it
        does not fit, or OSError."""
        available = self._available()
        with self._lock:
            if not self._promised:
                self._free = available  # of a file that is half written, the disk knows half
            if size > min(available, self._free, self._limit - self.used - self._promised):
                raise CopyError("the cache is full")
            self._promised, self._free = self._promised + size, self._free - size
        grown = 0
        try:
            yield
            grown = size
        finally:
            with self._lock:
                self._promised, self._free = self._promised - size, self._free + size - grown
                self._grow(grown)

    def shrink(self, size: int) -> None:
        """Copies were removed."""
        with self._lock:
            self._grow(-size)

    def settle(self, counted: int, changes: int) -> None:
        """What was counted is what is there, unless copies were made or removed meanwhile.

        Args:
            changes: when the counting began.
        """
        with self._lock:
            if not self.is_sound or (changes == self.changes and not self._promised):
                self.used = counted

    def _grow(self, size: int) -> None:
        self.used, self.changes = max(0, self.used + size), self.changes + 1

    def _available(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize - int(self._free_ratio * disk.f_blocks * disk.f_frsize)


def layers_of(directories: Sequence[str], limit: int, free_ratio: float) -> list[Layer]:
    """For each directory, which have equal shares of the limit, the layer of its level.

    Those of a large level are numbered in the level's own, for clients that know one size only: a file that
    is larger than a share has room in the level.
    """
    owns = [_own(directory, directories) for directory in directories]
    layers = {
        own: Layer(own, limit * owns.count(own) // len(directories), free_ratio, _numbered(own, directories))
        for own in dict.fromkeys(owns)
    }
    return [layers[own] for own in owns]


def _own(directory: str, directories: Sequence[str]) -> str:
    above, _, name = directory.rpartition("/")
    return above if name.isdecimal() and above in directories else directory


def _numbered(own: str, directories: Sequence[str]) -> list[str]:
    return [each for each in directories if each != own and _own(each, directories) == own]
