"""What pods of this node have written and no store has: as last measured, and whether there may be more."""

from __future__ import annotations

import math
from datetime import datetime

import structlog

from cache_runtime.engines.ports import Engine
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.staged_writes import left_on_node
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)


class StagedWrites:
    """The figure of one node.

    Args:
        lasts: seconds from the begin of a measurement for which its figure counts: pods may write more.
        is_writeback: pods write to the cache first. Where they do not, what is staged only becomes less.
    """

    def __init__(self, engine: Engine, clock: Clock, lasts: float, *, is_writeback: bool) -> None:
        self._engine, self._clock, self._lasts, self._is_writeback = engine, clock, lasts, is_writeback
        self.bytes = 0
        """At least so many."""
        self._is_incomplete = True
        self._begun: tuple[float, datetime | None] | None = None
        """When the measurement of the figure began, and since when the mount was then as it was."""

    @property
    def is_unknown(self) -> bool:
        """There may be more than `bytes`, or nobody has measured them."""
        return self._is_incomplete or (self._is_writeback and not self._is_current)

    @property
    def age(self) -> int:
        """Seconds in which pods may have written since; the figure of those that do not write here first
        stays true."""
        if self._begun is None or not self._is_writeback:
            return 0
        return math.ceil(self._clock.monotonic() - self._begun[0])

    @property
    def _is_current(self) -> bool:
        """Between a measurement and the end of the mount, pods may have written, or the client at its end."""
        mount = self._engine.mount
        if self._begun is None or mount.is_ending:
            return False
        at, changed_at = self._begun
        return changed_at == mount.changed_at and self._clock.monotonic() - at < self._lasts

    def recall(self, last: NodeStatus) -> None:
        """What the agent before has reported of this node counts until there is a figure of one's own."""
        left = left_on_node(last)
        self.bytes, self._is_incomplete = last.staged_bytes, left is not None and left.staged_unknown

    async def measure(self) -> None:
        """What was there before counts as the least there is, where the disk does not answer."""
        mount = self._engine.mount
        begun = None if mount.is_ending else (self._clock.monotonic(), mount.changed_at)
        try:
            self.bytes = await self._engine.cache.staged_bytes()
        except (Retry, OSError) as error:
            self._begun = None
            log.warning("staged writes not measured", problem=str(error))
        else:
            self._begun, self._is_incomplete = begun, False

    def expire(self) -> None:
        """No measurement that has begun by now counts."""
        self._begun = None
