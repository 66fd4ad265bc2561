"""Metrics of this service beside those of every controller."""

from __future__ import annotations

from typing import Literal

from opentelemetry.metrics import Meter

from paddlewheel.operator.domain.plan import Applied
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

    def created(self, applied: Applied) -> None:
        """Children were created (or found from an earlier try), or the API server refused them."""
        refused = (t.kind for t in applied.troubles if t.verb == "create" and t.is_refusal)
        for kind in (child.kind for child in applied.children):
            self._creations.add(1, {"kind": kind, "outcome": "created"})
        for kind in refused:
            self._creations.add(1, {"kind": kind, "outcome": "refused"})

    def notified(self, outcome: Literal["stored", "refused", "unauthorized", "unavailable"]) -> None:
        """An object store's post was answered."""
        self._notifications.add(1, {"outcome": outcome})
