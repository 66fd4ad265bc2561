"""Is a revision within the limits of the metrics that others have measured of it? Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paddlewheel.contracts.crds.paddleservice import MetricLimits

Measured = Mapping[str, float]
"""The newest value of each metric of one revision, by name."""


@dataclass(frozen=True)
class Finding:
    """What a rollout's limits say of what was measured.

    Args:
        outside: the metrics outside their limits, in words; "" when there are none.
        waits: why nothing goes on, in words; "" when everything was measured.
        values: of the metrics with limits, those that are numbers: JSON has no others.
    """

    outside: str = ""
    waits: str = ""
    values: Measured = field(default_factory=dict)


def compare(limits: Mapping[str, MetricLimits], measured: Measured | None) -> Finding:
    """Each metric with its limits.

    Args:
        measured: None = not everything that is stored was read yet; then nothing is concluded.
    """
    if not limits:
        return Finding()
    if measured is None:
        return Finding(waits="the measurements on the bus are not read yet")
    known = {name: measured[name] for name in sorted(limits) if name in measured}
    return Finding(
        outside=", ".join(_outside(limits, known)),
        waits=_missing(sorted(limits.keys() - known.keys())),
        values={name: value for name, value in known.items() if math.isfinite(value)},
    )


def _outside(limits: Mapping[str, MetricLimits], known: Measured) -> Iterator[str]:
    for name, value in known.items():
        least, most = limits[name].min, limits[name].max
        if not math.isfinite(value):
            yield f"{name} is {value}, not a finite number"
        elif least is not None and value < least:
            yield f"{name} {_short(value)} is below {_short(least)} (min)"
        elif most is not None and value > most:
            yield f"{name} {_short(value)} is above {_short(most)} (max)"


def _short(value: float) -> str:
    """With as many digits as tell it from every other: 0.9 and 0.89999999 differ."""
    return f"{int(value)}" if value.is_integer() and abs(value) < 1e15 else repr(value)


def _missing(names: list[str]) -> str:
    if not names:
        return ""
    remedy = "publish RevisionMeasured, as `paddlewheel service measure` does"
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not measured yet: {remedy}"
