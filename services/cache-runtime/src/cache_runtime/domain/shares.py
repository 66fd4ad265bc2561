"""Who works on which partition: everybody on his own, and others on those that are away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from cache_runtime.domain.runs import Problem
from paddlewheel.contracts.generated.cache_v1 import PartitionState, PartitionTotals, RunSpec, RunState

NAMED = 3
"""Partitions that a message names at most."""


UNSEEN = "no agent reports"
"""The trouble of a partition that nothing is known of."""


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
    chosen: dict[int, int] = {}
    away = sorted(set(left) - present)
    for partition in away:
        if current.get(partition) in present:
            chosen[partition] = current[partition]
    for partition in away:
        by = chosen.get(partition)
        idle = [each for each in present if each not in left and each not in chosen.values()]
        if by is None or (by in left and idle):
            chosen.pop(partition, None)
            if best := idle or sorted(present):
                loads = list(chosen.values())
                chosen[partition] = min(best, key=lambda each: (loads.count(each), left.get(each, 0), each))
    return chosen


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


def _meanwhile(by: int | None, bound_to_node: bool) -> str:
    if bound_to_node:
        return "what is on its node it alone can do, so the run waits for it"
    if by is None:
        return "no other partition is there to do its work"
    return f"its work is done by partition {by}"
