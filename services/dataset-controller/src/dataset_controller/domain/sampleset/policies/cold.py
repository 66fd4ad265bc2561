"""Partitions that are cold beside warm ones, as after a scale-up, in a set that does not warm itself."""

from __future__ import annotations

from dataset_controller.domain.sampleset.figures import measure, whole_percent
from dataset_controller.domain.sampleset.runtime import Runtime
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.keys import Key

COLD, WARM = 10, 50
"""Percent of its share that a partition has at most or at least. Caches that all fill while they are used are
neither."""


def cold_partitions(runtime: Runtime, partitions: int, key: Key) -> str:
    """Which they are, and the command that warms them; "" when there are none, or all are cold."""
    mine = sorted((r for r in runtime.reports if r.partition < partitions), key=lambda r: r.partition)
    total = measure(mine).total_bytes
    shares = [(r, whole_percent(partitions * r.cached_bytes, total)) for r in mine if r.mounted]
    cold = [_named(report) for report, share in shares if share <= COLD]
    if not cold or not any(share >= WARM for _, share in shares):
        return ""
    names = ", ".join(cold[:3]) + (f" and {len(cold) - 3} more" if len(cold) > 3 else "")
    return f"cold: {names}; to warm: paddlewheel data warm {key}"


def _named(report: NodeStatus) -> str:
    return f"partition {report.partition} on node {report.node}"
