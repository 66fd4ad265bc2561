"""Who works on which partition: everybody on his own, and others on those that are away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from cache_runtime.domain.runs import Problem, repeated
from cache_runtime.timing import AGENT_GONE_TIMEOUT_SECONDS
from paddlewheel.contracts.generated.cache_v1 import PartitionState, PartitionTotals, RunSpec, RunState

NAMED = 3
"""Partitions that a message names at most."""


UNSEEN = "no agent reports"
"""The trouble of a partition that nothing is known of."""


@dataclass(frozen=True)
class Silence:
    """For how many seconds nothing was heard of a partition, and its node, "" when none is known."""

    seconds: float
    node: str = ""


def partitions_of(own: int, spec: RunSpec, state: RunState | None) -> list[int]:
    """The partitions that an agent works on, its own first."""
    others = [each.partition for each in state.stand_ins if each.by == own] if state else []
    return [*([own] if own < spec.partitions else []), *sorted(others)]


def unfinished(
    partitions: int, listed: bool, totals: Sequence[PartitionTotals], parts: Mapping[int, PartitionState]
) -> dict[int, int]:
    """Chunks that are left, by partition; those with none are left out once the listing is complete."""
    left = {}
    for index in range(partitions):
        part = parts.get(index)
        done = part.watermark + len(part.chunks) if part else 0
        chunks = (totals[index].chunks if index < len(totals) else 0) - done
        if chunks > 0 or not listed:
            left[index] = max(0, chunks)
    return left


def stand_ins(
    current: Mapping[int, int], left: Mapping[int, int], present: AbstractSet[int]
) -> dict[int, int]:
    """Who does the work of each partition that is away and not finished.

    Whoever stands in goes on, unless another one has nothing to do while he still has work of his own.
    """
    away = sorted(set(left) - present)
    chosen = {partition: current[partition] for partition in away if current.get(partition) in present}
    loads = Counter(chosen.values())
    idle = sorted(present - set(left) - set(loads), reverse=True)
    queue = [(loads[each], left.get(each, 0), each) for each in present]
    heapify(queue)
    for partition in away if present else ():
        by = chosen.get(partition)
        if by is not None and not (by in left and idle):
            continue
        if by is not None:
            _count(loads, queue, left, by, -1)
        chosen[partition] = idle.pop() if idle else _least_loaded(loads, queue)
        _count(loads, queue, left, chosen[partition], 1)
    return chosen


def _count(
    loads: Counter[int], queue: list[tuple[int, int, int]], left: Mapping[int, int], each: int, change: int
) -> None:
    """Its older place in the queue stays there, and is passed over."""
    loads[each] += change
    heappush(queue, (loads[each], left.get(each, 0), each))


def _least_loaded(loads: Mapping[int, int], queue: list[tuple[int, int, int]]) -> int:
    """Who stands in for the fewest partitions, with the least left of his own."""
    while queue[0][0] != loads[queue[0][2]]:
        heappop(queue)
    return queue[0][2]


def problems_of(
    left: Mapping[int, int], chosen: Mapping[int, int], troubles: Mapping[int, str], *, bound_to_node: bool
) -> list[Problem]:
    """What a run waits for because partitions are away.

    Args:
        troubles: why each partition that is known does no work, "" while it does.
    """
    away = [each for each in sorted(left) if troubles.get(each, UNSEEN)]
    texts = [
        f"partition {each}: {troubles.get(each, UNSEEN)}; {_meanwhile(chosen.get(each), bound_to_node)}"
        for each in away[:NAMED]
    ]
    if len(away) > NAMED:
        texts.append(f"and {len(away) - NAMED} partitions more")
    return [Problem("PartitionAway", "; ".join(texts))] if texts else []


def gone(silences: Mapping[int, Silence]) -> str:
    """Which partitions are gone, if those are all that is left of a run that is bound to nodes; else "".

    Args:
        silences: of every partition that is not finished.
    """
    if not silences or any(each.seconds < AGENT_GONE_TIMEOUT_SECONDS for each in silences.values()):
        return ""
    named = [
        f"partition {index}" + (f" (node {each.node})" if each.node else "")
        for index, each in sorted(silences.items())[:NAMED]
    ]
    more = f" and {len(silences) - NAMED} more" if len(silences) > NAMED else ""
    text = f"{', '.join(named)}{more}: no agent has reported for {AGENT_GONE_TIMEOUT_SECONDS:.0f} s"
    return f"{text}, so what is on its node stays there; all other partitions are done"


def refusals_of(left: Mapping[int, int], parts: Mapping[int, PartitionState]) -> list[Problem]:
    """What the next chunks of partitions wait for on their agents."""
    refused = [(index, parts[index]) for index in sorted(left) if index in parts and parts[index].reason]
    found = [repeated(part.reason, f"partition {index}: {part.message}") for index, part in refused[:NAMED]]
    if len(refused) > NAMED:
        found.append(Problem(refused[NAMED][1].reason, f"and {len(refused) - NAMED} partitions more"))
    return found


def _meanwhile(by: int | None, bound_to_node: bool) -> str:
    if bound_to_node:
        return "what is on its node it alone can do, so the run waits for it"
    if by is None:
        return "no other partition is there to do its work"
    return f"its work is done by partition {by}"
