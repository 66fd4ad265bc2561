"""Every metric of this service; label values are closed sets, never object names."""

from __future__ import annotations

from typing import Literal

from opentelemetry import metrics
from opentelemetry.metrics import Meter

EVENTS = "paddlewheel.triggers.events"
CREATIONS = "paddlewheel.triggers.creations"
NOTIFICATIONS = "paddlewheel.triggers.notifications"
METRIC_NAMES = (EVENTS, CREATIONS, NOTIFICATIONS)


class Metrics:
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        meter = meter or metrics.get_meter(__name__)
        self._events = meter.create_counter(EVENTS, description="events that matched a trigger")
        self._creations = meter.create_counter(CREATIONS, description="creations by kind and outcome")
        self._notifications = meter.create_counter(NOTIFICATIONS, description="webhook posts by outcome")

    def events(self, count: int) -> None:
        """So many events were taken into a trigger's status."""
        if count:
            self._events.add(count)

    def created(self, kind: str, outcome: Literal["created", "refused"]) -> None:
        """An object was created (or was there from an earlier try), or the API server refused it."""
        self._creations.add(1, {"kind": kind, "outcome": outcome})

    def notified(self, outcome: Literal["stored", "refused", "unauthorized", "unavailable"]) -> None:
        """An object store's post was answered."""
        self._notifications.add(1, {"outcome": outcome})
