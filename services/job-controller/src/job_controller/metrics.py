"""Metrics of this service beside those of every controller."""

from __future__ import annotations

from opentelemetry import metrics
from opentelemetry.metrics import Meter


class ProgressMetrics:
    """Counts reports of training programs and what becomes of them; labels are closed sets."""

    def __init__(self, meter: Meter | None = None) -> None:
        meter = meter or metrics.get_meter("paddlewheel.jobs")
        self._reports = meter.create_counter(
            "paddlewheel.jobs.progress_reports", description="reports of training programs by HTTP status"
        )
        self._writes = meter.create_counter(
            "paddlewheel.jobs.progress_writes", description="writes of status.progress by outcome"
        )

    def received(self, status: int) -> None:
        """A report was answered."""
        self._reports.add(1, {"status": str(status)})

    def wrote(self, outcome: str) -> None:
        """`written`; `conflict` or `failed`, which are tried again; `unpublished`: written, but no fact."""
        self._writes.add(1, {"outcome": outcome})
