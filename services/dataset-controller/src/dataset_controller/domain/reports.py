"""What reports of agents tell of writes that are not uploaded: what the next ones do not say any more, and
what those of others settle."""

from __future__ import annotations

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere
from paddlewheel.contracts.staged_writes import has_writes, left_on_node

UNSAID_MAX = 64
"""Nodes that a partition has left, of those that it does not tell of itself."""


def left_unsaid(before: NodeStatus, report: NodeStatus) -> tuple[StagedElsewhere, ...]:
    """Writes by the word of a partition's report, on nodes that the next one does not name: an agent that has
    not found the report before on the bus knows of its own node only. The nodes that it has left last come
    first; a cluster may replace its nodes every day, so there is an end to them."""
    own = left_on_node(before)
    named = {"", report.node, *(each.node for each in report.staged_elsewhere)}
    told = (*([own] if own else ()), *before.staged_elsewhere)
    unsaid = [each for each in told if each.node not in named and has_writes(each)]
    return tuple(unsaid[:UNSAID_MAX])


def settled(report: NodeStatus, node: str) -> NodeStatus:
    """Without what it tells of writes on the node, also those that pods may have made after it."""
    if report.node == node:
        nothing = {"staged_bytes": 0, "staged_unknown": False, "writeback": False}
        report = report.model_copy(update=nothing)
    if all(each.node != node for each in report.staged_elsewhere):
        return report
    elsewhere = [each for each in report.staged_elsewhere if each.node != node]
    return report.model_copy(update={"staged_elsewhere": elsewhere})
