"""Records that the bus has refused: each backs off by itself, and keeps its trouble meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.operator.domain.plan import Trouble, earliest
from paddlewheel.operator.executor import BACKOFF_BASE, BACKOFF_CAP, Owner


@dataclass(frozen=True)
class _Held:
    """Not tried again before `until`, unless the owner's spec has changed."""

    trouble: Trouble
    generation: int
    until: float


class Refusals:
    """Remembers, by owner and record, what the bus last answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoff: Backoff[tuple[str, str]] = Backoff(BACKOFF_BASE, BACKOFF_CAP)
        self._held: dict[str, dict[str, _Held]] = {}

    def of(self, owner_uid: str) -> tuple[Trouble, ...]:
        """The troubles of all records that were refused, those included that are due or could not be tried
        since: until the bus takes a record, its condition stays."""
        return tuple(held.trouble for held in self._held.get(owner_uid, {}).values())

    def is_waiting(self, owner: Owner, record: str) -> bool:
        """The record was refused and is not due to be tried again."""
        held = self._held.get(owner.uid, {}).get(record)
        if held is None or held.generation != owner.generation:
            return False
        return self._clock.monotonic() < held.until

    def hold(self, owner: Owner, record: str, trouble: Trouble) -> None:
        """The record was refused."""
        until = self._clock.monotonic() + self._backoff.next((owner.uid, record))
        self._held.setdefault(owner.uid, {})[record] = _Held(trouble, owner.generation, until)

    def release(self, owner_uid: str, record: str) -> None:
        """The record was taken, or is not wanted any more."""
        held = self._held.get(owner_uid)
        if held is None or held.pop(record, None) is None:
            return
        self._backoff.reset((owner_uid, record))
        if not held:
            del self._held[owner_uid]

    def retain(self, owner_uid: str, wanted: Collection[str]) -> None:
        """Forget the owner's other records."""
        for record in [r for r in self._held.get(owner_uid, {}) if r not in wanted]:
            self.release(owner_uid, record)

    def retry_after(self, owner_uid: str) -> float | None:
        """Seconds until the owner's first refused record is due, None when none was refused."""
        now = self._clock.monotonic()
        return earliest(*(max(0.0, held.until - now) for held in self._held.get(owner_uid, {}).values()))
