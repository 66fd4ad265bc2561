"""All metrics of this service. Label values are closed sets; models and clients are never named."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

NAMES = (
    "paddlewheel_runtime_request_duration_seconds",
    "paddlewheel_runtime_run_duration_seconds",
    "paddlewheel_runtime_batch_rows",
    "paddlewheel_runtime_queued_requests",
    "paddlewheel_runtime_pending_bytes",
    "paddlewheel_runtime_cold_start_seconds",
)
PROTOCOLS = ("oip", "prediction")
OUTCOMES = ("ok", "refused", "busy", "failed", "gone")
"""2xx; 4xx; 503: no room, or not ready; 500, or 503: the model's process ended; the client went away."""
PHASES = ("download", "load", "warmup")

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counters and histograms of this replica.

    Args:
        queued: gives the number of requests that wait now.
        pending: gives the bytes that requests hold now.
    """

    def __init__(self, meter: Meter, queued: Callable[[], int], pending: Callable[[], int]) -> None:
        self._request_seconds = meter.create_histogram(
            NAMES[0], "s", "From the first byte to the answer", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._run_seconds = meter.create_histogram(
            NAMES[1], "s", "One run of the model", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._rows = meter.create_histogram(
            NAMES[2], "", "Rows of one run", explicit_bucket_boundaries_advisory=_ROW_BUCKETS
        )
        meter.create_observable_gauge(NAMES[3], [_observe(queued)], description="Requests that wait")
        meter.create_observable_gauge(NAMES[4], [_observe(pending)], description="Bytes that requests hold")
        self._cold_start = meter.create_gauge(NAMES[5], "s", "Parts of the start, before the first request")

    def answered(self, protocol: str, outcome: str, seconds: float) -> None:
        """A request of one of PROTOCOLS ended as one of OUTCOMES."""
        self._request_seconds.record(seconds, {"protocol": protocol, "outcome": outcome})

    def ran(self, rows: int, seconds: float) -> None:
        """The model ran once."""
        self._rows.record(rows)
        self._run_seconds.record(seconds)

    def started(self, phase: str, seconds: float) -> None:
        """One of PHASES is over."""
        self._cold_start.set(seconds, {"phase": phase})


def _observe(read: Callable[[], int]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(read())]
