"""By what a mounted client is probed: a file of its own, which it answers for itself.

A path would be looked up in the database: while that is down, a file system that only waits for it would be
taken for dead. And the file is only referred to (O_PATH), not opened: closing an open file asks the client,
also in each process that is forked from this one. With a client that is silent, both would stand still.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from paddlewheel.core.errors import Retry

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_EMPTY_PATH, _AT_STATX_FORCE_SYNC = 0x1000, 0x2000
_STATX_BASIC_STATS = 0x7FF
_STATX_BYTES = 256


class Heart:
    """Of one mounted client."""

    def __init__(self, handle: int, device: str) -> None:
        self._handle, self.device = handle, device

    @classmethod
    def of(cls, mount: Path) -> Heart:
        """Of the client that is mounted there. Blocks. Raises Retry."""
        try:
            handle = os.open(mount / ".stats", os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise Retry("MountFailed", f"{mount}: {error.strerror}") from error
        device = os.fstat(handle).st_dev
        return cls(handle, f"{os.major(device)}:{os.minor(device)}")

    def beat(self) -> None:
        """Blocks until the client answers; what the kernel remembers does not count. Raises OSError when it
        has ended."""
        found, flags = ctypes.create_string_buffer(_STATX_BYTES), _AT_EMPTY_PATH | _AT_STATX_FORCE_SYNC
        if _LIBC.statx(self._handle, b"", flags, _STATX_BASIC_STATS, found):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        """Asks nobody."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        """Of one that was found when nobody waited for it any more."""
        self.close()
