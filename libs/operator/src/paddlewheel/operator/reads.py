"""Reads of the API server in an observation. A failed read becomes a Trouble, and has its own backoff."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from paddlewheel.contracts.keys import Key
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.failures import RETRY_MAX_INTERVAL_SECONDS, RETRY_MIN_INTERVAL_SECONDS

T = TypeVar("T")
_Target = tuple[str, Key]


class Reads:
    """Makes reads, and remembers the failed ones that are still made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoff: Backoff[_Target] = Backoff(RETRY_MIN_INTERVAL_SECONDS, RETRY_MAX_INTERVAL_SECONDS)
        self._held: dict[_Target, tuple[Trouble, float]] = {}

    async def attempt(self, kind: str, key: Key, read: Callable[[], Awaitable[T]]) -> T | Trouble:
        """The result of a read. Until a failed read is due again, its Trouble.

        Args:
            kind, key: the object that is read, or for which the read is made. They identify the read.
            read: makes the read. Retry and Permanent become a Trouble; other errors are not caught.
        """
        target = (kind, key)
        held = self._held.get(target)
        if held is not None and self._clock.monotonic() < held[1]:
            return held[0]
        try:
            answer = await read()
        except (Retry, Permanent) as error:
            trouble = Trouble("read", kind, key, error.reason, error.message or error.reason)
            self._hold(target, trouble)
            return trouble
        self.forget(kind, key)
        return answer

    def __len__(self) -> int:
        return len(self._held)

    def _hold(self, target: _Target, trouble: Trouble) -> None:
        """Remember a failure, and forget failures whose reads were not repeated when they were due.

        The oldest failure comes first.
        """
        now = self._clock.monotonic()
        self._held.pop(target, None)
        self._held[target] = (trouble, now + self._backoff.next(target))
        while now > next(iter(self._held.values()))[1] + RETRY_MAX_INTERVAL_SECONDS:
            self.forget(*next(iter(self._held)))

    def retry_after(self, kind: str, key: Key) -> float | None:
        """Seconds until a failed read is due again. None when it has not failed."""
        held = self._held.get((kind, key))
        return None if held is None else max(0.0, held[1] - self._clock.monotonic())

    def forget(self, kind: str, key: Key) -> None:
        """Forget the failure of a read that has succeeded, or is no longer needed."""
        self._held.pop((kind, key), None)
        self._backoff.reset((kind, key))
