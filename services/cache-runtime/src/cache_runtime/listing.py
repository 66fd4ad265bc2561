"""The files of a directory tree, walked by a process of its own (`walk.main`)."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import IO, cast

from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path
from cache_runtime.frames import Frame, Kind

_PIPE = 1 << 20
"""Bytes that the process may be ahead of its reader, beside what it holds itself."""
_ENDED = "the process that reads directories has ended"
_FILE = cast("Callable[[tuple[str, int]], File]", partial(tuple.__new__, File))
"""As `File._make`, in a third of the time: there are millions."""


class Walker:
    """Walks directories below a root, one after the other, in a process that the first of them starts."""

    def __init__(self, root: bytes, threads: int, own: range) -> None:
        self._root, self._threads, self._own = root, threads, own
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Held while the process is started or killed."""

    def files(self, top: bytes) -> Iterator[File]:
        """All regular files at or below `root/top`, as `walk.walk` has them. Blocks.

        Raises:
            OSError: the file system fails, or the process was killed.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            Frame(Kind.WALK, top).write(process.stdin)
            process.stdin.flush()
        except ValueError:  # `close` closes the stream
            raise OSError(errno.EPIPE, _ENDED) from None
        return read_files(process.stdout)

    def close(self) -> None:
        """Idempotent, from any thread: whoever waits for files gets an error."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            # A system call on a file system that hangs holds it, and this may be where nothing may wait.
            threading.Thread(target=_reap, args=(process,), name="walk-ended", daemon=True).start()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise OSError(errno.EPIPE, _ENDED)
            if self._process is None:
                self._process = self._start()
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        """Of the environment, in which there are keys, it gets where modules are."""
        own = self._own
        arguments = (self._root, str(self._threads), str(own.start), str(own.stop - 1))
        command = (sys.executable, "-P", "-m", "cache_runtime.walk", *arguments)
        modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=modules, process_group=0)
        with suppress(OSError):  # the user's pipes may have all that they may
            assert process.stdout is not None
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE)
        return process


def listed(root: bytes, top: bytes, threads: int, own: range) -> Iterator[File]:
    """The files of one directory tree. An iterator that is given up ends the process."""
    with closing(Walker(root, threads, own)) as walker:
        yield from walker.files(top)


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(OSError):
            stream.close()


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
    except (EOFError, ValueError):  # `Walker.close` closes the stream
        raise OSError(errno.EPIPE, _ENDED) from None


def _files(frame: Frame) -> Iterator[File]:
    prefix = f"{encode_path(frame.path)}/" if frame.path else ""
    if frame.block.isascii() and b"%" not in frame.block:
        parts = frame.block.decode().split("\0")
    else:
        parts = [encode_path(part) for part in frame.block.split(b"\0")]
    return map(_FILE, zip(map(prefix.__add__, parts[::2]), map(int, parts[1::2]), strict=True))
