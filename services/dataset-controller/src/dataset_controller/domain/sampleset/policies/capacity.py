"""Whether the caches can hold the set: said as soon as its size is known, before anything is warmed."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.sampleset.figures import is_size_known, measure
from dataset_controller.domain.sampleset.model import SetStatus
from dataset_controller.domain.sampleset.runtime import Runtime
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.sizes import iec

_MEASURED = (SetPhase.PARTIAL_READY, SetPhase.READY)
"""The first sync is over, so the size of the set is its own."""


def with_capacity(status: SetStatus, runtime: Runtime, partitions: int, now: datetime) -> SetStatus:
    """Without a condition on sets that always fitted, or while a partition does not report, or nobody has
    measured the set."""
    mine = [r for r in runtime.reports if r.partition < partitions and r.mounted and r.cache_capacity]
    if status.phase not in _MEASURED or len(mine) < partitions or not is_size_known(mine):
        return status
    total, capacity = measure(mine).total_bytes, sum(r.cache_capacity for r in mine)
    if total > capacity:
        # In whole percent, so that a disk that others fill does not change the message all the time.
        message = (
            f"{100 * capacity // total} % of {iec(total)} fit into the caches, the rest is read from the"
            " store each time; give the set more partitions or a larger cacheSize"
        )
        return status.with_condition(Cond.CACHE_FITS, False, Reason.CACHE_TOO_SMALL, message, now)
    if status.condition(Cond.CACHE_FITS) is None:
        return status
    return status.with_condition(Cond.CACHE_FITS, True, Reason.CACHE_LARGE_ENOUGH, "", now)
