"""Copying from a directory that the operator lends into the data set."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from cache_runtime.domain.model import File, TreeSize
from cache_runtime.domain.paths import encode_path, is_safe_key, join, relative_path
from cache_runtime.engines.directory.copying import (
    CopyError,
    Manner,
    Pace,
    Place,
    copy_file,
    keep_names,
    make_directories,
    opened_file,
    remove,
    remove_empty,
)
from cache_runtime.engines.directory.entries import Entry, entries, look_up
from cache_runtime.engines.directory.shared import MARKER, SharedDirectory
from cache_runtime.engines.ports import Copied, SourceReading
from cache_runtime.local_sources import LocalSources
from cache_runtime.retrying import as_failure, described
from cache_runtime.threads import in_own_thread, in_own_thread_until
from paddlewheel.contracts.addresses import local_path
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.places import is_inside
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

THREADS = 10
_LISTED = 1000
"""Files that are listed at once."""


@dataclass(frozen=True)
class _One:
    """What came of one object. `problem`: "" when it is in the data set."""

    problem: str = ""
    is_kept: bool = False


class DirectoryTransfer:
    """Implements `Transfer`.

    Args:
        lent: sources.
        volumes: what the data set is one of.
    """

    def __init__(self, shared: SharedDirectory, lent: LocalSources, volumes: LocalSources) -> None:
        self._shared, self._lent, self._volumes = shared, lent, volumes

    @property
    def tells_time(self) -> bool:
        """The server of the shared directory may have a clock of its own."""
        return False

    async def close(self) -> None:
        await self._lent.close()
        await self._volumes.close()

    async def list(self, sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        source = await self._source(sync)
        listing = _chosen(sync, entries(source))
        while files := await _listed(listing):
            yield files

    async def copy(self, sync: SyncOperation, keys: Sequence[bytes], mbps: int, torn: set[bytes]) -> Copied:
        source, pace = await self._source(sync), Pace(mbps)
        target = relative_path(sync.destination, "syncOptions.destination").encode()

        def copy_one(key: bytes) -> _One:
            return self._copy_one(sync, Place(source, key), join(target, key), pace)

        def keep(directory: bytes) -> None:
            if not pace.stop.is_set():
                keep_names(self._shared.root, directory)

        def copy_all() -> Copied:
            with ThreadPoolExecutor(max(1, sync.threads or THREADS), thread_name_prefix="copy") as pool:
                done = list(zip(keys, pool.map(copy_one, keys), strict=True))
                failed = {key: one.problem for key, one in done if one.problem}
                copied = (join(target, key) for key in keys if key not in failed)
                # Also of files that were there: who has copied them may have been killed before this.
                list(pool.map(keep, _directories(copied)))
            return Copied(failed, sum(one.is_kept for _, one in done))

        async with self._shared.kept_open():
            return await in_own_thread_until(pace.stop, copy_all)

    async def read_source(self, sync: SyncOperation) -> SourceReading:
        kept = {file.path: file.size async for files in self.list(sync) for file in files}
        return SourceReading(
            TreeSize(len(kept), sum(kept.values())), lambda: self._delete_extra(sync, kept.keys())
        )

    async def delete_copied(self, sync: SyncOperation, mbps: int, torn: set[bytes]) -> None:
        await self._source(sync)
        text = "syncOptions.delete-src: a directory of the node is lent read-only; leave this option out"
        raise Permanent("DeleteFailed", text)

    async def _source(self, sync: SyncOperation) -> bytes:
        """Raises Retry or Permanent."""
        await self._shared.check_open()
        if sync.include or sync.exclude:
            text = "syncOptions: the engine `directory` knows no include and exclude; use start and end"
            raise Permanent("InvalidFilter", text)
        located = await self._lent.locate(sync.source)
        if located is None:
            raise Permanent("InvalidSource", "source.uri: the engine `directory` copies from file:// only")
        path = local_path(sync.source, "source.uri") or ""
        if is_inside(path, self._shared.address) or is_inside(self._shared.address, path):
            raise Permanent("InvalidSource", f"source.uri: {path!r} is part of the data set, or contains it")
        return os.fsencode(located)

    def _copy_one(self, sync: SyncOperation, source: Place, path: bytes, pace: Pace) -> _One:
        if not is_safe_key(source.path) or path == MARKER:
            return _One("such a key would leave the data set, or replace what marks it")
        try:
            pace.check()
            with opened_file(source) as (handle, found):
                if not _is_due(sync, found, look_up(self._shared.root, path)):
                    return _One(is_kept=True)
                make_directories(self._shared.root, path.rpartition(b"/")[0])
                manner = Manner(keeps_owner=sync.perms)
                copy_file(handle, found, Place(self._shared.root, path), pace, manner)
        except CopyError as error:
            return _One(str(error))
        except OSError as error:
            return _One("has left the source" if _is_absent(error, source.path) else str(error.strerror))
        return _One()

    async def _delete_extra(self, sync: SyncOperation, kept: Collection[str]) -> None:
        stop = threading.Event()
        try:
            async with self._shared.kept_open():
                await in_own_thread_until(stop, lambda: self._delete(sync, kept, stop))
        except OSError as error:
            raise _deletion_failed(error) from error

    def _delete(self, sync: SyncOperation, kept: Collection[str], stop: threading.Event) -> None:
        """The destination is listed completely before anything is deleted."""
        below = relative_path(sync.destination, "syncOptions.destination").encode()
        if look_up(self._shared.root, below) is None:
            return
        found = [entry.key for entry in _chosen(sync, entries(self._shared.root, below))]
        for key in reversed(found):
            if stop.is_set():
                return
            path = join(below, key)
            if encode_path(key) not in kept and path != MARKER:
                self._delete_one(path)

    def _delete_one(self, path: bytes) -> None:
        """Raises OSError that names the path, not only its last part."""
        try:
            if path.endswith(b"/"):
                remove_empty(self._shared.root, path.rstrip(b"/"))
            else:
                remove(self._shared.root, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error


def _directories(files: Iterable[bytes]) -> Sequence[bytes]:
    """Those in which they are, and in which these are, up to the root; each once."""
    found = set[bytes]()
    for path in files:
        while path and (path := path.rpartition(b"/")[0]) not in found:
            found.add(path)
    return sorted(found, reverse=True)


def _chosen(sync: SyncOperation, found: Iterator[Entry]) -> Iterator[Entry]:
    """What the options select: directories with `dirs` only."""
    first, last = os.fsencode(sync.start), os.fsencode(sync.end)
    for entry in found:
        if entry.key < first or (last and entry.key > last) or (entry.is_directory and not sync.dirs):
            continue
        yield entry


async def _listed(listing: Iterator[Entry]) -> Sequence[File]:
    """The next files. Raises Retry, or Permanent for a directory that may not be read."""

    def read() -> Sequence[File]:
        return [
            File(encode_path(entry.key), 0 if entry.is_directory else entry.found.st_size)
            for entry in islice(listing, _LISTED)
        ]

    try:
        return await in_own_thread(read)
    except OSError as error:
        if error.errno == errno.EACCES:
            text = f"source.uri: let the cache agents read every directory of it: {described(error)}"
            raise Permanent(Reason.LISTING_FAILED, text) from error
        raise Retry(Reason.LISTING_FAILED, f"source.uri: {described(error)}") from error


def _deletion_failed(error: OSError) -> Retry | Permanent:
    """What an NFS server refuses to root (root_squash), it refuses again; one that restarts answers later."""
    failure = as_failure(error)
    if error.errno != errno.EACCES and isinstance(failure, Retry):
        return failure
    text = f"syncOptions.delete-dst: {described(error)}; let the cache agents, which are root, delete there"
    return Permanent("DeleteFailed", text)


def _is_due(sync: SyncOperation, found: os.stat_result, copied: os.stat_result | None) -> bool:
    """As `juicefs sync` decides it."""
    if copied is None or sync.force_update:
        return True
    if sync.update:
        return found.st_mtime_ns > copied.st_mtime_ns
    return found.st_size != copied.st_size


def _is_absent(error: OSError, key: bytes) -> bool:
    """Whether it is the source that is not there."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR) and error.filename == os.fsdecode(key)
