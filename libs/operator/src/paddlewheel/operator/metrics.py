"""Metrics of every controller. Labels have few values, and never names of objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from opentelemetry import metrics
from opentelemetry.metrics import Meter

from paddlewheel.operator.outbox import Outcome


class FactMetrics:
    """Counts the facts of a service.

    Args:
        context: the context in the subjects of the service, for example `jobs`. The metrics are named
            `paddlewheel.<context>.<what>`.
    """

    def __init__(self, context: str, meter: Meter | None = None) -> None:
        self.meter = meter or metrics.get_meter(f"paddlewheel.{context}")
        self._facts = self.meter.create_counter(
            f"paddlewheel.{context}.facts", description="facts by name and outcome"
        )

    def fact(self, fact: str, outcome: Outcome) -> None:
        """Count a fact that was published, is pending or was refused."""
        self._facts.add(1, {"fact": fact, "outcome": outcome})


class ControllerMetrics(FactMetrics):
    """Counts the facts and the created children of a service."""

    def __init__(self, context: str, meter: Meter | None = None) -> None:
        super().__init__(context, meter)
        self._children = self.meter.create_counter(
            f"paddlewheel.{context}.children", description="objects created by kind"
        )

    def created(self, kinds: Iterable[str]) -> None:
        """Count children that were created, or created before a crash and claimed now."""
        for kind, count in Counter(kinds).items():
            self._children.add(count, {"kind": kind})
