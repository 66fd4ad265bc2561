"""Every metric of this service; label values are closed sets, never object names."""

from __future__ import annotations

from typing import Literal

from opentelemetry import metrics
from opentelemetry.metrics import Meter

from paddlewheel.operator.domain.plan import Applied

EVENTS = "paddlewheel.triggers.events"
CREATIONS = "paddlewheel.triggers.creations"
NOTIFICATIONS = "paddlewheel.triggers.notifications"
FACTS = "paddlewheel.triggers.facts"
METRIC_NAMES = (EVENTS, CREATIONS, NOTIFICATIONS, FACTS)


class Metrics:
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        meter = meter or metrics.get_meter(__name__)
        self._events = meter.create_counter(EVENTS, description="events that matched a trigger")
        self._creations = meter.create_counter(CREATIONS, description="creations by kind and outcome")
        self._notifications = meter.create_counter(NOTIFICATIONS, description="webhook posts by outcome")
        self._facts = meter.create_counter(FACTS, description="facts by name and outcome")

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

    def announced(self, fact: str, outcome: Literal["published", "pending", "refused"]) -> None:
        """A fact was handed to the bus."""
        self._facts.add(1, {"fact": fact, "outcome": outcome})
