"""Cache figures: from the agents' reports to the contract's texts (B.6) and the facts' numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.world import World
from dataset_controller.domain.text import iec, percent, ratio, thousands
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.generated.datasets_v1 import CacheFigures

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def cache_status(reports: Sequence[NodeStatus], partitions: int) -> dict[str, str]:
    """`status.cacheStatus`: totals from the newest report, cached and disk summed, silent ones named.

    A partition that reports nothing does not hide the others' figures, and cached bytes are not capped.
    """
    mine = [r for r in reports if r.partition < partitions]
    figures = measure(mine)
    silent = sorted(set(range(partitions)) - {r.partition for r in mine})
    used, size = sum(r.disk_used for r in mine), sum(r.disk_size for r in mine)
    return {
        "totalSize": iec(figures.total_bytes),
        "totalFiles": thousands(figures.total_files),
        "cachedSize": iec(figures.cached_bytes),
        "diskSize": iec(size),
        "diskUsed": iec(used),
        "diskAvail": iec(sum(r.disk_available for r in mine)),
        "diskUsageRate": percent(used, size),
        "errorMassage": "; ".join(f"partition {i} reports no figures" for i in silent),
    }


def measure(reports: Sequence[NodeStatus]) -> CacheFigures:
    """The same as numbers."""
    if not reports:
        return CacheFigures()
    newest = max(reports, key=lambda r: r.updated_at or _LONG_AGO)
    return CacheFigures(
        total_bytes=newest.total_bytes,
        total_files=newest.total_files,
        cached_bytes=sum(r.cached_bytes for r in reports),
    )


def next_cache_status(
    seen: ObservedSet, status: SetStatus, world: World, partitions: int
) -> Mapping[str, str]:
    """What stands in the status from now on: the old figures when nobody reports or it is too early."""
    if not world.reports or (status.cache and not seen.figures_due):
        return status.cache
    return cache_status(world.reports, partitions)


def runtime_status(world: World, partitions: int) -> dict[str, object]:
    """`status.runtimeStatus`."""
    ready = world.ready_below(partitions)
    return {"specReplicas": partitions, "readyReplicas": ready, "runtimeReady": ratio(ready, partitions)}
