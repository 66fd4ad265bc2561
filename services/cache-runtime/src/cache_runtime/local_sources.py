"""Directories of the node that the operator lends to data sets: sources of scheme `file`, read-only.

The client follows links, and this process is privileged: a link in such a directory could name any file of
the pod. So the client reads the directory through a mount on which the kernel follows no symbolic link
(nosymfollow, Linux 5.10). That mount shows one file system. Files of a nested mount would be missing from a
listing, and a sync with delete-dst would delete them, so a source with a nested mount is refused.

When the node mounts an export again, the next use reads the new mount at another path. The old one stays
until this process ends: a client that still lists it would otherwise miss files, as if they were deleted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import structlog

from cache_runtime.beneath import opened_beneath
from cache_runtime.engines.mounts import run_mount
from cache_runtime.threads import Answers
from cache_runtime.timing import LOCAL_SOURCE_TIMEOUT_SECONDS
from paddlewheel.contracts.addresses import InvalidAddress, local_path
from paddlewheel.contracts.places import is_inside, root_above
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")
Identity = tuple[int, int]
"""Device and inode of a directory."""

_FIELD, _SETTING = "source.uri", "datasetController.localSources"
"""The field that names a source, and the setting that names the lent directories."""
_FLAGS = "bind,nosymfollow,nosuid,nodev,noexec,private,ro"
"""Private: what is mounted in the directory later would appear in the view with its links followed."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


class LocalSources:
    """The operator's directories.

    Args:
        roots: what is located may be these or below them.
        state: directory of this process, in which they are mounted.
    """

    def __init__(self, roots: Sequence[str], state: Path) -> None:
        self._roots, self._state = tuple(roots), state
        self._lock = asyncio.Lock()
        self._shown: dict[str, tuple[Identity, Path]] = {}
        """What was mounted last of each root, and where."""
        self._answers = Answers()

    async def locate(self, uri: str) -> str | None:
        """Where the client reads the directory, None for a source of another scheme.

        Raises:
            Permanent: `SourceNotAllowed`; it is not below a root, absent, a link is on the way, or something
                is mounted in it.
            Retry: it cannot be mounted, or its file system is silent.
        """
        try:
            path = local_path(uri, _FIELD)
        except InvalidAddress as error:
            raise Permanent("SourceNotAllowed", str(error)) from error
        if path is None:
            return None
        root = root_above(path, self._roots)
        if root is None:
            allowed = " or ".join(self._roots) or f"none; the operator names them in {_SETTING}"
            raise Permanent(
                "SourceNotAllowed", f"{_FIELD}: {path!r} is not below an allowed directory ({allowed})"
            )
        view, below = await self._view(root), path.removeprefix(root).strip("/")
        await self._answered(path, lambda: _check(view, below))
        await self._answered(path, lambda: _check_mounts(root, path))
        return str(view / below)

    async def close(self) -> None:
        """Unmount everything, also what an earlier process has left."""
        for mount, _ in reversed(_mounts()):
            if Path(mount).parent == self._top:
                await self._unmount(mount)
        self._shown.clear()

    async def _unmount(self, view: str) -> None:
        """What stays ends with the mount name space of the pod."""
        try:
            await run_mount("umount", "-l", view)
        except Retry as error:
            log.warning("a lent directory stays mounted", path=view, problem=str(error))

    @property
    def _top(self) -> Path:
        return self._state / "sources"

    async def _view(self, root: str) -> Path:
        """Where what is mounted at the root now is shown."""
        wanted = await self._answered(root, lambda: _identity(root))
        async with self._lock:
            shown, view = self._shown.get(root, (None, self._top))
            if shown != wanted or not _is_view(view):
                view = await self._mount(root)
                self._shown[root] = wanted, view
        return view

    async def _mount(self, root: str) -> Path:
        """At a path that nobody reads."""
        former = {mount for mount, _ in _mounts()}
        paths = (self._top / f"{self._roots.index(root)}-{number}" for number in count())
        view = next(path for path in paths if str(path) not in former)
        view.mkdir(parents=True, exist_ok=True)
        try:
            await run_mount("mount", "-o", _FLAGS, root, str(view))
        except Retry as error:
            raise Retry("SourceNotMounted", f"{_FIELD}: {error.message}") from error
        if not _is_view(view):
            await self._unmount(str(view))
            raise Permanent(
                "SourceNotAllowed",
                f"{_FIELD}: needs a node with Linux 5.10 or newer (nosymfollow)",
            )
        return view

    async def _answered(self, path: str, call: Callable[[], T]) -> T:
        """What a file system of the node answers. Raises Retry when it is silent, as that of a server that is
        away: such a call cannot be interrupted, and nothing waits for its thread."""
        try:
            async with asyncio.timeout(LOCAL_SOURCE_TIMEOUT_SECONDS):
                # A server that has gone answers for nothing that is mounted there instead.
                return await self._answers.of((path, *_mounted_above(path)), call)
        except TimeoutError as error:
            text = (
                f"{_FIELD}: {path!r} has not answered for {LOCAL_SOURCE_TIMEOUT_SECONDS:.0f} s: see whether"
                " the server of that file system can be reached from the node"
            )
            raise Retry(Reason.SOURCE_SILENT, text) from error


def _check(view: Path, below: str) -> None:
    """For a message that names what is wrong; the mount is what holds."""
    try:
        with opened_beneath(os.fsencode(view), os.fsencode(below), os.O_PATH | os.O_DIRECTORY):
            return
    except OSError as error:
        if error.errno == errno.ELOOP:
            text = f"{_FIELD}: a symbolic link is on the way to {below!r}; name the directory itself"
        else:
            text = f"{_FIELD}: {below!r}: {error.strerror}; name a directory that each of the set's nodes has"
        raise Permanent("SourceNotAllowed", text) from error


def _check_mounts(root: str, path: str) -> None:
    """Nothing is mounted in the source, nor between it and its root."""
    real = os.path.realpath(root)
    source = real + path.removeprefix(root)
    for mount, _ in _mounts():
        is_below_root = mount != real and is_inside(mount, real)
        if is_below_root and (is_inside(mount, source) or is_inside(source, mount)):
            text = (
                f"{_FIELD}: {path!r} would lack the file system that is mounted at {mount!r}; name"
                f" that one, and have the operator add it to {_SETTING}, or unmount it"
            )
            raise Permanent("SourceNotAllowed", text)


def _identity(root: str) -> Identity:
    """Of what is mounted at the root now."""
    try:
        found = Path(root).stat()
    except OSError as error:
        raise Retry("SourceNotMounted", f"{_FIELD}: {root!r}: {error.strerror}") from error
    return found.st_dev, found.st_ino


def _is_view(path: Path) -> bool:
    """Whether something is mounted there on which links are not followed."""
    return any(mount == str(path) and "nosymfollow" in options for mount, options in _mounts())


def _mounts() -> list[tuple[str, list[str]]]:
    """Mount points of this process and their options."""
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    lines = (line.split(" ") for line in text.splitlines())
    return [(_unescape(line[4]), line[5].split(",")) for line in lines]


def _mounted_above(path: str) -> tuple[str, ...]:
    """Ids of the mounts on the way to a path, its own among them."""
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    lines = (line.split(" ", 5) for line in text.splitlines())
    return tuple(line[0] for line in lines if is_inside(path, _unescape(line[4])))


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
