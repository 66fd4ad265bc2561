"""Metrics of this service beside those of every controller; label values are closed sets."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus
from paddlewheel.operator.metrics import ControllerMetrics

PARTS = ("scheduled", "pulled", "loaded", "ready")


class Metrics(ControllerMetrics):
    """The service's counters."""

    def __init__(self, meter: Meter | None = None) -> None:
        super().__init__("serving", meter)
        self._rollbacks = self.meter.create_counter(
            "paddlewheel.serving.rollbacks", description="canaries rolled back, by reason"
        )
        self._starts = self.meter.create_histogram(
            "paddlewheel.serving.start", unit="s", description="parts of the start of a revision's first pod"
        )

    def recorded(self, before: PaddleServiceStatus, after: PaddleServiceStatus) -> None:
        """A status was written."""
        old, new = before.rollout, after.rollout
        if new is not None and new.reason and (old is None or old.reason != new.reason):
            self._rollbacks.add(1, {"reason": new.reason})
        for revision in after.revisions:
            known = before.revision(revision.name)
            if revision.start is not None and (known is None or known.start is None):
                for part in PARTS:
                    self._starts.record(getattr(revision.start, part), {"part": part})
