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

    The last report of an agent counts, however old: what a lost node has is not in the store either.
    """
    key = seen.sample_set.key
    if annotations_of(seen.obj).get(DISCARD_ANNOTATION) == "true":
        return ""
    staged = [r for r in seen.reports if r.staged_bytes and is_leaving(r.partition)]
    if not staged:
        return ""
    return (
        f"waits until what pods have written is uploaded: {', '.join(map(_of_node, staged[:3]))}"
        f"{' and others' if len(staged) > 3 else ''}; to lose it:"
        f" kubectl -n {key.namespace} annotate sampleset {key.name} {DISCARD_ANNOTATION}=true"
    )


def _of_node(report: NodeStatus) -> str:
    return f"{iec(report.staged_bytes)} on node {report.node or report.partition}"
