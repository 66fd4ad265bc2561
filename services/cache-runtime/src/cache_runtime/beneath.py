"""Opening files beneath a directory, whatever links there are and whoever changes them meanwhile.

Linux resolves the path itself (openat2, 5.6 or newer): no check can be outrun. Python has no function for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

_OPENAT2 = 437
"""The number of the system call, the same on every architecture."""
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_TRIES = 1000
_LIBC = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@contextmanager
def opened_beneath(root: bytes, path: bytes, flags: int) -> Iterator[int]:
    """A descriptor of `root/path`; links are followed only to what is beneath the root.

    Args:
        flags: as of `os.open`. O_CLOEXEC is added.

    Raises:
        OSError: EXDEV when a link, an absolute path or `..` leads out, EINVAL for a path with a NUL; else as
            `os.open`.
    """
    with opened_root(root) as top, opened_within(top, path, flags) as handle:
        yield handle


@contextmanager
def opened_root(root: bytes) -> Iterator[int]:
    """A descriptor for `opened_within`: of what is there now, whatever is mounted over it later.

    Raises:
        OSError: as `os.open`.
    """
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield top
    finally:
        os.close(top)


@contextmanager
def opened_within(top: int, path: bytes, flags: int) -> Iterator[int]:
    """As `opened_beneath`, below an open root."""
    if b"\0" in path:
        # The kernel would open what is before it.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(path))
    handle = _openat2(top, path or b".", flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _openat2(directory: int, path: bytes, flags: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _BENEATH)
    name = ctypes.c_char_p(path)
    for _ in range(_TRIES):
        handle = int(_LIBC.syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how)))
        if handle >= 0:
            return handle
        problem = ctypes.get_errno()
        # EAGAIN: something was renamed meanwhile, and the kernel cannot be sure.
        if problem not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(problem, os.strerror(problem), os.fsdecode(path))
