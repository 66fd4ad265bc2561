"""All metrics of this service. Label values are closed sets; clients are never named."""

from __future__ import annotations

from opentelemetry.metrics import Meter

NAMES = ("paddlewheel_bus_auth_requests", "paddlewheel_bus_auth_reads", "paddlewheel_bus_auth_writes")


class Metrics:
    """Counters of what was answered."""

    def __init__(self, meter: Meter) -> None:
        self._requests = meter.create_counter(
            NAMES[0], description="Connections by outcome: granted, or why not"
        )
        self._reads = meter.create_counter(
            NAMES[1], description="Agents' reads by outcome: answered, refused, busy or unanswered"
        )
        self._writes = meter.create_counter(
            NAMES[2], description="Agents' writes by outcome: answered, refused, full, busy or unanswered"
        )

    def read(self, outcome: str) -> None:
        """An agent asked for records."""
        self._reads.add(1, {"outcome": outcome})

    def written(self, outcome: str) -> None:
        """An agent wanted something stored."""
        self._writes.add(1, {"outcome": outcome})

    def answered(self, outcome: str) -> None:
        """One connection was granted or refused."""
        self._requests.add(1, {"outcome": outcome})
