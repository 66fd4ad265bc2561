"""The data set in its shared directory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cache_runtime.domain.model import TreeSize
from cache_runtime.domain.own_files import OwnFiles
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.copying import remove
from cache_runtime.engines.directory.entries import entries
from cache_runtime.engines.directory.mount import DirectoryMount
from cache_runtime.engines.directory.shared import MARKER, SharedDirectory
from cache_runtime.threads import in_own_thread, in_own_thread_until
from paddlewheel.core.errors import Retry


class DirectoryVolume:
    """Implements `Volume`."""

    def __init__(self, mount: DirectoryMount, shared: SharedDirectory, copies: Copies) -> None:
        self._mount, self._shared, self._copies = mount, shared, copies

    def own_files(self) -> OwnFiles:
        return self._shared.own_files

    async def remove(self, path: Path) -> str:
        """The copies of other nodes go with their next sweep."""
        stop = threading.Event()
        try:
            async with self._shared.kept_open():
                await in_own_thread_until(stop, lambda: self._remove(path, stop))
        except OSError as error:
            return error.strerror or str(error)
        await self._mount.refresh()
        return ""

    async def size(self) -> TreeSize:
        try:
            return await in_own_thread(self._size)
        except OSError as error:
            raise Retry("MountLost", f"{self._shared.address}: {error.strerror}") from error

    def _remove(self, path: Path, stop: threading.Event) -> None:
        """The path is one that `Tree.locate` has found, with links resolved, or one below `Mount.path`.
        Raises Retry when the data set is in another directory by now, or OSError."""
        tops = (self._shared.path.resolve(), self._shared.path)
        top = next((top for top in tops if path.is_relative_to(top)), None)
        if top is None:
            raise self._shared.has_gone()
        below = os.fsencode(path.relative_to(top))
        remove(self._shared.root, below, stop)
        self._copies.drop(below)

    def _size(self) -> TreeSize:
        files = size = 0
        for entry in entries(self._shared.root):
            if entry.is_file and entry.key != MARKER:
                files, size = files + 1, size + entry.found.st_size
        return TreeSize(files, size)
