"""Writes that are on a node only (writeback): acknowledged to a pod, and lost with the node's cache."""

from __future__ import annotations

from collections.abc import Callable

from dataset_controller.domain.names import DISCARD_ANNOTATION
from dataset_controller.domain.sampleset.model import ObservedSet
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.objects import annotations_of
from paddlewheel.contracts.sizes import iec

GRACE_SECONDS = 600
"""Time that a pod with such writes gets to upload them when it ends, e.g. because its node is drained."""


def staged_writes(seen: ObservedSet, is_leaving: Callable[[int], bool] = lambda _: True) -> str:
    """What to wait for before partitions leave, "" when there is nothing or the user gives it up.

    The last report of an agent counts, however old: what a lost node has is not in the store either. An agent
    that cannot read its cache directories may have some there, where pods write to the cache first.
    """
    key = seen.sample_set.key
    if annotations_of(seen.obj).get(DISCARD_ANNOTATION) == "true":
        return ""
    spec = seen.sample_set.spec
    is_writeback = spec is not None and spec.is_writeback
    staged = [
        r
        for r in seen.reports
        if is_leaving(r.partition) and (r.staged_bytes or (is_writeback and r.staged_unknown))
    ]
    if not staged:
        return ""
    return (
        f"waits until what pods have written is uploaded: {', '.join(map(_of_node, staged[:3]))}"
        f"{' and others' if len(staged) > 3 else ''}; to lose it:"
        f" kubectl -n {key.namespace} annotate sampleset {key.name} {DISCARD_ANNOTATION}=true"
    )


def _of_node(report: NodeStatus) -> str:
    size = "an amount that its agent cannot measure" if report.staged_unknown else iec(report.staged_bytes)
    return f"{size} on node {report.node or report.partition}"
