"""Writes that are on a node only (writeback): acknowledged to a pod, and lost with the node's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dataset_controller.domain.names import DISCARD_ANNOTATION
from dataset_controller.domain.sampleset.model import ObservedSet, SampleSet
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.objects import annotations_of
from paddlewheel.contracts.sizes import iec

GRACE_SECONDS = 600
"""Time that a pod with such writes gets to upload them when it ends, e.g. because its node is drained."""


def staged_writes(seen: ObservedSet, is_leaving: Callable[[int], bool] = lambda _: True) -> str:
    """What to wait for before partitions leave, "" when there is nothing or the user gives it up.

    The last report of an agent counts, however old: what a lost node has is not in the store either. An agent
    that cannot read its cache directories may have some there, where pods write to the cache first. Until the
    reports are known, everybody may have some.
    """
    if _is_given_up(seen):
        return ""
    if not seen.are_records_known:
        return f"waits for the bus: what agents have reported is not known yet; to lose it: {_give_up(seen)}"
    reports = [r for r in seen.reports if is_leaving(r.partition)]
    found = _kept(seen, [*map(_writes, reports), *_elsewhere(seen, reports)])
    if not found:
        return ""
    return f"waits until what pods have written is uploaded: {_list(found)}; to lose it: {_give_up(seen)}"


def writes_left(seen: ObservedSet) -> str:
    """Writes on nodes that no partition is on any more, and what to do; "" when there are none."""
    if _is_given_up(seen):
        return ""
    found = _left(seen)
    if not found:
        return ""
    return (
        f"no store has what pods have written: {_list(found)}, where no runtime pod is any more; let one run"
        f" there again, which uploads it, or lose it: {_give_up(seen)}"
    )


def nodes_with_writes(seen: ObservedSet) -> frozenset[str]:
    """The same as names of nodes, also when they are given up."""
    return frozenset(each.node for each in _left(seen))


def partitions_with_writes(seen: ObservedSet) -> int:
    """How many there have to be, so that each whose agent has reported some is among them."""
    return max((r.partition + 1 for r in seen.reports if _kept(seen, [_writes(r)])), default=0)


@dataclass(frozen=True)
class _Writes:
    """On one node."""

    node: str
    size: int
    is_unknown: bool

    def __str__(self) -> str:
        size = "an amount that its agent cannot measure" if self.is_unknown else iec(self.size)
        return f"{size} on node {self.node}"


def _writes(report: NodeStatus) -> _Writes:
    return _Writes(report.node or str(report.partition), report.staged_bytes, report.staged_unknown)


def _left(seen: ObservedSet) -> list[_Writes]:
    at = {pod.index: pod.node for pod in seen.pods if pod.node}
    moved = (r for r in seen.reports if at.get(r.partition, r.node) != r.node)
    return _kept(seen, [*map(_writes, moved), *_elsewhere(seen, seen.reports)])


def _elsewhere(seen: ObservedSet, reports: Iterable[NodeStatus]) -> list[_Writes]:
    """Of nodes that these partitions have left. Where another one is mounted now, it reports them itself."""
    held = _held(seen)
    left = (each for report in reports for each in report.staged_elsewhere if each.node not in held)
    return [_Writes(each.node, each.staged_bytes, each.staged_unknown) for each in left]


def _held(seen: ObservedSet) -> frozenset[str]:
    """Nodes where a partition is mounted. The last report of one whose pod has gone, or is not ready, says no
    more what its node has."""
    at = {pod.index: pod.node for pod in seen.pods if pod.is_ready}
    return frozenset(r.node for r in seen.reports if r.mounted and at.get(r.partition) == r.node)


def _kept(seen: ObservedSet, writes: Iterable[_Writes]) -> list[_Writes]:
    """What an agent cannot measure counts where there may be some: a set that is writeback no more may have
    left it. A node is settled when its agent reports none."""
    may_be = is_or_was_writeback(seen.sample_set)
    return [each for each in writes if each.size or (may_be and each.is_unknown)]


def is_or_was_writeback(own: SampleSet) -> bool:
    """Pods write to the cache of their node first, or did once."""
    return own.status.was_writeback or (own.spec is not None and own.spec.is_writeback)


def _is_given_up(seen: ObservedSet) -> bool:
    return annotations_of(seen.obj).get(DISCARD_ANNOTATION) == "true"


def _list(writes: Sequence[_Writes]) -> str:
    return ", ".join(map(str, writes[:3])) + (" and others" if len(writes) > 3 else "")


def _give_up(seen: ObservedSet) -> str:
    key = seen.sample_set.key
    return f"kubectl -n {key.namespace} annotate sampleset {key.name} {DISCARD_ANNOTATION}=true"
