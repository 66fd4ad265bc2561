"""What others have measured of revisions, as the bus tells it: read from the first one on at every start, and
followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.contracts.generated.measurements_v1 import RevisionMeasured
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import event_filter, parse_event_subject
from serving_controller.domain.measured import Measured

MEASUREMENTS = Reading(
    (event_filter("measurements", "revision", "measured"),), since=datetime(1970, 1, 1, tzinfo=UTC)
)
"""Every replica reads all of them: which service belongs to which replica can change at any time."""


@dataclass
class _Service:
    """Of one service: by revision and metric, when it was measured, and its value."""

    key: Key
    revisions: dict[str, dict[str, tuple[datetime, float]]] = field(default_factory=dict)


class Measurements:
    """The newest measurement of each metric of each revision.

    Args:
        wake: gets the service's namespace and name.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._services: dict[str, _Service] = {}
        self._has_read_all = False

    def caught_up(self) -> None:
        """Everything that was published before the start is known: the newest of it is the newest."""
        self._has_read_all = True
        for service in self._services.values():
            self._wake(service.key)

    async def published(self, delivery: Delivery) -> None:
        """A revision was measured, now or long ago."""
        event = delivery.event
        if not isinstance(event.data, RevisionMeasured) or event.data.service is None:
            return
        about = parse_event_subject(event.subject)
        service = self._services.setdefault(
            about.uid, _Service(Key(about.namespace, event.data.service.name))
        )
        known = service.revisions.setdefault(event.data.revision, {})
        if _take_in(known, event.data.metrics, event.time) and self._has_read_all:
            self._wake(service.key)

    def of(self, uid: str) -> Mapping[str, Measured] | None:
        """By revision; None before all is read: an old value would be taken for the newest."""
        if not self._has_read_all:
            return None
        service = self._services.get(uid)
        revisions = service.revisions if service else {}
        return {name: {m: value for m, (_, value) in known.items()} for name, known in revisions.items()}

    def forget(self, uid: str) -> None:
        """The service is gone; another of its name has another uid."""
        self._services.pop(uid, None)


def _take_in(known: dict[str, tuple[datetime, float]], metrics: Measured, at: datetime) -> bool:
    """Of two of the same moment, the one stored last."""
    newer = {
        name: (at, value) for name, value in metrics.items() if name not in known or known[name][0] <= at
    }
    known |= newer
    return bool(newer)
