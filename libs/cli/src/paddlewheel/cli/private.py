"""Directories for secrets of a command: readable only by this user, and removed with the process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.state import home


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a directory for this process that is removed when the block ends.

    If the process is killed, the next command removes the directory, whose lock is free then.

    Raises:
        Permanent: the directory cannot be created; the message names the variable to set.
    """
    root = _root()
    try:
        folder, lock = _claim(root)
    except OSError as error:
        advice = "set XDG_RUNTIME_DIR or PADDLEWHEEL_HOME to a directory of yours"
        raise Permanent("NoPrivateFolder", f"{root}: {error.strerror}; {advice}") from error
    try:
        yield folder
    finally:
        _remove(root, folder)
        os.close(lock)


def _root() -> Path:
    """A directory in $XDG_RUNTIME_DIR, which is in memory, unless another user owns that (after `sudo`)."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    if runtime.is_dir() and runtime.stat().st_uid == os.geteuid():
        return runtime / "paddlewheel"
    return home() / "private"


def _claim(root: Path) -> tuple[Path, int]:
    """A new directory and its lock. The lock of the root prevents its removal in between."""
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    guard = _lock(root, fcntl.LOCK_EX)
    try:
        _sweep(root)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root))
        return folder, _lock(folder, fcntl.LOCK_EX)
    finally:
        os.close(guard)


def _remove(root: Path, folder: Path) -> None:
    """Remove the directory under the lock of the root: other processes remove directories without a lock."""
    guard = _lock(root, fcntl.LOCK_EX)
    try:
        shutil.rmtree(folder, ignore_errors=not folder.exists())
    finally:
        os.close(guard)


def _sweep(root: Path) -> None:
    """Remove the directories of processes that are gone."""
    for folder in root.glob("*-*"):
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _lock(folder: Path, how: int) -> int:
    """Lock a directory by a file in it; the kernel releases the lock when the process ends."""
    handle = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, how)
    except OSError:
        os.close(handle)
        raise
    return handle
