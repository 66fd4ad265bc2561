"""What reports of agents tell of writes that are not uploaded, and the next ones do not say any more."""

from __future__ import annotations

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere
from paddlewheel.contracts.staged_writes import has_writes, left_on_node


def left_unsaid(before: NodeStatus, report: NodeStatus) -> tuple[StagedElsewhere, ...]:
    """Writes by the word of a partition's report, on nodes that the next one does not name: an agent that has
    not found the report before on the bus knows of its own node only."""
    own = left_on_node(before)
    named = {"", report.node, *(each.node for each in report.staged_elsewhere)}
    told = (*([own] if own else ()), *before.staged_elsewhere)
    return tuple(each for each in told if each.node not in named and has_writes(each))
