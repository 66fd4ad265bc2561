"""The running handlers of this process, and which of them are past their deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from paddlewheel.bus.ports import Subscription
from paddlewheel.core.clock import Clock
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


@dataclass
class _Running:
    durable: str
    subject: str
    since: float
    deadline: float
    is_logged: bool = False


class Handlers:
    """The running handlers of all consumers. A late one is not cancelled: its backend may be slow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, _Running] = {}
        self._numbers = count()

    @contextmanager
    def running(self, subscription: Subscription, subject: str) -> Iterator[None]:
        """Count a handler as running within the block."""
        number, now = next(self._numbers), self._clock.monotonic()
        self._running[number] = _Running(subscription.durable, subject, now, subscription.handle_within)
        try:
            yield
        finally:
            ended = self._running.pop(number)
            if ended.is_logged:
                seconds = round(self._clock.monotonic() - ended.since)
                log.info("late handler has ended", durable=ended.durable, subject=subject, seconds=seconds)

    def longest(self) -> Mapping[str, float]:
        """Durable to the seconds for which its oldest handler has run; only durables with a handler."""
        now, longest = self._clock.monotonic(), dict[str, float]()
        for handler in self._running.values():
            longest[handler.durable] = max(longest.get(handler.durable, 0.0), now - handler.since)
        return longest

    def late(self) -> Mapping[str, float]:
        """The part of `longest` for durables with a handler that is past its deadline."""
        now = self._clock.monotonic()
        late = {h.durable for h in self._running.values() if now - h.since > h.deadline}
        return {durable: seconds for durable, seconds in self.longest().items() if durable in late}

    def log_late(self) -> None:
        """Log each late handler once."""
        now = self._clock.monotonic()
        for handler in self._running.values():
            if now - handler.since > handler.deadline and not handler.is_logged:
                handler.is_logged = True
                log.warning(
                    "handler takes longer than its deadline",
                    durable=handler.durable,
                    subject=handler.subject,
                    deadline=handler.deadline,
                )
