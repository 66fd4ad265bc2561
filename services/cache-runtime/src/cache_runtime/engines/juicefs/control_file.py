"""Talking to the mounted JuiceFS client through its `.control` file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from cache_runtime.domain.model import CacheReport, CacheUse, TreeSize
from cache_runtime.engines.juicefs.control import (
    ROOT_INODE,
    Answer,
    CacheAction,
    cache_report,
    cache_request,
    cache_use,
    info_request,
    parse_answer,
    tree_size,
)
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import CONTROL_FILE_POLL_INTERVAL_SECONDS, CONTROL_FILE_TIMEOUT_SECONDS
from paddlewheel.core.errors import Retry


class ControlFile:
    """The interface of the mounted client. Every method raises Retry when the mount is lost or hangs."""

    def __init__(self, mount_path: Path) -> None:
        self._path = mount_path / ".control"
        self._stats = mount_path / ".stats"

    async def warm(self, inodes: Sequence[int], threads: int) -> CacheReport:
        """Read every block of the files into the cache."""
        return cache_report(await self._ask(cache_request(CacheAction.WARM, inodes, threads)))

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        """Look up which bytes of the files are not in the cache."""
        return cache_report(await self._ask(cache_request(CacheAction.CHECK, inodes, threads)))

    async def evict(self, inodes: Sequence[int], threads: int) -> CacheReport:
        """Drop every block of the files from the cache."""
        return cache_report(await self._ask(cache_request(CacheAction.EVICT, inodes, threads)))

    async def tree_size(self) -> TreeSize:
        """Size of the whole file system, from JuiceFS's directory statistics."""
        return tree_size(await self._ask(info_request(ROOT_INODE)))

    async def cache_use(self) -> CacheUse:
        """How much is in this node's cache, and how much it is used."""
        try:
            return cache_use(await in_own_thread(self._stats.read_text))
        except OSError as error:
            raise Retry("MountLost", f"{self._stats}: {error.strerror}") from error

    async def _ask(self, request: bytes) -> Answer:
        stop = threading.Event()
        try:
            answer = await in_own_thread(lambda: self._exchange(request, stop))
        except OSError as error:
            raise Retry("MountLost", f"{self._path}: {error.strerror}") from error
        finally:
            stop.set()
        if answer.errno:
            raise Retry("CacheRefused", f"{self._path}: {os.strerror(answer.errno)}")
        return answer

    def _exchange(self, request: bytes, stop: threading.Event) -> Answer:
        """Closing the file cancels the work in the client."""
        handle = os.open(self._path, os.O_RDWR)
        try:
            os.write(handle, request)
            return _read_answer(handle, stop)
        finally:
            os.close(handle)


def _read_answer(handle: int, stop: threading.Event) -> Answer:
    buffer, deadline = b"", time.monotonic() + CONTROL_FILE_TIMEOUT_SECONDS
    while not stop.wait(CONTROL_FILE_POLL_INTERVAL_SECONDS):
        if data := os.read(handle, 1 << 17):
            buffer, deadline = (
                _without_old_frames(buffer + data),
                time.monotonic() + CONTROL_FILE_TIMEOUT_SECONDS,
            )
        if answer := parse_answer(buffer):
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(0, "the JuiceFS client does not answer")
    raise InterruptedError(0, "cancelled")


def _without_old_frames(buffer: bytes) -> bytes:
    """Drop whole progress frames, so that hours of progress cost no memory."""
    while len(buffer) >= 17 and buffer[0] == 0xFE:
        buffer = buffer[17:]
    return buffer
