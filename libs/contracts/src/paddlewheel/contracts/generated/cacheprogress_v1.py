# Generated from protos/paddlewheel/cacheprogress/v1/cacheprogress.proto by `make gen`; do not edit.
"""Progress of the runs of caches. Subject: pw.evt.cacheprogress.run.<fact>.v1.<namespace>.<set-uid>. In a stream of its own,
which keeps the last fact of each data set: many sets that report every second would otherwise push out the facts that
must not be lost.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Bool, Double, Int64, WireModel


class RunProgressed(WireModel):
    """Progress of the run at ce-time: the sums over all partitions, exact to the acknowledged chunk. Lossy by design: at
    most one per second for each run, none while nothing changes, none while the bus is unreachable; each one supersedes
    all before it. Do not wait for the last one: RunEnded has the final figures.
    """

    proto_name: ClassVar[str] = "paddlewheel.cacheprogress.v1.RunProgressed"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    run_id: str = ""
    operation: str = ""
    files_done: Int64 = 0
    bytes_done: Int64 = 0
    files_total: Int64 = 0
    """Zero until listed."""
    bytes_total: Int64 = 0
    listed: Bool = False
    eta_seconds: Double = 0.0
    """Remaining seconds at the current rate; 0 when unknown."""
