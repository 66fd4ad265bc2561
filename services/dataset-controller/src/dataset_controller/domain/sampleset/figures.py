"""Cache figures: from the agents' reports to the contract's texts (B.6) and the facts' numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.runtime import Runtime, size_measured_at
from dataset_controller.timing import FIGURES_WRITE_INTERVAL_SECONDS
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.generated.datasets_v1 import CacheFigures
from paddlewheel.contracts.sizes import iec

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_TOTALS = ("totalSize", "totalFiles", "cachedPercent")
"""What says nothing while the size of the set is not known."""


@dataclass(frozen=True)
class FiguresDecision:
    """The figures to record, and when to look again because it is too early for newer ones."""

    cache: Mapping[str, Any]
    wake_after: float | None = None


def decide_figures(
    seen: ObservedSet, runtime: Runtime, partitions: int, *, is_step: bool = False
) -> FiguresDecision:
    """The recorded figures stay while there is no report, or when it is too early for a write.

    Args:
        is_step: the phase changes now, so the status is written, and a reader looks at it.
    """
    recorded = seen.status.cache
    if not runtime.reports:
        return FiguresDecision(recorded)
    current = cache_status(runtime.reports, partitions, recorded)
    if recorded and not (seen.figures_due or is_step) and current != recorded:
        return FiguresDecision(recorded, FIGURES_WRITE_INTERVAL_SECONDS)
    return FiguresDecision(current)


def cache_status(
    reports: Sequence[NodeStatus], partitions: int, recorded: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """`status.cacheStatus`: totals of who has measured last, sums of cached bytes and disks.

    A partition that reports nothing does not hide the others' figures, and cached bytes are not capped. While
    nobody knows the size of the set, that which is `recorded` stays, with what is in percent of it.
    """
    mine = [r for r in reports if r.partition < partitions]
    current = _cache_status(mine, partitions)
    return current if is_size_known(mine) else _with_totals_of(recorded, current)


def _with_totals_of(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    shares = {row.get("partition"): row.get("cachedPercent", 0) for row in recorded.get("nodes") or ()}
    nodes = [{**row, "cachedPercent": shares.get(row["partition"], 0)} for row in current["nodes"]]
    return {**current, **{name: recorded[name] for name in _TOTALS if name in recorded}, "nodes": nodes}


def _cache_status(mine: Sequence[NodeStatus], partitions: int) -> dict[str, Any]:
    figures = measure(mine)
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
        "errorMassage": "; ".join(_errors(mine, partitions)),
        "nodes": [_node(r, figures.total_bytes, partitions) for r in sorted(mine, key=lambda r: r.partition)],
    }


def _errors(mine: Sequence[NodeStatus], partitions: int) -> Iterator[str]:
    """Who says nothing, and what the others could not measure, by partition."""
    told = {r.partition: f": {r.figures_problem}" if r.figures_problem else "" for r in mine}
    for partition in range(partitions):
        if problem := told.get(partition, " reports no figures"):
            yield f"partition {partition}{problem}"


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
    best = max(reports, key=_credibility)
    return CacheFigures(
        total_bytes=best.total_bytes,
        total_files=best.total_files,
        cached_bytes=sum(r.cached_bytes for r in reports),
    )


def is_size_known(reports: Sequence[NodeStatus]) -> bool:
    """An agent has measured the set, or repeats what the one before it has measured. Where all are of an
    older release, their word is all there is."""
    said = any(_has_measured(r) or r.total_files for r in reports)
    return said or (bool(reports) and all(map(_may_not_have_measured, reports)))


def _credibility(report: NodeStatus) -> tuple[bool, bool, bool, datetime]:
    """Who has measured the size comes before who repeats an older one. Without a mount nobody measures."""
    is_known = _has_measured(report)
    at = size_measured_at(report) or _LONG_AGO
    return is_known, report.total_files > 0 and not is_known, report.mounted, at


def _has_measured(report: NodeStatus) -> bool:
    return not report.size_unknown and (report.total_files > 0 or not _may_not_have_measured(report))


def _may_not_have_measured(report: NodeStatus) -> bool:
    """It is of an older release, which says neither that nor when it has measured anything."""
    return not (report.size_unknown or report.cached_at or report.figures_problem)


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
