"""Nodes that have lost the set's mount: why, and since when by this service's clock.

A loss is recorded until the set is mounted there again. It is known from the report of an agent, or, when
that was killed and cannot report any more, from its pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from dataset_controller.domain.sampleset.model import ObservedSet, RuntimePod
from dataset_controller.domain.sampleset.runtime import Runtime
from dataset_controller.timing import LOST_MOUNT_GRACE_SECONDS
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp, seconds_stamp


@dataclass(frozen=True)
class LostMount:
    """One row of `status.runtimeStatus.lostMounts`. `since` is RFC 3339."""

    partition: int
    node: str
    since: str
    reason: str
    message: str

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> LostMount:
        texts = (str(raw.get(name) or "") for name in ("node", "since", "reason", "message"))
        return cls(int(raw.get("partition") or 0), *texts)

    def render(self) -> dict[str, object]:
        return dict(vars(self))


def find_lost_mounts(
    seen: ObservedSet, runtime: Runtime, partitions: int, now: datetime
) -> tuple[LostMount, ...]:
    """By partition and node. None with a CSI driver, by which each pod has a mount of its own."""
    if seen.mounts_by_csi:
        return ()
    mounted_on = {p.node for p in runtime.partitions if p.ready}
    recorded = {lost.node: lost for lost in _recorded(seen, partitions)}
    found = {lost.node: lost for lost in _observed(seen, partitions, recorded, seconds_stamp(now))}
    gone = {node: _left(seen, lost) for node, lost in recorded.items() if _is_kept(lost, now)}
    lost = [each for node, each in {**gone, **found}.items() if node not in mounted_on]
    return tuple(sorted(lost, key=lambda each: (each.partition, each.node)))


def _recorded(seen: ObservedSet, partitions: int) -> Iterator[LostMount]:
    rows = map(LostMount.parse, seen.status.runtime.get("lostMounts") or ())
    return (lost for lost in rows if lost.partition < partitions)


def _is_kept(lost: LostMount, now: datetime) -> bool:
    since = parse_stamp(lost.since)
    return since is not None and now - since < timedelta(seconds=LOST_MOUNT_GRACE_SECONDS)


def _observed(
    seen: ObservedSet, partitions: int, recorded: dict[str, LostMount], stamp: str
) -> Iterator[LostMount]:
    """From the last report of each partition, however old, and its pod."""
    pods = {pod.index: pod for pod in seen.pods}
    for report in seen.reports:
        if report.partition >= partitions:
            continue
        before = recorded.get(report.node) or LostMount(report.partition, report.node, stamp, "", "")
        before = replace(before, partition=report.partition)
        if lost := _judge(report, pods.get(report.partition), before):
            yield lost


def _judge(report: NodeStatus, pod: RuntimePod | None, before: LostMount) -> LostMount | None:
    """None when the node has the mount, as far as is known."""
    if pod is not None and pod.node not in ("", report.node):
        return _moved(before, pod)
    if not report.mounted:
        # The next agent has not tried yet: the cause is still that of the one before.
        reason = report.ailment or before.reason or Reason.WAITING_FOR_MOUNT
        return replace(before, reason=reason, message=_join(report.ailment_message or report.message, pod))
    if pod is None or not pod.node or not pod.has_agent:
        return replace(before, reason=Reason.AGENT_ENDED, message=_join("the runtime pod has ended", pod))
    return before if before.reason else None


def _left(seen: ObservedSet, lost: LostMount) -> LostMount:
    """A loss that no report is about any more."""
    pod = next((pod for pod in seen.pods if pod.index == lost.partition), None)
    return _moved(lost, pod) if pod is not None and pod.node not in ("", lost.node) else lost


def _moved(lost: LostMount, pod: RuntimePod) -> LostMount:
    message = (
        f"partition {lost.partition} has moved to node {pod.node}; restart the pods that still use the data"
        f" on node {lost.node}"
    )
    return replace(lost, reason=Reason.PARTITION_MOVED, message=message)


def _join(problem: str, pod: RuntimePod | None) -> str:
    """With what keeps the next agent from starting."""
    return "; ".join(filter(None, (problem, pod.trouble if pod else "")))
