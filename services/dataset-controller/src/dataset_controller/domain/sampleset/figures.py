"""Cache figures: from the agents' reports to the contract's texts (B.6) and the facts' numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.runtime import Runtime
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.generated.datasets_v1 import CacheFigures
from paddlewheel.contracts.sizes import iec

FIGURES_SECONDS = 5.0
"""Least time between two writes of the figures."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FiguresDecision:
    """The figures to record, and when to look again because it is too early for newer ones."""

    cache: Mapping[str, Any]
    wake_after: float | None = None


def decide_figures(seen: ObservedSet, runtime: Runtime, partitions: int) -> FiguresDecision:
    """The recorded figures stay when nobody reports or it is too early for a write."""
    recorded = seen.status.cache
    if not runtime.reports:
        return FiguresDecision(recorded)
    current = cache_status(runtime.reports, partitions)
    if recorded and not seen.figures_due and current != recorded:
        return FiguresDecision(recorded, FIGURES_SECONDS)
    return FiguresDecision(current)


def cache_status(reports: Sequence[NodeStatus], partitions: int) -> dict[str, Any]:
    """`status.cacheStatus`: totals from the newest report, sums of cached bytes and disks, silent partitions.

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
        "cachedPercent": whole_percent(figures.cached_bytes, figures.total_bytes),
        "cacheCapacity": iec(sum(r.cache_capacity for r in mine)),
        "stagedSize": iec(sum(r.staged_bytes for r in mine)),
        "diskSize": iec(size),
        "diskUsed": iec(used),
        "diskAvail": iec(sum(r.disk_available for r in mine)),
        "diskUsageRate": percent(used, size),
        "errorMassage": "; ".join(f"partition {i} reports no figures" for i in silent),
        "nodes": [_node(r, figures.total_bytes, partitions) for r in sorted(mine, key=lambda r: r.partition)],
    }


def _node(report: NodeStatus, total: int, partitions: int) -> dict[str, object]:
    """In percent of an equal share of the set: of the whole set, each of 200 partitions would have 0 %. Whole
    ones, so that not every report is a write."""
    return {
        "partition": report.partition,
        "node": report.node,
        "mounted": report.mounted,
        "cachedPercent": whole_percent(partitions * report.cached_bytes, total),
        "cachedSize": iec(report.cached_bytes),
        "cacheCapacity": iec(report.cache_capacity),
        "stagedSize": iec(report.staged_bytes),
        "hitRate": _hit_rate(report),
    }


def whole_percent(part: int, whole: int) -> int:
    """Rounded down, so that 100 means all; nothing of nothing is 0."""
    return min(100, 100 * part // whole) if whole else 0


def _hit_rate(report: NodeStatus) -> str:
    """`87%`; "" while nothing was read."""
    read = report.hit_bytes + report.miss_bytes
    return f"{whole_percent(report.hit_bytes, read)}%" if read else ""


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


def runtime_status(runtime: Runtime, partitions: int) -> dict[str, object]:
    """`status.runtimeStatus`."""
    ready = runtime.ready_below(partitions)
    return {"specReplicas": partitions, "readyReplicas": ready, "runtimeReady": f"{ready}/{partitions}"}


def thousands(count: int) -> str:
    """`128,660`."""
    return f"{count:,}"


def count_of(text: str) -> int:
    """Reverse of `thousands`; 0 for "" or other text."""
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else 0


def percent(part: int, whole: int) -> str:
    """`12.3%`; "" when there is no whole."""
    return f"{part / whole * 100:.1f}%" if whole > 0 else ""
