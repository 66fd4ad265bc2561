"""A second engine, for tests only: the data set is a directory, and the cache is copies of its files.

It shows that the port needs nothing of JuiceFS, and runs agents without a client, a database or a store.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import zlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.domain.model import CacheReport, CacheUse, File, TreeSize
from cache_runtime.domain.paths import decode_path, encode_path
from cache_runtime.engines.base import BaseMount
from cache_runtime.engines.ports import Copied, Engine, MountListener, SourceReading
from cache_runtime.engines.view import View
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

T = TypeVar("T")


class PlainMount(BaseMount):
    """Implements `Mount`: pods find the directory through a link."""

    def __init__(
        self, volume: Path, view: Path, clock: Clock, on_change: MountListener, record: VolumeRecord
    ) -> None:
        super().__init__(View(view, view), clock, on_change)
        self._volume, self._link, self._record = volume, view, record

    @property
    def path(self) -> Path:
        return self._volume

    async def run(self, stop: asyncio.Event) -> None:
        self._volume.mkdir(parents=True, exist_ok=True)
        self._link.symlink_to(self._volume)
        self._record.keep("plain")
        await self._set_mounted()
        await stop.wait()
        self._link.unlink()
        await self._set_lost(Reason.STOPPED, "stopped")


class PlainVolume:
    """Implements `Volume`."""

    def __init__(self, volume: Path) -> None:
        self._volume = volume

    @property
    def own_inodes(self) -> range:
        return range(0)

    async def remove(self, path: Path) -> str:
        await asyncio.to_thread(_remove, path)
        return ""

    async def size(self) -> TreeSize:
        found = [path.lstat().st_size for path in _files(self._volume)]
        return TreeSize(len(found), sum(found))


class PlainCache:
    """Implements `NodeCache`: a copy is called after the inode, and counts while the file is unchanged."""

    def __init__(self, mount: PlainMount, directories: Sequence[str]) -> None:
        self._mount, self._directories = mount, directories

    async def warm(self, inodes: Sequence[int], threads: int) -> None:
        def warm(path: Path) -> None:
            copy = self._copy_of(path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)

        await self._each(inodes, warm)

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        def missing(path: Path) -> tuple[int, int]:
            size, copy = path.stat().st_size, self._copy_of(path)
            is_cached = copy.exists() and _state(copy) == _state(path)
            return size, 0 if is_cached else size

        found = await self._each(inodes, missing)
        return CacheReport(len(found), sum(size for size, _ in found), sum(lost for _, lost in found))

    async def clear(self, directories: Sequence[str]) -> None:
        for directory in directories:
            shutil.rmtree(Path(directory, "plain"), ignore_errors=True)

    async def use(self) -> CacheUse:
        self._require_mount()
        copies = (path for directory in self._directories for path in Path(directory, "plain").glob("*"))
        return CacheUse(sum(path.stat().st_size for path in copies))

    async def staged_bytes(self) -> int:
        return 0

    async def _each(self, inodes: Sequence[int], call: Callable[[Path], T]) -> list[T]:
        """Results for the files that still exist; an inode that is named twice has two."""
        self._require_mount()

        def work() -> list[T]:
            paths = {path.stat().st_ino: path for path in _files(self._mount.path)}
            return [call(paths[inode]) for inode in inodes if inode in paths]

        return await asyncio.to_thread(work)

    def _require_mount(self) -> None:
        if not self._mount.is_mounted:
            raise Retry("MountLost", self._mount.message)

    def _copy_of(self, path: Path) -> Path:
        directory = self._directories[zlib.crc32(os.fsencode(path.name)) % len(self._directories)]
        return Path(directory, "plain", str(path.stat().st_ino))


class PlainTransfer:
    """Implements `Transfer` for local sources without filters."""

    tells_time = True

    def __init__(self, volume: Path, sources: LocalSources) -> None:
        self._volume, self._sources = volume, sources

    async def list(self, sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        source = await self._source(sync)
        yield [File(encode_path(key), path.lstat().st_size) for key, path in _objects(source, sync)]

    async def copy(self, sync: SyncOperation, keys: Sequence[bytes], mbps: int, torn: set[bytes]) -> Copied:
        source, target = await self._source(sync), self._volume / sync.destination
        failed, kept = dict[bytes, str](), 0
        for key in keys:
            name = os.fsdecode(key)
            try:
                kept += not await asyncio.to_thread(_copy, source / name, target / name, sync)
            except FileNotFoundError:
                failed[key] = "has left the source"
            except OSError as error:
                failed[key] = str(error.strerror)
        return Copied(failed, kept)

    async def sizes(self, sync: SyncOperation, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        paths = {key: self._volume / sync.destination / os.fsdecode(key) for key in keys}
        return {key: path.lstat().st_size for key, path in paths.items() if path.is_file()}

    async def read_source(self, sync: SyncOperation) -> SourceReading:
        found = {decode_path(file.path): file.size async for files in self.list(sync) for file in files}

        async def delete_extra() -> None:
            self._delete_extra(sync, found.keys())

        return SourceReading(TreeSize(len(found), sum(found.values())), delete_extra)

    async def delete_copied(self, sync: SyncOperation, mbps: int, torn: set[bytes]) -> None:
        raise Permanent("DeleteFailed", "local sources are read-only")

    async def close(self) -> None:
        await self._sources.close()

    def _delete_extra(self, sync: SyncOperation, kept: Collection[bytes]) -> None:
        for key, path in _objects(self._volume / sync.destination, sync):
            if key not in kept:
                path.unlink()

    async def _source(self, sync: SyncOperation) -> Path:
        located = await self._sources.locate(sync.source)
        if located is None or sync.include or sync.exclude:
            raise Permanent("InvalidSource", "the plain engine copies from file:// only, without filters")
        return Path(located)


def _files(top: Path) -> Iterator[Path]:
    """Regular files and links below it. Links are not followed."""
    return (Path(path, name) for path, _, names in os.walk(top) for name in names)


def _objects(top: Path, sync: SyncOperation) -> Sequence[tuple[bytes, Path]]:
    """Files below it by their keys, in order, from `start` to `end`."""
    found: Mapping[bytes, Path] = {os.fsencode(path.relative_to(top)): path for path in _files(top)}
    first, last = os.fsencode(sync.start), os.fsencode(sync.end)
    return [(key, found[key]) for key in sorted(found) if first <= key and (not last or key <= last)]


def _copy(source: Path, target: Path, sync: SyncOperation) -> bool:
    """Whether it was due; a file is replaced as a whole. Raises OSError."""
    found = source.stat()
    if target.exists() and not sync.force_update:
        there = target.stat()
        is_due = found.st_mtime > there.st_mtime if sync.update else found.st_size != there.st_size
        if not is_due:
            return False
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".jfs.{target.name}.tmp.1")
    shutil.copy2(source, temporary)
    temporary.replace(target)
    return True


def _state(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mtime_ns


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def create_engine(
    volume: Path,
    settings: CacheRuntimeSettings,
    secrets: SecretFiles,
    clock: Clock,
    on_mount: MountListener,
    record: VolumeRecord,
) -> Engine:
    """An engine on this directory. With `partial(create_engine, volume)` it is an `EngineFactory`."""
    mount = PlainMount(volume, settings.mount_path, clock, on_mount, record)
    return Engine(
        mount=mount,
        volume=PlainVolume(volume),
        cache=PlainCache(mount, settings.cache_dir_list),
        transfer=PlainTransfer(volume, LocalSources(settings.local_sources, settings.state_dir)),
    )
