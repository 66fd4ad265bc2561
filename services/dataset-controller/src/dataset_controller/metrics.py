"""Every metric of this service; label values are closed sets, never object names."""

from __future__ import annotations

from typing import Literal

from opentelemetry import metrics
from opentelemetry.metrics import Meter

FACTS = "paddlewheel.datasets.facts"
CHILDREN = "paddlewheel.datasets.children"
METRIC_NAMES = (FACTS, CHILDREN)


class Metrics:
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        meter = meter or metrics.get_meter(__name__)
        self._facts = meter.create_counter(FACTS, description="facts by name and outcome")
        self._children = meter.create_counter(CHILDREN, description="objects created by kind")

    def fact(self, fact: str, outcome: Literal["published", "pending", "refused"]) -> None:
        """A fact was published, is pending or was refused."""
        self._facts.add(1, {"fact": fact, "outcome": outcome})

    def created(self, kind: str) -> None:
        """A child was created, or exists already."""
        self._children.add(1, {"kind": kind})
