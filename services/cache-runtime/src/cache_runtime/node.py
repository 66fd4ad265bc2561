"""Reporting the status of this node to dataset-controller: mount, cache, disks, size of the data set."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from cache_runtime.domain.model import CacheUse, Identity, TreeSize
from cache_runtime.engines.ports import Engine
from cache_runtime.staged import StagedWrites
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import (
    EMPTY_NODE_REPORT_GRACE_SECONDS,
    FIGURES_TIMEOUT_SECONDS,
    LAST_REPORT_INTERVAL_SECONDS,
    SIZE_SETTLED_GRACE_SECONDS,
)
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import NodeKey, set_pattern
from paddlewheel.contracts.staged_writes import LAST_WORD_SECONDS, has_writes, left_on_node
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

MEASURE_SHARE = 10
"""The size is asked for again after so many times what the answer took: an engine may read all there is."""
MESSAGE_MAX = 1000
"""Characters of a message: the bucket takes 16 KiB a record."""

RECENT = 3
"""Intervals after which a look at the reports says nothing of the present."""
ELSEWHERE_MAX = 8
"""Nodes with writes that a partition has left, of those that are named."""


@dataclass(frozen=True)
class Disks:
    """Bytes over the distinct file systems that hold the cache directories.

    Args:
        problem: which directories are left out, and why.
    """

    size: int = 0
    used: int = 0
    available: int = 0
    problem: str = ""


@dataclass(frozen=True)
class CacheLimit:
    """How large the cache may become: bytes over all directories, and the share of their disks left free."""

    size: int
    free_ratio: float = 0.1

    def of(self, disks: Disks, cached: int) -> int:
        """Bytes that the cache can hold at most, with the `cached` ones that it holds already."""
        room = disks.available - int(self.free_ratio * disks.size)
        return max(0, min(self.size, cached + room))


class NodeReporter:
    """Writes NodeStatus every `interval` seconds, and at once when `changed` is set, the mount falls silent,
    or answers again."""

    def __init__(
        self,
        nodes: KeyValue,
        identity: Identity,
        engine: Engine,
        record: VolumeRecord,
        cache_dirs: list[str],
        limit: CacheLimit,
        clock: Clock,
        interval: float,
        *,
        is_writeback: bool = False,
    ) -> None:
        self._nodes, self._identity, self._engine, self._record = nodes, identity, engine, record
        self._dirs, self._limit, self._clock, self._interval = cache_dirs, limit, clock, interval
        self._is_writeback = is_writeback
        self._tree, self._disks, self._use = TreeSize(0, 0), Disks(), CacheUse()
        self._used_at: tuple[datetime, float] | None = None
        """When the measurement of `_use` began, by the node's clock, and monotonic."""
        self._is_size_known = False
        self._size_problem, self._cache_problem = "", "cache: not measured yet"
        lasts = RECENT * interval + FIGURES_TIMEOUT_SECONDS
        self._staged = StagedWrites(engine, clock, lasts, is_writeback=is_writeback)
        self._has_recalled = self._was_unreadable = False
        self._elsewhere: tuple[StagedElsewhere, ...] = ()
        self._told_until = 0.0
        self._heard: Mapping[str, int] = {}
        """Revisions of all partitions' reports when they were looked at last, and when that was."""
        self._heard_at = -math.inf
        measures = (self._measure_disks, self._staged.measure, self._measure_size, self._measure_cache)
        self._measurements = [_Measurement(measure) for measure in measures]
        self._seen: tuple[int, int] | None = None
        self._was_silent = False
        """When it was reported last."""
        self._settled_at = self._measured_again_at = 0.0
        self._measured_at = self._sized_at = -math.inf
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.report()
            mount = self._engine.mount
            await _first_of(
                self.changed.wait(), mount.wait_silent(is_silent=not self._was_silent), timeout=self._interval
            )
            self.changed.clear()

    async def report_last(self) -> None:
        """Once `run` and the mount have ended. What was measured before does not count: at its end the client
        writes what it has buffered. Where pods write to the cache first, nobody else can say that nothing is
        left, so it is tried for `LAST_WORD_SECONDS`."""
        self._stop_measuring()
        self._staged.expire()
        deadline = self._clock.monotonic() + (LAST_WORD_SECONDS if self._is_writeback else 0)
        while not await self._has_reported() and self._clock.monotonic() < deadline:
            await self._clock.sleep(LAST_REPORT_INTERVAL_SECONDS)
        self._stop_measuring()

    async def _has_reported(self) -> bool:
        """And all is known."""
        return await self.report() and not self._staged.is_unknown

    def _stop_measuring(self) -> None:
        for measurement in self._measurements:
            measurement.stop()

    async def report(self) -> bool:
        """Write the record now, and say whether the bus has taken it."""
        key = NodeKey(self._identity.set_uid, self._identity.partition)
        try:
            await self._nodes.put(str(key), to_json(await self._status()))
        except Retry as error:
            log.warning("node status not written", problem=str(error))
            return False
        return True

    async def _status(self) -> NodeStatus:
        me, mount = self._identity, self._engine.mount
        await self._recall()
        await self._measure()
        await self._keep_elsewhere()
        disks, ailment, self._was_silent = self._disks, mount.ailment, mount.is_silent
        use = self._use if mount.is_mounted else CacheUse()
        return NodeStatus(
            set_uid=me.set_uid,
            partition=me.partition,
            agent=me.pod,
            node=me.node,
            mounted=mount.is_mounted,
            message=mount.message[:MESSAGE_MAX],
            cached_bytes=use.cached,
            cached_at=self._used_at[0] if self._used_at else None,
            cached_age=self._cached_age,
            cache_capacity=self._limit.of(disks, use.cached),
            staged_bytes=self._staged.bytes,
            staged_unknown=self._staged.is_unknown,
            staged_age=self._staged.age,
            staged_elsewhere=list(self._elsewhere),
            hit_bytes=use.hit,
            miss_bytes=use.miss,
            disk_size=disks.size,
            disk_used=disks.used,
            disk_available=disks.available,
            total_bytes=self._tree.bytes,
            total_files=self._tree.files,
            size_unknown=not self._is_size_known,
            size_age=self._size_age,
            figures_problem=self._figures_problem[:MESSAGE_MAX],
            updated_at=self._clock.now(),
            ailment=ailment.reason if ailment else "",
            ailment_message=ailment.message[:MESSAGE_MAX] if ailment else "",
            mount_changed_at=mount.changed_at,
            volume_id=self._record.known,
            volume_unknown=self._is_volume_unknown,
            writeback=self._is_writeback,
        )

    async def _measure(self) -> None:
        """Bring the figures up to date as far as that is possible soon. While a database or a disk does not
        answer, the last ones are reported; that the mount does not is reported at once."""
        running = {measurement.running() for measurement in self._measurements}
        silent = self._engine.mount.wait_silent(is_silent=True)
        await _first_of(asyncio.wait(running), silent, timeout=FIGURES_TIMEOUT_SECONDS)
        for task in running:
            if task.done():
                task.result()

    @property
    def _cached_age(self) -> int:
        """Seconds since the measurement began; 0 without one."""
        if self._used_at is None:
            return 0
        return max(1, math.ceil(self._clock.monotonic() - self._used_at[1]))

    @property
    def _size_age(self) -> int:
        """Seconds since the size of the set was current; 0 if it was not measured yet."""
        return max(1, math.ceil(self._clock.monotonic() - self._sized_at)) if self._is_size_known else 0

    @property
    def _figures_problem(self) -> str:
        """Without a mount there is nothing to measure but disks; why, says `message`."""
        mounted = (self._cache_problem, self._size_problem) if self._engine.mount.is_mounted else ()
        return "; ".join(problem for problem in (self._disks.problem, *mounted) if problem)

    async def _measure_disks(self) -> None:
        self._disks = await in_own_thread(lambda: measure_disks(self._dirs))

    async def _measure_size(self) -> None:
        """Beside the cache: an engine may read all there is."""
        if not self._engine.mount.is_mounted:
            return
        try:
            await self._measure_tree()
            self._size_problem = ""
        except Retry as error:
            self._size_problem = f"size of the set: {error.message}"
            log.warning("data set not measured", problem=str(error))

    async def _measure_cache(self) -> None:
        if not self._engine.mount.is_mounted:
            return
        begun = self._clock.now(), self._clock.monotonic()
        try:
            self._use, self._used_at = await self._engine.cache.use(), begun
            self._cache_problem = ""
        except Retry as error:
            self._use, self._used_at, self._cache_problem = CacheUse(), None, f"cache: {error.message}"
            log.warning("cache not measured", problem=str(error))

    async def _recall(self) -> None:
        """Once, before the first report replaces that of the agent before. What that has found on this node,
        and the size of the set, count until there is a figure of one's own. What it has left on others stays
        known, and so does the set's volume, which may be in that report only. Once more while that cannot be
        read: somebody may have restored or deleted it. Raises Retry."""
        if self._has_recalled and not self._is_volume_unknown:
            return
        last = await self._last_report()
        await self._recall_volume()
        self._was_unreadable = last.volume_unknown
        if self._has_recalled:
            return
        self._has_recalled = True
        self._tree = TreeSize(last.total_files, last.total_bytes)
        if last.node == self._identity.node:
            self._staged.recall(last)
        self._elsewhere = left_behind(last, self._identity.node)
        self._told_until = self._clock.monotonic() + EMPTY_NODE_REPORT_GRACE_SECONDS

    @property
    def _is_volume_unknown(self) -> bool:
        return self._was_unreadable and not self._record.known

    async def _recall_volume(self) -> None:
        """A record that cannot be read keeps agents from formatting, and none from saying so: one's own stays
        marked as such, and others are not replaced. Raises Retry."""
        try:
            await self._record.recall()
        except Retry as error:
            if error.reason != Reason.RECORD_UNREADABLE:
                raise

    async def _last_report(self) -> NodeStatus:
        """An empty one where there is none. Raises Retry."""
        me = self._identity
        try:
            entry = await self._nodes.get(str(NodeKey(me.set_uid, me.partition)))
            return from_json(NodeStatus, entry.value or b"{}")
        except NotFound:
            return NodeStatus()
        except Permanent as error:
            log.warning("malformed node record", problem=error.message)
            return NodeStatus(volume_unknown=True)

    async def _keep_elsewhere(self) -> None:
        """Of nodes with nothing only for a while: looking after them reads the reports of the whole set."""
        if self._clock.monotonic() >= self._told_until:
            self._elsewhere = tuple(left for left in self._elsewhere if has_writes(left))
        if self._elsewhere:
            await self._hand_over()

    async def _hand_over(self) -> None:
        """The agents of other partitions report what is left where they are."""
        me, taken = self._identity, set[str]()
        try:
            entries = await self._nodes.entries(set_pattern(me.set_uid))
        except Retry as error:
            log.warning("reports of other partitions not read", problem=str(error))
            return
        for entry in self._written_since(entries):
            with suppress(Permanent):
                report = from_json(NodeStatus, entry.value or b"{}")
                if report.mounted and report.partition != me.partition:
                    taken.add(report.node)
        self._elsewhere = tuple(left for left in self._elsewhere if left.node not in taken)

    def _written_since(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that were written since the last look, if that was lately. Reports outlive their agents, and
        the clock of another node may be ahead: only a new one says that somebody looks after that node."""
        now = self._clock.monotonic()
        before = self._heard if now - self._heard_at < RECENT * self._interval else {}
        self._heard, self._heard_at = {entry.key: entry.revision for entry in entries}, now
        return [entry for entry in entries if before.get(entry.key, entry.revision) < entry.revision]

    async def _measure_tree(self) -> None:
        """Ask for the size only while the counters of the file system change, and once more a little later.

        An engine may update its directory statistics some seconds after those counters.
        """
        counters = await in_own_thread(lambda: _counters(str(self._engine.mount.path)))
        now = self._clock.monotonic()
        if counters != self._seen:
            self._seen, self._settled_at = counters, now + SIZE_SETTLED_GRACE_SECONDS
        if self._measured_at < self._settled_at:
            if now < self._measured_again_at:
                return
            try:
                self._tree = await self._engine.volume.size()
                self._is_size_known, self._measured_at = True, now
            finally:
                ended = self._clock.monotonic()
                self._measured_again_at = ended + MEASURE_SHARE * (ended - now)
        self._sized_at = now


async def _first_of(*waits: Coroutine[Any, Any, Any], timeout: float) -> None:
    """Until one has ended; the others are cancelled."""
    tasks = {asyncio.create_task(each) for each in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


class _Measurement:
    """It may take long, or for ever: no second one begins before its end, and none waits for another."""

    def __init__(self, measure: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._measure = measure
        self._task: asyncio.Task[None] | None = None

    def running(self) -> asyncio.Task[None]:
        """The one that does not answer yet, or else a new one."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._measure())
        return self._task

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None


def left_behind(last: NodeStatus, node: str) -> tuple[StagedElsewhere, ...]:
    """What an agent on `node` knows of other nodes from the last report of its partition. Where pods write to
    the cache first, also that nothing is left there: who has missed that report takes it for unknown."""
    nothing = StagedElsewhere(node=last.node) if last.writeback else None
    own = left_on_node(last) or nothing
    told = (*([own] if own else ()), *(each for each in last.staged_elsewhere if each.node != last.node))
    others = [each for each in told if each.node not in ("", node)]
    # What is unknown may be more than all that is known; of those with nothing the last ones matter.
    ranked = sorted(others, key=lambda each: (not each.staged_unknown, -each.staged_bytes))
    return tuple(ranked[:ELSEWHERE_MAX])


def measure_disks(directories: Iterable[str]) -> Disks:
    """Each file system is counted once, however many cache directories it holds."""
    seen: dict[int, os.statvfs_result] = {}
    problems = []
    for directory in directories:
        try:
            seen.setdefault(os.stat(directory).st_dev, os.statvfs(directory))  # noqa: PTH116
        except FileNotFoundError:  # not there yet
            continue
        except OSError as error:
            problems.append(f"{directory}: {error.strerror}")
    return Disks(
        size=sum(v.f_blocks * v.f_frsize for v in seen.values()),
        used=sum((v.f_blocks - v.f_bfree) * v.f_frsize for v in seen.values()),
        available=sum(v.f_bavail * v.f_frsize for v in seen.values()),
        problem="; ".join(problems),
    )


def _counters(path: str) -> tuple[int, int]:
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise Retry("MountLost", f"{path}: {error.strerror}") from error
    return (found.f_blocks - found.f_bfree, found.f_files - found.f_ffree)
