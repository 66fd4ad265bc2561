"""Since when objects of a job are in some state, by our own clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from paddlewheel.core.clock import Clock


class Sightings:
    """Forgets an object once it is in that state no more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, dict[str, float]] = {}

    def of(self, job_uid: str, uids: Collection[str]) -> Mapping[str, datetime]:
        """The times of the objects that are in the state now."""
        before, now, wall = self._since.pop(job_uid, {}), self._clock.monotonic(), self._clock.now()
        since = {uid: before.get(uid, now) for uid in uids}
        if since:
            self._since[job_uid] = since
        return {uid: wall - timedelta(seconds=now - at) for uid, at in since.items()}

    def forget(self, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
        self._since.pop(job_uid, None)
