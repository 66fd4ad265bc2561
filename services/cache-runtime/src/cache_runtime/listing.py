"""The files of a directory tree, walked by a process of its own (`walk.main`)."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, cast

from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path
from cache_runtime.frames import Frame, Kind

_PIPE = 1 << 20
"""Bytes that the process may be ahead of its reader, beside what it holds itself."""
_FILE = cast("Callable[[tuple[str, int]], File]", partial(tuple.__new__, File))
"""As `File._make`, in a third of the time: there are millions."""


def listed(root: bytes, top: bytes, threads: int, internal: range) -> Iterator[File]:
    """All regular files at or below `root/top`, as `walk.walk` has them.

    Blocks. An iterator that is given up ends the process.

    Raises:
        OSError: the file system fails, or the process was killed.
    """
    with _walking(root, top, threads, internal) as frames:
        yield from read_files(frames)


def read_files(frames: IO[bytes]) -> Iterator[File]:
    """Raises OSError."""
    while (frame := _next(frames)).kind is Kind.FILES:
        yield from _files(frame)
    if frame.kind is Kind.FAILED:
        number = int(frame.block)
        raise OSError(number, os.strerror(number), os.fsdecode(frame.path))


def _next(frames: IO[bytes]) -> Frame:
    try:
        return Frame.read(frames)
    except EOFError:
        raise OSError(errno.EPIPE, "the process that reads directories has ended") from None


def _files(frame: Frame) -> Iterator[File]:
    prefix = f"{encode_path(frame.path)}/" if frame.path else ""
    if frame.block.isascii() and b"%" not in frame.block:
        parts = frame.block.decode().split("\0")
    else:
        parts = [encode_path(part) for part in frame.block.split(b"\0")]
    return map(_FILE, zip(map(prefix.__add__, parts[::2]), map(int, parts[1::2]), strict=True))


@contextmanager
def _walking(root: bytes, top: bytes, threads: int, internal: range) -> Iterator[IO[bytes]]:
    """The output of the process. Of the environment, in which there are keys, it gets where modules are."""
    arguments = (root, top, str(threads), str(internal.start), str(internal.stop - 1))
    command = (sys.executable, "-P", "-m", "cache_runtime.walk", *arguments)
    modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=modules, process_group=0)
    assert process.stdout is not None
    try:
        with suppress(OSError):  # the user's pipes may have all that they may
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE)
        yield process.stdout
    finally:
        process.stdout.close()
        process.kill()
        # A system call on a file system that hangs holds it, and this may be where nothing may wait.
        threading.Thread(target=process.wait, name="walk-ended", daemon=True).start()
