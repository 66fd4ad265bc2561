"""Limits the slow passes of each namespace, so that a namespace whose calls hang cannot occupy all
workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from trigger_controller.timing import SLOW_PASS_GRACE_SECONDS

SLOW_PASSES = 2
"""Slow passes of one namespace at the same time, at most. There are four workers by default."""


class Passes:
    """The running passes of this replica."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def is_crowded(self, key: Key) -> bool:
        """Whether the key's namespace has the maximum number of slow passes."""
        now, since = self._clock.monotonic(), self._since.items()
        slow = [k for k, at in since if k.namespace == key.namespace and now - at >= SLOW_PASS_GRACE_SECONDS]
        return len(slow) >= SLOW_PASSES

    @contextmanager
    def running(self, key: Key) -> Iterator[None]:
        """Count a pass over the trigger, for as long as the block runs."""
        self._since[key] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._since[key]
