"""What failed for an object: each piece of work backs off by itself, and keeps its trouble meanwhile."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.operator.domain.plan import Trouble

RETRY_MIN_INTERVAL_SECONDS = 1.0
RETRY_MAX_INTERVAL_SECONDS = 60.0
"""Seconds between two tries of work that keeps failing."""

W = TypeVar("W", bound=Hashable)
"""Identifies one piece of an owner's work."""


@dataclass(frozen=True)
class Owner:
    """The object whose plan is carried out."""

    uid: str
    generation: int


@dataclass(frozen=True)
class _Held:
    """Not tried again before `until`, unless the owner's spec has changed."""

    trouble: Trouble
    generation: int
    until: float


class Failures(Generic[W]):
    """Remembers, by owner and work, what failed last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoff: Backoff[tuple[str, W]] = Backoff(
            RETRY_MIN_INTERVAL_SECONDS, RETRY_MAX_INTERVAL_SECONDS
        )
        self._held: dict[str, dict[W, _Held]] = {}

    def of(self, owner_uid: str) -> tuple[Trouble, ...]:
        """All troubles, those included that are due again."""
        return tuple(held.trouble for held in self._held.get(owner_uid, {}).values())

    def waiting(self, owner: Owner, work: W, at: float) -> Trouble | None:
        """The trouble of work that failed and is not due at that time of the monotonic clock."""
        held = self._held.get(owner.uid, {}).get(work)
        is_waiting = held is not None and held.generation == owner.generation and at < held.until
        return held.trouble if held is not None and is_waiting else None

    def hold(self, owner: Owner, work: W, trouble: Trouble, since: float) -> Trouble:
        """The work failed; the wait is counted from `since`, of the monotonic clock."""
        until = since + self._backoff.next((owner.uid, work))
        self._held.setdefault(owner.uid, {})[work] = _Held(trouble, owner.generation, until)
        return trouble

    def release(self, owner_uid: str, work: W) -> None:
        """The work was done, or is not wanted any more."""
        held = self._held.get(owner_uid)
        if held is None or held.pop(work, None) is None:
            return
        self._backoff.reset((owner_uid, work))
        if not held:
            del self._held[owner_uid]

    def retain(self, owner_uid: str, wanted: Iterable[W]) -> None:
        """Forget the owner's other work; `wanted` is read only if something has failed."""
        if owner_uid not in self._held:
            return
        kept = set(wanted)
        for work in [work for work in self._held[owner_uid] if work not in kept]:
            self.release(owner_uid, work)

    def retry_after(self, owner_uid: str, works: Iterable[W] | None = None) -> float | None:
        """Seconds until the first of the failed works (None = of all) is due; None when none has failed."""
        held = self._held.get(owner_uid, {})
        due = [held[work].until for work in (held if works is None else works) if work in held]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None
