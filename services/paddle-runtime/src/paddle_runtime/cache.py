"""Models fetched from a store, in a directory that the replicas of a node share.

    CACHE/sha256-<digest>/        a model, complete and verified
    CACHE/listing-<hash>/         one whose digest was not given: named by what the store listed
    CACHE/.partial/NAME/          one that is being fetched
    CACHE/.locks/NAME.fetch       held by the replica that verifies or fetches NAME
    CACHE/.locks/NAME.use         shared by those that serve NAME, held exclusively while it is removed

A lock ends with its process, so a replica that is killed leaves nothing that another has to wait for.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog

from paddle_runtime.domain.files import ModelFault, check_digest, check_path, is_hidden, manifest_digest
from paddle_runtime.ports import FileStore, StoredFile
from paddlewheel.core.clock import Clock

_POLL = 0.2
_PIECE = 4 * 1024 * 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Entry:
    """A model on disk, and its lock, which keeps others from removing it while this process runs."""

    directory: Path
    digest: str
    fetched: bool
    lock: IO[bytes]


class ModelCache:
    """Gives a store's model as a directory.

    Args:
        limit: bytes beyond which models that nobody uses are removed.
    """

    def __init__(self, root: Path, limit: int, clock: Clock) -> None:
        self._root = root
        self._limit = limit
        self._clock = clock

    async def get(self, store: FileStore, where: str, digest: str) -> Entry:
        """The model of a store, fetched by at most one of the replicas that share the cache.

        Args:
            where: address of the model, part of the entry's name when no digest is given.
            digest: what the model must have; "" accepts any.

        Raises:
            ModelFault: nothing is there, a wrong digest, or the cache directory cannot be written.
            Retry: the store does not answer.
        """
        try:
            return await self._get(store, where, digest)
        except OSError as error:
            remedy = "PADDLE_RUNTIME_CACHE_DIR must be a directory with room that this user may write"
            raise ModelFault("CacheUnusable", f"{self._root}: {error.strerror}: {remedy}") from error

    async def _get(self, store: FileStore, where: str, digest: str) -> Entry:
        files = None if digest else await _listed(store)
        name = digest.replace(":", "-") or _listing_name(where, files or ())
        directory = self._root / name
        with await self._locked(f"{name}.fetch", fcntl.LOCK_EX), ExitStack() as on_failure:
            use = on_failure.enter_context(await self._locked(f"{name}.use", fcntl.LOCK_SH))
            known = await self._verified(directory, digest)
            found = known or await self._fetch(store, files or await _listed(store), name, digest)
            on_failure.pop_all()
        os.utime(directory)
        await asyncio.to_thread(self._remove_unused, directory)
        return Entry(directory, found, not known, use)

    async def _verified(self, directory: Path, digest: str) -> str:
        """The digest of a model that was fetched before; "" if there is none, or it was changed since."""
        found = await asyncio.to_thread(_digest_if_any, directory)
        if not found or not digest or found == digest:
            return found
        log.warning("cached model was changed, fetching it again", directory=str(directory), digest=found)
        await asyncio.to_thread(shutil.rmtree, directory)
        return ""

    async def _fetch(self, store: FileStore, files: Sequence[StoredFile], name: str, digest: str) -> str:
        """What a killed process left in the partial directory is removed first."""
        partial = self._root / ".partial" / name
        await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        partial.mkdir(parents=True)
        sums = {file.path: await _download(store, file, partial / file.path) for file in files}
        found = manifest_digest(sums)
        try:
            check_digest(found, digest)
        except ModelFault:
            await asyncio.to_thread(shutil.rmtree, partial)
            raise
        await asyncio.to_thread(_publish, partial, self._root / name)
        return found

    async def _locked(self, name: str, how: int) -> IO[bytes]:
        """Polls, because a thread that waits for a lock cannot be cancelled."""
        lock = self._open_lock(name)
        try:
            while not _try_lock(lock, how):
                await self._clock.sleep(_POLL)
        except BaseException:
            lock.close()
            raise
        return lock

    def _open_lock(self, name: str) -> IO[bytes]:
        folder = self._root / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("ab")

    def _remove_unused(self, keep: Path) -> None:
        """Down to the limit, the least recently started first; a model that is served is locked."""
        models = [path for path in self._root.iterdir() if not path.name.startswith(".")]
        sizes = {path: _size(path) for path in models}
        excess = sum(sizes.values()) - self._limit
        for path in sorted(set(models) - {keep}, key=lambda path: path.stat().st_mtime):
            if excess > 0 and self._remove(path):
                excess -= sizes[path]

    def _remove(self, directory: Path) -> bool:
        with self._open_lock(f"{directory.name}.use") as lock:
            if not _try_lock(lock, fcntl.LOCK_EX):
                return False
            shutil.rmtree(directory, ignore_errors=True)
            log.info("model removed from the cache", directory=str(directory))
            return True


def directory_digest(directory: Path) -> str:
    """The digest of a model on disk; see `manifest_digest`. Raises ModelFault, OSError."""
    return manifest_digest({path: _sha256(directory / path) for path in file_names(directory)})


def _digest_if_any(directory: Path) -> str:
    return directory_digest(directory) if directory.exists() else ""


def file_names(directory: Path) -> list[str]:
    """Its files, with paths relative to it. Raises ModelFault: there is no such directory."""
    if not directory.is_dir():
        raise ModelFault(
            "NoModel", f"{directory} is not a directory: check PADDLE_RUNTIME_MODEL_URI and the mount"
        )
    paths = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return sorted(check_path(path) for path in paths if not is_hidden(path))


async def _listed(store: FileStore) -> Sequence[StoredFile]:
    """What counts as the model. Raises ModelFault: nothing."""
    files = [file for file in await store.list() if file.path and not file.path.endswith("/")]
    visible = [file for file in files if not is_hidden(check_path(file.path))]
    if not visible:
        raise ModelFault("NoModel", "the prefix of PADDLE_RUNTIME_MODEL_URI holds no files")
    return visible


def _listing_name(where: str, files: Sequence[StoredFile]) -> str:
    lines = sorted(f"{file.path}\n{file.size}\n{file.tag}\n" for file in files)
    return f"listing-{hashlib.sha256(''.join([where, *lines]).encode()).hexdigest()}"


async def _download(store: FileStore, file: StoredFile, target: Path) -> str:
    """Gives the SHA-256 of what was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as out:
        async for piece in store.read(file.path):
            await asyncio.to_thread(_append, out, digest, piece)
        out.flush()
        await asyncio.to_thread(os.fsync, out.fileno())
    return digest.hexdigest()


def _append(out: IO[bytes], digest: hashlib._Hash, piece: bytes) -> None:
    out.write(piece)
    digest.update(piece)


def _publish(partial: Path, directory: Path) -> None:
    """Atomic, and it survives a power failure."""
    for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
        _sync(folder)
    partial.rename(directory)
    _sync(directory.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(lock: IO[bytes], how: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        return True
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
