"""Remembers the failed work of each object. Each piece of work has its own backoff."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.operator.domain.plan import Trouble

RETRY_MIN_INTERVAL_SECONDS = 1.0
RETRY_MAX_INTERVAL_SECONDS = 60.0
"""Interval between two attempts of work that keeps failing."""

W = TypeVar("W", bound=Hashable)
"""Identifies one piece of work of an owner."""


@dataclass(frozen=True)
class Owner:
    """The object whose plan is executed."""

    uid: str
    generation: int


@dataclass(frozen=True)
class _Held:
    """Failed work. It is not retried before `until`, unless the spec of the owner changes."""

    trouble: Trouble
    generation: int
    until: float


class Failures(Generic[W]):
    """The last failure of each piece of work, by owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoff: Backoff[tuple[str, W]] = Backoff(
            RETRY_MIN_INTERVAL_SECONDS, RETRY_MAX_INTERVAL_SECONDS
        )
        self._held: dict[str, dict[W, _Held]] = {}

    def of(self, owner_uid: str) -> tuple[Trouble, ...]:
        """All troubles of an owner, including work that is due for a retry."""
        return tuple(held.trouble for held in self._held.get(owner_uid, {}).values())

    def waiting(self, owner: Owner, work: W, at: float) -> Trouble | None:
        """The trouble of failed work that is not due at the monotonic time `at`."""
        held = self._held.get(owner.uid, {}).get(work)
        is_waiting = held is not None and held.generation == owner.generation and at < held.until
        return held.trouble if held is not None and is_waiting else None

    def hold(self, owner: Owner, work: W, trouble: Trouble, since: float) -> Trouble:
        """Record failed work. The wait starts at the monotonic time `since`."""
        until = since + self._backoff.next((owner.uid, work))
        self._held.setdefault(owner.uid, {})[work] = _Held(trouble, owner.generation, until)
        return trouble

    def release(self, owner_uid: str, work: W) -> None:
        """Forget the failure of work that was done, or is no longer wanted."""
        held = self._held.get(owner_uid)
        if held is None or held.pop(work, None) is None:
            return
        self._backoff.reset((owner_uid, work))
        if not held:
            del self._held[owner_uid]

    def retain(self, owner_uid: str, wanted: Iterable[W]) -> None:
        """Forget the failures of all other work of the owner. `wanted` is read only if there are failures."""
        if owner_uid not in self._held:
            return
        kept = set(wanted)
        for work in [work for work in self._held[owner_uid] if work not in kept]:
            self.release(owner_uid, work)

    def retry_after(self, owner_uid: str, works: Iterable[W] | None = None) -> float | None:
        """Seconds until the first of the failed works is due. None when none has failed.

        Args:
            works: the works to consider. None means all works of the owner.
        """
        held = self._held.get(owner_uid, {})
        due = [held[work].until for work in (held if works is None else works) if work in held]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None
