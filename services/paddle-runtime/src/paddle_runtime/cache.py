"""Models fetched from a store, in a directory that the replicas of a node share.

    CACHE/sha256-<digest>/        a model, complete and verified
    CACHE/listing-<hash>/         one whose digest was not given: named by what the store listed
    CACHE/.partial/NAME/          one that is being fetched
    CACHE/.trash/                 what is being removed
    CACHE/.locks/NAME.fetch       held by the replica that fetches NAME
    CACHE/.locks/NAME.use         shared by the replicas that serve NAME, held exclusively while it is removed

A lock ends with its process, so a replica that is killed leaves nothing that another has to wait for.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar
from uuid import uuid4

import structlog

from paddle_runtime.directory import directory_digest
from paddle_runtime.domain.files import ModelFault, check_digest, check_path, is_hidden, manifest_digest
from paddle_runtime.ports import FileStore, StoredFile
from paddle_runtime.timing import FETCH_CHECK_INTERVAL_SECONDS
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import finish

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

P = ParamSpec("P")
T = TypeVar("T")
Listing = Sequence[StoredFile]

_NAME = re.compile(r"(sha256|listing)-[0-9a-f]{64}")
_LISTING = ".listing"
"""File of a partial model: the hash of the store's listing when the download began."""
_DIGEST = ".digest"
"""File of a model: its digest when it was fetched."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Entry:
    """A model on disk, and its lock, which keeps others from removing it while this process runs."""

    directory: Path
    digest: str
    fetched: bool
    lock: IO[bytes]


@dataclass(frozen=True)
class _Kept:
    """A folder that can be removed to make room: bytes, time of the last use, and the lock of its users."""

    path: Path
    size: int
    used: float
    lock: str


class ModelCache:
    """Gives a store's model as a directory.

    Args:
        limit: bytes beyond which models that no replica uses are removed before another is fetched.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._locks, self._partial, self._trash = (root / name for name in (".locks", ".partial", ".trash"))
        self._limit = limit
        self.received = 0
        """Bytes that stores have sent."""

    async def get(self, store: FileStore, where: str, digest: str) -> Entry:
        """The model of a store, fetched by at most one of the replicas that share the cache.

        Args:
            where: address of the model, part of the entry's name when no digest is given.
            digest: what the model must have; "" accepts any.

        Raises:
            ModelFault: nothing is there, a wrong digest, or the cache directory cannot be written.
            Retry: the store does not answer, the model changes there, or another replica fetches it; the next
                attempt continues where this one ended.
        """
        try:
            for folder in (self._locks, self._partial, self._trash):
                folder.mkdir(parents=True, exist_ok=True)
            return await self._get(store, where, digest)
        except OSError as error:
            advice = "PADDLE_RUNTIME_CACHE_DIR must be a directory with room that this user may write"
            raise ModelFault("CacheUnusable", f"{self._root}: {error.strerror}: {advice}") from error

    async def _get(self, store: FileStore, where: str, digest: str) -> Entry:
        files = [] if digest else await _listed(store)
        directory = self._root / (digest.replace(":", "-") or _listing_name(where, files))
        with ExitStack() as on_failure:
            use = on_failure.enter_context(self._lock(f"{directory.name}.use", fcntl.LOCK_SH))
            # A replica that fetches the model found none that is intact, so wait until it ends.
            self._lock(f"{directory.name}.fetch", fcntl.LOCK_SH).close()
            seen = _identity(directory)
            found = known = await asyncio.to_thread(_intact, directory, digest)
            if not known:
                with self._lock(f"{directory.name}.fetch", fcntl.LOCK_EX):
                    _check_same(directory, seen)
                    found = await self._fetch(store, files or await _listed(store), directory, digest)
            on_failure.pop_all()
        os.utime(directory)
        return Entry(directory, found, not known, use)

    async def _fetch(self, store: FileStore, files: Listing, directory: Path, digest: str) -> str:
        """Files that arrived before the store stopped answering are kept for the next attempt."""
        partial = self._partial / directory.name
        try:
            await _finished(self._prepare, partial, files)
            sums = {file.path: await self._download(store, file, partial / file.path) for file in files}
            found = manifest_digest(sums)
            check_digest(found, digest)
            await _finished(self._publish, partial, directory, found)
        except (ModelFault, OSError):
            await _finished(shutil.rmtree, partial, ignore_errors=True)
            raise
        return found

    def _prepare(self, partial: Path, files: Listing) -> None:
        """The partial directory, with only files of this listing in it, and room for the rest."""
        listing = _listing_name("", files)
        mark = partial / _LISTING
        begun = mark.is_file() and mark.read_text() == listing
        if not begun:
            shutil.rmtree(partial, ignore_errors=True)
        # Before anything is written, or a full disk would never get room.
        self._make_room(sum(file.size for file in files) - (_size(partial) if begun else 0))
        if not begun:
            partial.mkdir()
            mark.write_text(listing)

    async def _download(self, store: FileStore, file: StoredFile, target: Path) -> str:
        """Goes on at the end of what is there; gives the SHA-256 of the whole."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a+b") as out:
            out.seek(0)
            digest = await asyncio.to_thread(hashlib.file_digest, out, "sha256")
            if out.tell() < file.size:
                await self._receive(store, file, out, digest)
            out.flush()
            await asyncio.to_thread(os.fsync, out.fileno())
        return digest.hexdigest()

    async def _receive(self, store: FileStore, file: StoredFile, out: IO[bytes], digest: Hash) -> None:
        async for piece in store.read(file, out.tell()):
            await _finished(_append, out, digest, piece)
            self.received += len(piece)
        if out.tell() != file.size:
            out.truncate(0)
            raise Retry("StoreChanged", f"{file.path} has another size than the store listed")

    def _publish(self, partial: Path, directory: Path, digest: str) -> None:
        """Atomic, and it survives a power failure."""
        (partial / _DIGEST).write_text(digest)
        folders = (path for path in partial.rglob("*") if path.is_dir())
        for path in (partial / _DIGEST, partial, *folders):
            _sync(path)
        if directory.exists():
            self._discard(directory)
        partial.rename(directory)
        _sync(directory.parent)

    def _lock(self, name: str, how: int) -> IO[bytes]:
        lock = self._open_lock(name)
        if _try_lock(lock, how):
            return lock
        lock.close()
        raise Retry(
            "CacheBusy",
            "waiting for another replica that fetches this model",
            after=FETCH_CHECK_INTERVAL_SECONDS,
        )

    def _open_lock(self, name: str) -> IO[bytes]:
        return (self._locks / name).open("ab")

    def _make_room(self, needed: int) -> None:
        """Free `needed` bytes: first partial models that no replica fetches, then the least recently used."""
        self._empty_trash()
        kept = [*_kept(self._partial, "fetch"), *_kept(self._root, "use")]
        free = shutil.disk_usage(self._root).free
        excess = needed + max(sum(one.size for one in kept) - self._limit, -free)
        for one in kept:
            if excess > 0 and self._remove(one):
                excess -= one.size

    def _remove(self, one: _Kept) -> bool:
        """Whether it is gone. No failure to remove may keep this replica from starting."""
        with self._open_lock(f"{one.path.name}.{one.lock}") as lock:
            if not _try_lock(lock, fcntl.LOCK_EX):
                return False
            try:
                self._discard(one.path)
            except OSError as error:
                log.warning("cannot be removed from the cache", directory=str(one.path), error=str(error))
                return False
        log.info("removed from the cache", directory=str(one.path))
        return True

    def _discard(self, directory: Path) -> None:
        """Renamed first: a kill leaves no half of a model under its name."""
        moved = directory.rename(self._trash / f"{directory.name}.{uuid4().hex}")
        shutil.rmtree(moved, ignore_errors=True)

    def _empty_trash(self) -> None:
        """Remove folders that killed replicas had begun to remove."""
        for path in self._trash.iterdir():
            if _NAME.match(path.name):
                shutil.rmtree(path, ignore_errors=True)


def _identity(directory: Path) -> tuple[int, int] | None:
    """Another one once the directory was replaced."""
    with suppress(FileNotFoundError):
        found = directory.stat()
        return found.st_ino, found.st_ctime_ns
    return None


def _check_same(directory: Path, seen: tuple[int, int] | None) -> None:
    if _identity(directory) != seen:
        raise Retry("CacheBusy", "another replica has fetched this model", after=0)


def _intact(directory: Path, digest: str) -> str:
    """The digest of a model that was fetched before; "" if there is none, or it was changed since."""
    if not directory.exists():
        return ""
    found = wanted = ""
    with suppress(ModelFault, FileNotFoundError, NotADirectoryError):
        wanted = digest or (directory / _DIGEST).read_text(errors="replace")
        found = directory_digest(directory)
    if found and found == wanted:
        return found
    log.warning("cached model was changed, fetching it again", directory=str(directory), digest=found)
    return ""


def _kept(folder: Path, lock: str) -> list[_Kept]:
    """The cache's entries in a folder, the least recently used first; other replicas may remove some."""
    found = []
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            with suppress(OSError):
                found.append(_Kept(path, _size(path), path.stat().st_mtime, lock))
    return sorted(found, key=lambda one: one.used)


async def _finished(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """In a thread, to its end: a lock must not be given up while a cancelled thread still writes."""
    return await finish(asyncio.to_thread(function, *args, **kwargs))


async def _listed(store: FileStore) -> Listing:
    """The listed files of the model. Raises ModelFault: there are none."""
    files = [file for file in await store.list() if file.path and not file.path.endswith("/")]
    visible = [file for file in files if not is_hidden(check_path(file.path))]
    if not visible:
        raise ModelFault("NoModel", "the prefix of PADDLE_RUNTIME_MODEL_URI holds no files")
    return visible


def _listing_name(where: str, files: Listing) -> str:
    lines = sorted(f"{file.path}\n{file.size}\n{file.tag or file.modified}\n" for file in files)
    return f"listing-{hashlib.sha256(''.join([where, *lines]).encode()).hexdigest()}"


def _append(out: IO[bytes], digest: Hash, piece: bytes) -> None:
    out.write(piece)
    digest.update(piece)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(lock: IO[bytes], how: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        return True
    return False


def _size(directory: Path) -> int:
    """The digest of the model's own files."""
    return sum(path.stat().st_size for path in directory.rglob("[!.]*") if path.is_file())
