"""The metrics of this service, besides the metrics of all controllers."""

from __future__ import annotations

from typing import Literal

from opentelemetry.metrics import Meter

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.metrics import FactMetrics

Skipped = Literal["suspended", "loop", "not_granted", "too_old"]


class Metrics(FactMetrics):
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        super().__init__("triggers", meter)
        self._events = self.meter.create_counter(
            "paddlewheel.triggers.events", description="events that matched a trigger"
        )
        self._skipped = self.meter.create_counter(
            "paddlewheel.triggers.events.skipped", description="events that started nothing, by reason"
        )
        self._lost = self.meter.create_counter(
            "paddlewheel.triggers.events.lost", description="deferred events that the bus has lost"
        )
        self._forgotten = self.meter.create_counter(
            "paddlewheel.triggers.marks.forgotten",
            description="marks of events that made room for others within 13 days; the events may fire again",
        )
        self._creations = self.meter.create_counter(
            "paddlewheel.triggers.creations", description="creations by kind and outcome"
        )
        self._notifications = self.meter.create_counter(
            "paddlewheel.triggers.notifications", description="webhook posts by outcome"
        )

    def recorded(self, before: TriggerStatus, after: TriggerStatus, *, is_suspended: bool) -> None:
        """Count the changes between two states of a trigger."""
        if count := after.events - before.events:
            self._events.add(count)
        if count := after.skipped - before.skipped:
            self.skipped("suspended" if is_suspended else "loop", count)
        if count := after.lost - before.lost:
            self._lost.add(count)

    def skipped(self, reason: Skipped, count: int = 1) -> None:
        """Count events that create nothing.

        Events of a source that the trigger may not follow appear only in this metric. If they were counted in
        the trigger's status, its namespace could detect writes in another's buckets, and find out their keys
        by trial.
        """
        self._skipped.add(count, {"reason": reason})

    def forgotten(self, count: int) -> None:
        """A namespace has more marks than the bucket keeps for it."""
        self._forgotten.add(count)

    def created(self, applied: Applied) -> None:
        """Count children that were created, or found from an earlier attempt, and refused ones."""
        refused = (t.kind for t in applied.troubles if t.verb == "create" and t.is_refusal)
        for kind in (child.kind for child in applied.children):
            self._creations.add(1, {"kind": kind, "outcome": "created"})
        for kind in refused:
            self._creations.add(1, {"kind": kind, "outcome": "refused"})

    def notified(self, outcome: Literal["stored", "refused", "unauthorized", "unavailable"]) -> None:
        """Count a post of an object store by its answer."""
        self._notifications.add(1, {"outcome": outcome})
