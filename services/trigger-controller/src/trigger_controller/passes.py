"""Passes at work: one namespace, whose calls hang, must not take all workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock

SLOW_AFTER = 1.0
"""Seconds; a pass whose calls are answered takes a fraction of it."""
SLOW_PASSES = 2
"""Of one namespace at once; there are four workers by default."""
TURN_AFTER = 1.0
"""Seconds until a key is looked at again whose namespace has as many."""


class Passes:
    """Those of all triggers of this replica."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def is_crowded(self, key: Key) -> bool:
        """The namespace of the key has as many slow passes as it may."""
        now, since = self._clock.monotonic(), self._since.items()
        slow = [k for k, at in since if k.namespace == key.namespace and now - at >= SLOW_AFTER]
        return len(slow) >= SLOW_PASSES

    @contextmanager
    def running(self, key: Key) -> Iterator[None]:
        """A pass over the trigger runs within the block."""
        self._since[key] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._since[key]
