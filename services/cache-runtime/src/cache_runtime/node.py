"""Telling the data set's controller how this node stands: mount, cache, disks, size of the set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from cache_runtime.adapters.control_file import ControlFile
from cache_runtime.adapters.mount import MountSupervisor
from cache_runtime.domain.control import TreeSize
from cache_runtime.facts import Place
from paddlewheel.bus.ports import KeyValue
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)

SETTLED_AFTER = 30.0
"""Seconds after which a volume that did not change has told its size."""


@dataclass(frozen=True)
class Disks:
    """Bytes over the distinct file systems that hold the cache directories."""

    size: int = 0
    used: int = 0
    available: int = 0


class NodeReporter:
    """Writes NodeStatus every `interval` seconds, and at once when `changed` is set."""

    def __init__(
        self,
        nodes: KeyValue,
        place: Place,
        mount: MountSupervisor,
        control: ControlFile,
        cache_dirs: list[str],
        clock: Clock,
        interval: float,
    ) -> None:
        self._nodes, self._place, self._mount, self._control = nodes, place, mount, control
        self._dirs, self._clock, self._interval = cache_dirs, clock, interval
        self._tree = TreeSize(0, 0)
        self._seen: tuple[int, int] | None = None
        self._moved_at = 0.0
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.report()
            waiter = asyncio.create_task(self.changed.wait())
            try:
                await asyncio.wait({waiter}, timeout=self._interval)
            finally:
                waiter.cancel()
            self.changed.clear()

    async def report(self) -> None:
        """Write the record now."""
        key = f"{self._place.set_uid}.{self._place.partition}"
        try:
            await self._nodes.put(key, to_json(await self._status()))
        except Retry as error:
            log.warning("node status not written", problem=str(error))

    async def _status(self) -> NodeStatus:
        place, disks = self._place, await asyncio.to_thread(measure_disks, self._dirs)
        cached = await self._measure_cache() if self._mount.is_mounted else 0
        return NodeStatus(
            set_uid=place.set_uid,
            partition=place.partition,
            agent=place.pod,
            node=place.node,
            mounted=self._mount.is_mounted,
            message=self._mount.message,
            cached_bytes=cached,
            disk_size=disks.size,
            disk_used=disks.used,
            disk_available=disks.available,
            total_bytes=self._tree.bytes,
            total_files=self._tree.files,
            updated_at=self._clock.now(),
        )

    async def _measure_cache(self) -> int:
        try:
            await self._measure_tree()
            return await self._control.cached_bytes()
        except Retry as error:
            log.warning("cache not measured", problem=str(error))
            return 0

    async def _measure_tree(self) -> None:
        """Ask for the tree's size only while the volume's own counters move, and a little longer.

        JuiceFS flushes its directory statistics some seconds after those counters.
        """
        counters, now = await asyncio.to_thread(_counters, str(self._mount.path)), self._clock.monotonic()
        if counters != self._seen:
            self._seen, self._moved_at = counters, now
        if now - self._moved_at < SETTLED_AFTER:
            self._tree = await self._control.tree_size()


def measure_disks(directories: Iterable[str]) -> Disks:
    """Each file system once, however many cache directories lie on it."""
    seen: dict[int, os.statvfs_result] = {}
    for directory in directories:
        try:
            seen.setdefault(os.stat(directory).st_dev, os.statvfs(directory))  # noqa: PTH116
        except FileNotFoundError:
            continue
    return Disks(
        size=sum(v.f_blocks * v.f_frsize for v in seen.values()),
        used=sum((v.f_blocks - v.f_bfree) * v.f_frsize for v in seen.values()),
        available=sum(v.f_bavail * v.f_frsize for v in seen.values()),
    )


def _counters(path: str) -> tuple[int, int]:
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise Retry("MountLost", f"{path}: {error.strerror}") from error
    return (found.f_blocks - found.f_bfree, found.f_files - found.f_ffree)
