"""What ails a mount that lives: its database, its object store, the disks of its cache.

The client waits and tries again by itself, so the mount stays, and what is cached is read on. What is
observed here is only reported.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.ports import Ailment
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import (
    MOUNT_CHECK_TIMEOUT_SECONDS,
    STORE_CHECK_INTERVAL_SECONDS,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock

_FREE = "free-space-ratio"
_FREE_DEFAULT = 0.1
_PORTS = {"http": 80, "https": 443}
_TLS = ssl._create_unverified_context()  # noqa: S323 - nothing is sent, and nothing that is said is believed
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@dataclass(frozen=True)
class Surroundings:
    """What a mount depends on.

    Args:
        free_ratio: share of a disk that the client leaves free.
    """

    mount: Path
    cache_dirs: Sequence[str]
    free_ratio: float = _FREE_DEFAULT


class Care:
    """Looks after one mount."""

    def __init__(self, around: Surroundings, engine: EngineSecret, clock: Clock) -> None:
        self._around, self._engine, self._clock = around, engine, clock
        self._looks: dict[str, asyncio.Task[Ailment | None]] = {}
        self._refused = 0
        self._ask_store_at = 0.0

    async def look(self) -> Ailment | None:
        """The most serious ailment, None when all is well. Takes `MOUNT_CHECK_TIMEOUT_SECONDS` at most."""
        around = self._around
        disks, database, store = await asyncio.gather(
            self._blocking("disks", lambda: check_disks(around.cache_dirs, around.free_ratio), _DISKS_SILENT),
            self._blocking("database", lambda: _check_database(around.mount), _DATABASE_SILENT),
            self._check_store(),
        )
        return database or store or disks

    async def _blocking(
        self, name: str, check: Callable[[], Ailment | None], silent: Ailment
    ) -> Ailment | None:
        """While one look hangs, there is no second: each would hold a thread."""
        task = self._looks.pop(name, None) or asyncio.create_task(in_own_thread(check))
        done, _ = await asyncio.wait({task}, timeout=MOUNT_CHECK_TIMEOUT_SECONDS)
        if done:
            return task.result()
        self._looks[name] = task
        return silent

    async def _check_store(self) -> Ailment | None:
        """Twice in a row, for a connection may fail once; with each look until it answers again."""
        store = store_address(self._engine.bucket)
        if store is None or any(os.environ.get(name) for name in _PROXIES):
            return None
        if self._clock.monotonic() < self._ask_store_at:
            return None
        problem = await ask_store(store)
        self._refused = self._refused + 1 if problem else 0
        if not problem:
            self._ask_store_at = self._clock.monotonic() + STORE_CHECK_INTERVAL_SECONDS
        if self._refused < 2:
            return None
        return Ailment(
            Reason.STORE_UNREACHABLE,
            f"the object store at {store.host}:{store.port} does not answer ({problem}): start it, or correct"
            " `bucket` in the engine's Secret; what is cached is read on",
        )

    def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._looks.values():
            task.cancel()


_DATABASE_SILENT = Ailment(
    Reason.DATABASE_UNREACHABLE,
    "the database of the volume does not answer: start it, or correct `metaurl` in the engine's Secret;"
    " reading goes on when it is there again",
)
_DISKS_SILENT = Ailment(
    Reason.CACHE_DISK_FAILED,
    "a cache disk does not answer: replace it, or recreate the set with another in spec.cache.levels",
)


def _check_database(mount: Path) -> Ailment | None:
    """Names that do not exist are looked up there; of the root directory the client makes something up."""
    try:
        (mount / f".paddlewheel-{time.monotonic_ns()}").stat()
    except FileNotFoundError:
        return None
    except OSError:
        return _DATABASE_SILENT
    return None


def check_disks(directories: Sequence[str], free_ratio: float) -> Ailment | None:
    """The client keeps nothing more on a disk that has less free than `free_ratio`, and gives up what it has
    cached itself: half of that is only missed when others have filled the disk. Blocks."""
    for directory in directories:
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            return _failed(directory, error.strerror or str(error))
        if found.f_flag & os.ST_RDONLY:
            return _failed(directory, "the disk is read-only")
        if is_full(found, free_ratio):
            free = 100 * found.f_bavail // max(1, found.f_blocks)
            return Ailment(
                Reason.CACHE_DISK_FULL,
                f"cache directory {directory}: {free} % of the disk are free, and nothing is cached below"
                f" {100 * free_ratio:.0f} %: free some, or recreate the set with another disk in"
                " spec.cache.levels",
            )
    return None


def is_full(found: os.statvfs_result, free_ratio: float) -> bool:
    """By bytes or by files, where the file system counts those."""
    limit = free_ratio / 2
    return found.f_bavail < limit * found.f_blocks or found.f_favail < limit * found.f_files


def _failed(directory: str, problem: str) -> Ailment:
    return Ailment(
        Reason.CACHE_DISK_FAILED,
        f"cache directory {directory}: {problem}: replace the disk, or recreate the set with another in"
        " spec.cache.levels",
    )


def free_ratio(options: Mapping[str, str]) -> float:
    """Of the manifest's mount options; the client refuses what is no number."""
    with suppress(ValueError):
        return float(options.get(_FREE, ""))
    return _FREE_DEFAULT


@dataclass(frozen=True)
class StoreAddress:
    """Where the object store answers HTTP."""

    host: str
    port: int
    is_tls: bool = False


def store_address(bucket: str) -> StoreAddress | None:
    """None for a store that speaks another protocol, such as Redis, or has no address of this kind."""
    with suppress(ValueError):
        parts = urlsplit(bucket)
        if parts.hostname and parts.scheme in _PORTS:
            port = parts.port or _PORTS[parts.scheme]
            return StoreAddress(parts.hostname, port, parts.scheme == "https")
    return None


async def ask_store(store: StoreAddress) -> str:
    """Why the store gives no answer, "" when it does.

    Any answer is one: it may want keys, know no HEAD, or be short of time for a moment.
    """
    try:
        async with asyncio.timeout(MOUNT_CHECK_TIMEOUT_SECONDS):
            return "" if await _head(store) else "the connection was closed"
    except TimeoutError:
        return f"silent for {MOUNT_CHECK_TIMEOUT_SECONDS:.0f} s"
    except ssl.SSLError:
        return ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    except UnicodeError:
        return f"{store.host!r} is no host name"


async def _head(store: StoreAddress) -> bytes:
    """The first bytes of the answer."""
    reader, writer = await asyncio.open_connection(store.host, store.port, ssl=_TLS if store.is_tls else None)
    try:
        writer.write(f"HEAD / HTTP/1.1\r\nHost: {store.host}\r\nConnection: close\r\n\r\n".encode())
        return await reader.read(1)
    finally:
        # The end of a TLS connection would be waited for, and it is no part of the answer.
        writer.transport.abort()
