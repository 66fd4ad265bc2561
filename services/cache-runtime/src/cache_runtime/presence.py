"""Which partitions of the set can work now, by what their agents report about their nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC

import structlog

from cache_runtime.domain.shares import Silence
from cache_runtime.timing import STALE_REPORT_GRACE_SECONDS
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.run_keys import parse_node_key, set_pattern
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

log = structlog.get_logger(__name__)


@dataclass
class _Seen:
    """The last report, and when it was heard of and last said that the mount is there, by the own clock; and
    whether the bus has it no more, or it was old when it was read."""

    report: NodeStatus
    heard_at: float
    mounted_at: float | None
    is_gone: bool = False


class Presence:
    """Watches the node records of one set.

    Args:
        away_after: seconds without a report after which an agent counts as away.
    """

    def __init__(self, nodes: KeyValue, set_uid: str, clock: Clock, away_after: float) -> None:
        self._nodes, self._set_uid, self._clock = nodes, set_uid, clock
        self._away_after = away_after
        self._seen: dict[int, _Seen] = {}
        self._since = clock.monotonic()
        """From when on it counts that nothing is heard."""
        self.known = asyncio.Event()
        """Set once all reports that there are have been read."""

    async def watch(self) -> None:
        """Until cancelled."""
        async with aclosing(self._nodes.watch(set_pattern(self._set_uid))) as entries:
            async for entry in entries:
                if entry is None:
                    self._forget_stale()
                    self.known.set()
                else:
                    self._apply(entry)

    @property
    def is_blind(self) -> bool:
        """Nobody is heard, not even oneself: it is the bus that is away."""
        heard = [seen.heard_at for seen in self._seen.values() if not seen.is_gone]
        return not heard or self._clock.monotonic() - max(heard) > self._away_after / 2

    def troubles(self) -> dict[int, str]:
        """Why each partition does no work, "" while it does; without those that are not known, or gone."""
        return {index: self._trouble(seen) for index, seen in self._seen.items() if not seen.is_gone}

    def silences(self, partitions: Iterable[int]) -> dict[int, Silence]:
        """For how long nothing was heard of partitions."""
        now = self._clock.monotonic()
        return {index: self._silence(self._seen.get(index), now) for index in partitions}

    def _silence(self, seen: _Seen | None, now: float) -> Silence:
        if seen is None:
            return Silence(now - self._since)
        return Silence(now - seen.heard_at, seen.report.node)

    def _trouble(self, seen: _Seen) -> str:
        now = self._clock.monotonic()
        if now - seen.heard_at > self._away_after:
            at = seen.report.updated_at
            since = f" since {at.astimezone(UTC):%H:%M:%S} UTC" if at else ""
            return f"its agent has not reported{since}"
        if seen.mounted_at is None or now - seen.mounted_at > self._away_after:
            return f"not mounted: {seen.report.message}" if seen.report.message else "not mounted"
        return ""

    def _forget_stale(self) -> None:
        """Reports outlive their agents. Clocks may differ: who is forgotten wrongly reports again."""
        times = {index: seen.report.updated_at for index, seen in self._seen.items()}
        newest = max((at for at in times.values() if at), default=None)
        for index, at in times.items():
            if newest and at and (newest - at).total_seconds() > STALE_REPORT_GRACE_SECONDS:
                self._seen[index].is_gone = True

    def _count_anew(self, now: float) -> None:
        """The bus was away: what was not heard meanwhile says nothing."""
        self._since = now
        for seen in self._seen.values():
            seen.heard_at = now
            seen.mounted_at = None if seen.mounted_at is None else now

    def _apply(self, entry: Entry) -> None:
        key = parse_node_key(entry.key)
        if key is None:
            return
        if entry.value is None:
            if key.partition in self._seen:
                self._seen[key.partition].is_gone = True
            return
        try:
            report = from_json(NodeStatus, entry.value)
        except Permanent as error:
            log.warning("malformed node record", key=entry.key, problem=error.message)
            return
        now, before = self._clock.monotonic(), self._seen.get(key.partition)
        if before and before.report == report and not before.is_gone:
            # Yielded again after the connection was lost.
            return
        if self.is_blind:
            self._count_anew(now)
        mounted_at = now if report.mounted else before.mounted_at if before else None
        self._seen[key.partition] = _Seen(report, now, mounted_at)
