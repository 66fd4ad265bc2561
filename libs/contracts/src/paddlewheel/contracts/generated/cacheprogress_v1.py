# Generated from protos/paddlewheel/cacheprogress/v1/cacheprogress.proto by `make gen`; do not edit.
"""The progress of runs. Subject: pw.evt.cacheprogress.run.<fact>.v1.<namespace>.<set-uid>

Progress has its own stream, which keeps the last fact of each data set. In a common stream, many sets that report every
second would displace facts that must not be lost.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Bool, Double, Int64, WireModel


class RunProgressed(WireModel):
    """The progress of the run at ce-time: the sums of the finished chunks of all partitions. Published at most once per second
    for each run, and not while nothing changes. May be lost while the bus is unreachable. Each fact replaces all before it.
    Do not wait for the last one: RunEnded has the final figures.
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
    """Total number of files; 0 until all files are listed."""
    bytes_total: Int64 = 0
    listed: Bool = False
    eta_seconds: Double = 0.0
    """Remaining seconds at the current rate; 0 if it is unknown."""
