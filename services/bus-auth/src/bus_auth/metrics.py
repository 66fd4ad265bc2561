"""All metrics of this service. Label values are closed sets; clients are never named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opentelemetry.metrics import Meter, Observation

from paddlewheel.bus.callout.certificates import first_end

NAMES = ("paddlewheel_bus_auth_requests", "paddlewheel_bus_auth_authority_end")


class Metrics:
    """A counter of connections, and the time at which the authority's certificate ends.

    Args:
        authority: the file with that certificate.
    """

    def __init__(self, meter: Meter, authority: Path) -> None:
        meter.create_observable_gauge(
            NAMES[1],
            callbacks=[lambda _: _end_of(authority)],
            unit="s",
            description="Unix time at which the certificate of the bus's authority ends",
        )
        self._requests = meter.create_counter(
            NAMES[0], description="Connections by outcome: granted, or the reason of the refusal"
        )

    def answered(self, outcome: str) -> None:
        """One connection was granted or refused."""
        self._requests.add(1, {"outcome": outcome})


def _end_of(authority: Path) -> Iterable[Observation]:
    """The end of the certificate in Unix time; no value while the file is missing or unreadable."""
    try:
        return (Observation(first_end(authority.read_bytes()).timestamp()),)
    except (OSError, ValueError):
        return ()
