"""Directories of the node that the operator lends to data sets: sources of scheme `file`, read-only.

The client follows links, and this process is privileged: a link in such a directory could name any file of
the pod. So the client reads them through a mount on which the kernel follows no symbolic link at all
(nosymfollow, Linux 5.10). That mount shows one file system: what is mounted in it would be missing from a
listing, and a sync with delete-dst would delete it. Such a source is refused before each use.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cache_runtime.beneath import opened_beneath
from paddlewheel.contracts.addresses import InvalidAddress, local_path
from paddlewheel.contracts.places import is_inside, root_above
from paddlewheel.core.errors import Permanent, Retry

_FLAGS = "bind,nosymfollow,nosuid,nodev,noexec,private"
"""Private: what is mounted in the directory later would appear in the view with its links followed."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Purpose:
    """What directories are lent for.

    Args:
        field: what names one, and `setting` what names those that are lent.
        access: `ro` or `rw`.
    """

    field: str
    setting: str
    access: str


SOURCES = Purpose("source.uri", "datasetController.localSources", "ro")


class LocalSources:
    """The operator's directories.

    Args:
        roots: what is located may be these or below them.
        state: directory of this process, in which they are mounted.
    """

    def __init__(self, roots: Sequence[str], state: Path, purpose: Purpose = SOURCES) -> None:
        self._roots, self._state, self._purpose = tuple(roots), state, purpose
        self._lock = asyncio.Lock()

    async def locate(self, uri: str) -> str | None:
        """Where the client reads the directory, None for a source of another scheme.

        Raises:
            Permanent: `SourceNotAllowed`; it is not below a root, absent, a link is on the way, or something
                is mounted in it.
            Retry: it cannot be mounted.
        """
        field, setting = self._purpose.field, self._purpose.setting
        try:
            path = local_path(uri, field)
        except InvalidAddress as error:
            raise Permanent("SourceNotAllowed", str(error)) from error
        if path is None:
            return None
        root = root_above(path, self._roots)
        if root is None:
            allowed = " or ".join(self._roots) or f"none; the operator names them in {setting}"
            raise Permanent(
                "SourceNotAllowed", f"{field}: {path!r} is not below an allowed directory ({allowed})"
            )
        view, below = await self._view(root), path.removeprefix(root).strip("/")
        await asyncio.to_thread(_check, view, below, field)
        await asyncio.to_thread(_check_mounts, root, path, self._purpose)
        return str(view / below)

    async def close(self) -> None:
        """Unmount everything."""
        for number in range(len(self._roots)):
            while _is_view(view := self._path(number)):
                await self._run("umount", "-l", str(view))

    def _path(self, number: int) -> Path:
        return self._state / "sources" / str(number)

    async def _view(self, root: str) -> Path:
        view = self._path(self._roots.index(root))
        async with self._lock:
            if not await asyncio.to_thread(_shows, view, root, self._purpose.field):
                # On top of an older view, if there is one: at no time is an empty directory in its place.
                await asyncio.to_thread(view.mkdir, parents=True, exist_ok=True)
                await self._run("mount", "-o", f"{_FLAGS},{self._purpose.access}", root, str(view))
        if not _is_view(view):
            raise Permanent(
                "SourceNotAllowed",
                f"{self._purpose.field}: needs a node with Linux 5.10 or newer (nosymfollow)",
            )
        return view

    async def _run(self, *command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        _, stderr = await process.communicate()
        if process.returncode:
            problem = stderr.decode(errors="replace").strip()
            raise Retry("SourceNotMounted", f"{self._purpose.field}: {problem}")


def _check(view: Path, below: str, field: str) -> None:
    """For a message that names what is wrong; the mount is what holds."""
    try:
        with opened_beneath(os.fsencode(view), os.fsencode(below), os.O_PATH | os.O_DIRECTORY):
            return
    except OSError as error:
        if error.errno == errno.ELOOP:
            text = f"{field}: a symbolic link is on the way to {below!r}; name the directory itself"
        else:
            text = f"{field}: {below!r}: {error.strerror}; name a directory that each of the set's nodes has"
        raise Permanent("SourceNotAllowed", text) from error


def _check_mounts(root: str, path: str, purpose: Purpose) -> None:
    """Nothing is mounted in the source, nor between it and its root."""
    real = os.path.realpath(root)
    source = real + path.removeprefix(root)
    for mount, _ in _mounts():
        is_below_root = mount != real and is_inside(mount, real)
        if is_below_root and (is_inside(mount, source) or is_inside(source, mount)):
            text = (
                f"{purpose.field}: {path!r} would lack the file system that is mounted at {mount!r}; name"
                f" that one, and have the operator add it to {purpose.setting}, or unmount it"
            )
            raise Permanent("SourceNotAllowed", text)


def _shows(view: Path, root: str, field: str) -> bool:
    """Whether the view shows what is mounted at the root now."""
    if not _is_view(view):
        return False
    try:
        seen, wanted = view.stat(), Path(root).stat()
    except OSError as error:
        raise Retry("SourceNotMounted", f"{field}: {root!r}: {error.strerror}") from error
    return (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino)


def _is_view(path: Path) -> bool:
    """Whether something is mounted there on which links are not followed."""
    return any(mount == str(path) and "nosymfollow" in options for mount, options in _mounts())


def _mounts() -> list[tuple[str, list[str]]]:
    """Mount points of this process and their options."""
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    lines = (line.split(" ") for line in text.splitlines())
    return [(_unescape(line[4]), line[5].split(",")) for line in lines]


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
