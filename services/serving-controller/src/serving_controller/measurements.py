"""What others have measured of revisions, as the bus tells it: read from the first one on at every start, and
followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.contracts.generated.measurements_v1 import RevisionMeasured
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import event_filter, parse_event_subject
from serving_controller.domain.measured import Measured

MEASUREMENTS = Reading(
    (event_filter("measurements", "revision", "measured"),), since=datetime(1970, 1, 1, tzinfo=UTC)
)
"""Every replica reads all of them: which service belongs to which replica can change at any time."""

NAME_LENGTH = 63
"""Characters of a revision's or metric's name, at most: no other can be in a status or a spec."""
REVISIONS = 16
"""Revisions of a service that are remembered, at most."""
METRICS = 64
"""Metrics of a revision that are remembered, at most."""

_Values = dict[str, tuple[datetime, float]]
"""By metric, when it was measured, and its value."""
_V = TypeVar("_V")


class Measurements:
    """The newest measurement of each metric of each revision. Who measures is not ours: services that do not
    exist and names that nothing can have are passed over, and what was measured last is remembered.

    Args:
        find: gives the namespace and name of the service with a uid, None when there is none.
        wake: gets them.
    """

    def __init__(self, find: Callable[[str], Key | None], wake: Callable[[Key], None]) -> None:
        self._find = find
        self._wake = wake
        self._services: dict[str, dict[str, _Values]] = {}
        self._has_read_all = False

    def caught_up(self) -> None:
        """Everything that was published before the start is known: the newest of it is the newest."""
        self._has_read_all = True
        for uid in self._services:
            if key := self._find(uid):
                self._wake(key)

    async def published(self, delivery: Delivery) -> None:
        """A revision was measured, now or long ago."""
        event = delivery.event
        if not isinstance(event.data, RevisionMeasured) or len(event.data.revision) > NAME_LENGTH:
            return
        uid = parse_event_subject(event.subject).uid
        key = self._find(uid)
        if key is None:
            return
        revisions = self._services.setdefault(uid, {})
        known = revisions.get(event.data.revision, {})
        _put_last(revisions, event.data.revision, known, REVISIONS)
        # A clock that is ahead would shut out what is measured later.
        at = min(event.time, delivery.published_at)
        if _take_in(known, event.data.metrics, at) and self._has_read_all:
            self._wake(key)

    def of(self, uid: str) -> Mapping[str, Measured] | None:
        """By revision; None before all is read: an old value would be taken for the newest."""
        if not self._has_read_all:
            return None
        revisions = self._services.get(uid, {})
        return {name: {m: value for m, (_, value) in known.items()} for name, known in revisions.items()}

    def forget(self, uid: str) -> None:
        """The service is gone; another of its name has another uid."""
        self._services.pop(uid, None)


def _take_in(known: _Values, metrics: Measured, at: datetime) -> bool:
    """Of two of the same moment, the one stored last."""
    newer = [
        name for name in metrics if len(name) <= NAME_LENGTH and (name not in known or known[name][0] <= at)
    ]
    for name in newer:
        _put_last(known, name, (at, metrics[name]), METRICS)
    return bool(newer)


def _put_last(known: dict[str, _V], name: str, value: _V, most: int) -> None:
    """At the end of those remembered; beyond `most` the first is dropped."""
    known.pop(name, None)
    known[name] = value
    if len(known) > most:
        del known[next(iter(known))]
