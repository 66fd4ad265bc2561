"""Noticing a comparison of copies that gets no further: a disk that hangs gives no error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cache_runtime.engines.ports import Ailment
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock

STUCK_AFTER = 30.0
"""Seconds without a step. Longer than a file server may be silent, which is told as what it is."""


@dataclass(frozen=True)
class Step:
    """How far a comparison is.

    Args:
        directory: the cache directory; "" when that is not known.
        number: another one after each step.
    """

    directory: str = ""
    number: int = 0


class Standstill:
    """Of the comparison that is going on, if there is one."""

    def __init__(self, step: Callable[[], Step], clock: Clock) -> None:
        self._step, self._clock = step, clock
        self._seen, self._since = Step(), 0.0
        self._is_comparing = False

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Around a comparison."""
        self._seen, self._since = self._step(), self._clock.monotonic()
        self._is_comparing = True
        try:
            yield
        finally:
            self._is_comparing = False

    def look(self) -> Ailment | None:
        """To be called again and again."""
        now, step = self._clock.monotonic(), self._step()
        if step != self._seen:
            self._seen, self._since = step, now
        if not self._is_comparing or now - self._since < STUCK_AFTER:
            return None
        where = f"cache directory {step.directory}" if step.directory else "a cache directory"
        text = f"comparing its copies has got no further for {STUCK_AFTER:.0f} s: its disk may hang"
        return Ailment(Reason.CACHE_DISK_FAILED, f"{where}: {text}")
