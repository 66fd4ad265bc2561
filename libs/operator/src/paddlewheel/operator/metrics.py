"""Metrics that every controller has; label values are closed sets, never object names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from opentelemetry import metrics
from opentelemetry.metrics import Meter

from paddlewheel.operator.outbox import Outcome


class FactMetrics:
    """Counts the facts of one service.

    Args:
        context: as in its subjects, e.g. `jobs`; the names are `paddlewheel.<context>.<what>`.
    """

    def __init__(self, context: str, meter: Meter | None = None) -> None:
        self.meter = meter or metrics.get_meter(f"paddlewheel.{context}")
        self._facts = self.meter.create_counter(
            f"paddlewheel.{context}.facts", description="facts by name and outcome"
        )

    def fact(self, fact: str, outcome: Outcome) -> None:
        """A fact was published, is pending or was refused."""
        self._facts.add(1, {"fact": fact, "outcome": outcome})


class ControllerMetrics(FactMetrics):
    """Counts children, too."""

    def __init__(self, context: str, meter: Meter | None = None) -> None:
        super().__init__(context, meter)
        self._children = self.meter.create_counter(
            f"paddlewheel.{context}.children", description="objects created by kind"
        )

    def created(self, kinds: Iterable[str]) -> None:
        """Children were created, or claimed from before a crash."""
        for kind, count in Counter(kinds).items():
            self._children.add(count, {"kind": kind})
