"""The port of a cache engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cache_runtime.domain.model import CacheReport, CacheUse, File, TreeSize
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.core.errors import Retry

MountListener = Callable[[str], Awaitable[None]]
"""Called with "" after mounting, and with the problem after the mount was lost."""


@dataclass(frozen=True)
class Ailment:
    """What is wrong, and what to do about it. Reasons are in `paddlewheel.contracts.reasons`."""

    reason: str
    message: str


class Mount(Protocol):
    """The mount point of the data set on this node."""

    @property
    def path(self) -> Path:
        """Where operations read and write the data set. Pods may find it at another path."""
        ...

    @property
    def is_mounted(self) -> bool: ...

    @property
    def message(self) -> str:
        """Why it is not mounted; "" while it is."""
        ...

    @property
    def ailment(self) -> Ailment | None:
        """Why it is not mounted. While it is mounted: what it waits for, or what is missing."""
        ...

    @property
    def changed_at(self) -> datetime | None:
        """When it was mounted or lost last."""
        ...

    @property
    def changes(self) -> int:
        """How often it was mounted or lost. Data that was read at two numbers may be from two states, and a
        call that began at an earlier number may never return."""
        ...

    @property
    def is_silent(self) -> bool:
        """It is mounted and does not answer: it may be busy, or hang. `ailment` has the reason."""
        ...

    @property
    def is_ending(self) -> bool:
        """It is lost, and its client, which may still write buffered data, has not ended yet."""
        ...

    def leave(self) -> None:
        """The partition leaves this node. If `run` ends soon, it leaves nothing behind."""
        ...

    async def wait_mounted(self) -> None: ...

    async def wait_changed(self, changes: int) -> None:
        """Until `changes` is another number."""
        ...

    async def wait_silent(self, *, is_silent: bool) -> None:
        """Until `is_silent` is this."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Mount, and mount again when the mount is lost, until `stop`. After that the data fails for running
        pods, until the next process on this node has mounted."""
        ...


class Volume(Protocol):
    """The file system of the data set."""

    @property
    def own_inodes(self) -> range:
        """Files of the engine itself. No operation may touch them."""
        ...

    async def remove(self, path: Path) -> str:
        """Remove a path below the mount point, recursively; returns the problem or "". Raises Retry."""
        ...

    async def size(self) -> TreeSize:
        """Size of all files. Raises Retry."""
        ...


class NodeCache(Protocol):
    """The cache of this node. Methods raise Retry while the file system is not mounted."""

    async def warm(self, inodes: Sequence[int], threads: int) -> None:
        """Read all blocks of these files into the cache."""
        ...

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        """Look up which bytes of these files are in the cache. An inode counts each time that it is named."""
        ...

    async def clear(self, directories: Sequence[str]) -> None:
        """Empty these cache directories of this volume."""
        ...

    async def use(self) -> CacheUse:
        """How much is in the cache, and how much it is used."""
        ...

    async def staged_bytes(self) -> int:
        """Bytes that were written to the cache only, and have not reached the store. Mounted or not.

        Raises:
            Retry: a cache directory cannot be read.
        """
        ...


@dataclass(frozen=True)
class SourceReading:
    """A source that was read completely.

    Args:
        size: the objects that pass the filters. Directories count as files where they are listed.
        delete_extra: delete the files that only the destination has, and copy nothing. It uses the objects
            that were read, or the same mount: the address may lead to another, empty directory by now. It
            may be called again after a partial deletion. Raises Retry when the source or the volume is
            away, and Permanent when they refuse.
    """

    size: TreeSize
    delete_extra: Callable[[], Awaitable[None]]


class NotBegun(Retry):
    """No object was copied: the next try is the first one."""


@dataclass(frozen=True)
class Copied:
    """The result of a copy.

    Args:
        failed: objects that failed, with the reason.
        kept: how many were neither copied nor compared: they were there with the same size or, with
            `update`, not older than in the source. None when that is not known.
        away: those of `failed` that a later try may copy, once a store or the database is there again.
    """

    failed: Mapping[bytes, str] = field(default_factory=dict)
    kept: int | None = 0
    away: frozenset[bytes] = frozenset()


class Transfer(Protocol):
    """Copies from a source into the volume."""

    @property
    def tells_time(self) -> bool:
        """Whether copied files get the time of this node's clock as their last change, and the mounts of all
        nodes show this time after a second at most."""
        ...

    def list(self, sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        """List the objects of the source that pass the filters, in the order of their keys. A link is listed
        as a file, and copying it fails.

        Raises:
            Permanent: the source can never be listed.
            Retry: the source did not answer.
        """
        ...

    async def copy(self, sync: SyncOperation, keys: Sequence[bytes], mbps: int, torn: set[bytes]) -> Copied:
        """Copy objects. Cancelled when it takes too long.

        Args:
            mbps: bandwidth limit in Mbit per second; 0 = none.
            torn: takes the objects of which parts of two versions may be there, also where the copy ends
                with an error or is cancelled.
        """
        ...

    async def sizes(self, sync: SyncOperation, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        """Sizes of the files in the destination, as the volume itself has them, whatever a mount remembers.
        Files that do not exist are left out. Raises Retry or Permanent when the volume does not answer."""
        ...

    async def read_source(self, sync: SyncOperation) -> SourceReading:
        """Read the source completely, to delete what it does not have. Raises as `list`."""
        ...

    async def delete_copied(self, sync: SyncOperation, mbps: int, torn: set[bytes]) -> None:
        """Delete what has arrived from the source, each after a comparison of its content. What differs is
        copied, and stays in the source.

        Args:
            mbps, torn: as of `copy`.

        Raises:
            Retry: the source or the volume is away; what is deleted by then may be asked for again.
            Permanent: they refuse.
        """
        ...

    async def close(self) -> None:
        """Release what sources needed."""
        ...


@dataclass(frozen=True)
class Engine:
    """One cache engine on one node."""

    mount: Mount
    volume: Volume
    cache: NodeCache
    transfer: Transfer
