"""Metrics and spans of the reconcile loop. Labels have few values, and never names of objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

RECONCILES = "paddlewheel.reconciles"
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram buckets in seconds. The defaults of OpenTelemetry fit milliseconds."""
RECONCILE_SECONDS = "paddlewheel.reconcile.duration"
QUEUE_DEPTH = "paddlewheel.queue.depth"
METRIC_NAMES = (RECONCILES, RECONCILE_SECONDS, QUEUE_DEPTH)
RECONCILE_SPAN = "reconcile"

Outcome = Literal["success", "requeue", "retry", "permanent", "bug"]


@dataclass(frozen=True)
class ReconcileMetrics:
    """The instruments of one controller."""

    controller: str
    reconciles: Counter
    seconds: Histogram

    def record(self, outcome: Outcome, seconds: float) -> None:
        """Record one finished reconcile."""
        self.reconciles.add(1, {"controller": self.controller, "result": outcome})
        self.seconds.record(seconds, {"controller": self.controller})


def make_instruments(meter: Meter, controller: str, depth: Callable[[], int]) -> ReconcileMetrics:
    """Register the instruments. `depth` is called at each collection."""

    def observe(_: CallbackOptions) -> list[Observation]:
        return [Observation(depth(), {"controller": controller})]

    meter.create_observable_gauge(QUEUE_DEPTH, [observe], description="keys that wait for a worker")
    return ReconcileMetrics(
        controller,
        meter.create_counter(RECONCILES, description="reconciles by result"),
        meter.create_histogram(
            RECONCILE_SECONDS,
            "s",
            "duration of one reconcile",
            explicit_bucket_boundaries_advisory=RECONCILE_BUCKETS,
        ),
    )
