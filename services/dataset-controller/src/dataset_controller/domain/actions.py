"""Actions on the bus' records that a plan may contain beside Create, Patch and Delete."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.contracts.run_keys import RunKey


@dataclass(frozen=True)
class WriteRun:
    """Write the run's record unless it exists, or the bus has not taken a cancel that comes before it."""

    run: RunSpec


@dataclass(frozen=True)
class CancelRun:
    """Ask the runtime to stop the run, if its record is on the bus, or is written by the same plan."""

    run: RunKey


@dataclass(frozen=True)
class ForgetRun:
    """Remove the run's records and queued chunks."""

    run: RunKey


@dataclass(frozen=True)
class ForgetSet:
    """Remove all records and queued chunks of the set."""

    set_uid: str


RecordAction = WriteRun | CancelRun | ForgetRun | ForgetSet

BUS = "Bus"
"""Kind of a trouble with a bus that does not answer, as happens: retried, not worth a condition."""
RECORD = "RunRecord"
"""Kind of a trouble with one record that the bus refuses, for now or for ever: worth a condition."""
