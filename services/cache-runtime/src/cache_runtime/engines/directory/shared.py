"""The directory that is the data set: one of a file system that every node of the set has mounted."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cache_runtime.domain.own_files import OwnFiles
from cache_runtime.engines.base import in_time
from cache_runtime.engines.directory.entries import look_up
from cache_runtime.engines.ports import VolumeRecord
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.threads import Answers
from paddlewheel.contracts.addresses import local_path
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

FIELD = "engine Secret: bucket"
MARKER = b".paddlewheel-volume"
"""A file in the directory. Where it is missing, the shared file system may not be mounted, and what is found
is an empty directory of the node."""


class SharedDirectory:
    """Reached through a link of this process, to a mount on which no link is followed.

    Args:
        lent: what the operator lends to volumes, with all rights.
        link: path of the link. Until `open` there is none.
        record: which directory is the set's, for life.
    """

    def __init__(self, lent: LocalSources, secrets: SecretFiles, link: Path, record: VolumeRecord) -> None:
        self._lent, self._secrets, self.path, self._record = lent, secrets, link, record
        self.address = ""
        """The directory as its nodes name it."""
        self._uri = ""
        """As the engine secret names it."""
        self._opened: os.stat_result | None = None
        """What `path` leads to, as it was found then: a file server that has gone is never asked again."""
        self._answers = Answers()
        self._marker: os.stat_result | None = None
        """The file that marks it, as it was found last."""

    @property
    def root(self) -> bytes:
        return os.fsencode(self.path)

    @property
    def own_files(self) -> OwnFiles:
        """What marks it, in this file system: below it there may be others with the same numbers."""
        marker = self._marker
        return OwnFiles(range(marker.st_ino, marker.st_ino + 1), marker.st_dev) if marker else OwnFiles()

    @property
    def volume_id(self) -> str:
        """The same on all nodes; the name of the directory of copies in each cache directory."""
        return _id_of(self.address)

    async def open(self) -> None:
        """Make `path` lead to it, once it is known to be the volume: sweeps and checks look through it.

        Raises:
            Retry: a file of the engine secret is missing, the directory cannot be mounted, or is silent.
            Permanent: it is no directory that is lent, not marked as a volume, or another than the set's.
            OSError: its file system fails.
        """
        address, located = await self._locate()
        path = _path(address)
        self._marker, self._opened = await self._found(located, path)
        self._uri, self.address = address, path
        self._link(located)
        self._record.keep(self.volume_id)

    async def check_open(self) -> None:
        """For whoever is about to change the data set: `path` is moved by `open` alone, or pods would look at
        another directory than is written to. Raises as `open`, and Retry until that has been called again.
        """
        address, located = await self._locate()
        path = _path(address)
        _, found = await self._found(located, path)
        if not self._is_open(found):
            raise self.has_gone()

    @asynccontextmanager
    async def kept_open(self) -> AsyncIterator[None]:
        """Around a change of the data set: `path` may be moved meanwhile, and what was begun ends in the
        former directory. Raises as `check_open`, also at the end: then the change is to be made again."""
        await self.check_open()
        opened = self._opened
        yield
        if opened is None or not self._is_open(opened):
            raise self.has_gone()
        await self.check_open()

    def has_gone(self) -> Retry:
        """What is to be changed is not, or no more, what pods look at."""
        text = f"{FIELD}: {self.address!r} is not mounted yet, or another file system is there by now"
        return Retry(Reason.MOUNT_LOST, text)

    async def has_moved(self) -> bool:
        """Whether there is another directory at the address now that is marked. Raises as `open`."""
        located = await self._lent.locate(self._uri)
        if located is None:
            return False
        _, found = await self._found(located, self.address)
        return not self._is_open(found)

    async def _locate(self) -> tuple[str, str]:
        """The address in the engine secret, and where this process has what it leads to now."""
        address = await self._secrets.read("engine.bucket")
        if not address:
            file = self._secrets.path("engine.bucket")
            raise Retry("SecretMissing", f"{file}: add key 'bucket' to the engine secret")
        located = await self._lent.locate(address)
        if located is None:
            raise Permanent("InvalidSecret", f"{FIELD}: must be file:///DIRECTORY for the engine `directory`")
        await self._check_same(_path(address))
        return address, located

    async def _found(self, located: str, path: str) -> tuple[os.stat_result, os.stat_result]:
        """As `_marker`, and the directory itself. Raises Retry when its file system is silent."""
        answer = self._answers.of(located, lambda: (_marker(located, path), Path(located).stat()))
        return await in_time(answer, path)

    def _is_open(self, found: os.stat_result) -> bool:
        """Whether it is what `path` leads to, mounted twice or not."""
        return self._opened is not None and os.path.samestat(found, self._opened)

    async def _check_same(self, path: str) -> None:
        with suppress(Retry):  # a mount needs no bus
            await self._record.recall()
        if self._record.known not in ("", _id_of(path)):
            raise Permanent(Reason.VOLUME_LOST, _another(path))

    def confirm(self) -> None:
        """Raises Retry when the bus, which was away then, has told since that it is not the set's."""
        if self._record.known not in ("", self.volume_id):
            raise Retry(Reason.VOLUME_LOST, _another(self.address))

    def check(self) -> None:
        """Raises Permanent when it is not marked. Blocks."""
        self._marker = _marker(str(self.path), self.address)

    def _link(self, located: str) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(located)
        new.replace(self.path)


def _path(address: str) -> str:
    return local_path(address, FIELD) or ""


def _marker(directory: str, path: str) -> os.stat_result:
    """What marks the directory, which nodes name so. Raises Permanent, or OSError. Blocks."""
    found = look_up(os.fsencode(directory), MARKER)
    if found is None or not stat.S_ISREG(found.st_mode):
        text = (
            f"{FIELD}: {path!r} has no file {MARKER.decode()}: mount the shared file system on this node,"
            " or, for a new volume, create the file there"
        )
        raise Permanent("WrongVolume", text)
    return found


def _another(path: str) -> str:
    return (
        f"{FIELD}: {path!r} is another directory than the set was mounted from: put back what it was,"
        " or delete the set and create it again"
    )


def _id_of(address: str) -> str:
    return hashlib.sha256(os.fsencode(address)).hexdigest()[:32]
