"""All metrics of this service. Label values are closed sets; clients are never named."""

from __future__ import annotations

from opentelemetry.metrics import Meter

NAMES = ("paddlewheel_bus_auth_requests",)


class Metrics:
    """A counter of connections."""

    def __init__(self, meter: Meter) -> None:
        self._requests = meter.create_counter(
            NAMES[0], description="Connections by outcome: granted, or why not"
        )

    def answered(self, outcome: str) -> None:
        """One connection was granted or refused."""
        self._requests.add(1, {"outcome": outcome})
