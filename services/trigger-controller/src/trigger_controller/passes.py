"""Passes at work: one namespace, whose calls hang, must not take all workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from trigger_controller.timing import SLOW_PASS_GRACE_SECONDS

SLOW_PASSES = 2
"""Of one namespace at once; there are four workers by default."""


class Passes:
    """Those of all triggers of this replica."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def is_crowded(self, key: Key) -> bool:
        """The namespace of the key has as many slow passes as it may."""
        now, since = self._clock.monotonic(), self._since.items()
        slow = [k for k, at in since if k.namespace == key.namespace and now - at >= SLOW_PASS_GRACE_SECONDS]
        return len(slow) >= SLOW_PASSES

    @contextmanager
    def running(self, key: Key) -> Iterator[None]:
        """A pass over the trigger runs within the block."""
        self._since[key] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._since[key]
