"""Metrics of this service beside those of every controller."""

from __future__ import annotations

from typing import Literal

from opentelemetry.metrics import Meter

from paddlewheel.operator.metrics import FactMetrics


class Metrics(FactMetrics):
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        super().__init__("triggers", meter)
        self._events = self.meter.create_counter(
            "paddlewheel.triggers.events", description="events that matched a trigger"
        )
        self._creations = self.meter.create_counter(
            "paddlewheel.triggers.creations", description="creations by kind and outcome"
        )
        self._notifications = self.meter.create_counter(
            "paddlewheel.triggers.notifications", description="webhook posts by outcome"
        )

    def events(self, count: int) -> None:
        """Events were recorded in a trigger's status."""
        if count:
            self._events.add(count)

    def created(self, kind: str, outcome: Literal["created", "refused"]) -> None:
        """A child was created (or found from an earlier try), or the API server refused it."""
        self._creations.add(1, {"kind": kind, "outcome": outcome})

    def notified(self, outcome: Literal["stored", "refused", "unauthorized", "unavailable"]) -> None:
        """An object store's post was answered."""
        self._notifications.add(1, {"outcome": outcome})
