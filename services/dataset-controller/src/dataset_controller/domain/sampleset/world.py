"""The observed world, reduced to what decisions need: partitions, placement, figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.objects import Object, is_pod_ready, key_of, labels_of, spec_of, status_of
from dataset_controller.domain.sampleset.model import ObservedSet
from paddlewheel.contracts.dataset_names import node_label, runtime_name
from paddlewheel.contracts.generated.cache_v1 import NodeStatus

REPORT_SECONDS = 60.0
"""A node's report older than this says nothing any more."""


@dataclass(frozen=True)
class Partition:
    """One runtime pod. `ready` means: mounted, by its readiness probe and its own report."""

    index: int
    node: str
    ready: bool
    trouble: str = ""


@dataclass(frozen=True)
class World:
    """Facts about one set, not opinions. `replicas` is what the StatefulSet asks for, -1 without one."""

    bound: bool
    replicas: int
    settled: bool
    partitions: tuple[Partition, ...]
    placed: frozenset[int]
    reports: tuple[NodeStatus, ...]

    def ready_below(self, count: int) -> int:
        """How many of the partitions 0 .. count-1 are ready."""
        return sum(p.ready for p in self.partitions if p.index < count)

    def ready_prefix(self, count: int) -> int:
        """The most n, up to `count`, for which the partitions 0 .. n-1 are all ready."""
        ready = {p.index for p in self.partitions if p.ready}
        return next((i for i in range(count) if i not in ready), count)

    @property
    def mounted(self) -> bool:
        return any(p.ready for p in self.partitions)

    def is_complete(self, count: int) -> bool:
        """Exactly the partitions 0 .. count-1 run, all ready, each on a node that carries its label."""
        nodes = {p.node for p in self.partitions if p.ready and p.index < count}
        return (
            self.settled
            and self.replicas == count
            and self.ready_below(count) == count == len(self.partitions)
            and len(nodes) == count
            and self.placed >= set(range(count))
        )


def survey(seen: ObservedSet, now: datetime) -> World:
    """Reduce the observation."""
    reports = tuple(r for r in seen.reports if is_fresh(r, now))
    partitions = _partitions(seen, reports)
    stateful_set = seen.children.stateful_set
    return World(
        bound=seen.children.claim is not None and status_of(seen.children.claim).get("phase") == "Bound",
        replicas=-1 if stateful_set is None else int(spec_of(stateful_set).get("replicas", 1)),
        settled=_is_settled(stateful_set),
        partitions=partitions,
        placed=_placed(seen, partitions),
        reports=reports,
    )


def is_fresh(report: NodeStatus, now: datetime) -> bool:
    """The agent is alive by its own word."""
    return report.updated_at is not None and (now - report.updated_at).total_seconds() <= REPORT_SECONDS


def ordinal(pod: Object, set_name: str) -> int | None:
    """The partition a runtime pod holds, None for other pods."""
    head, _, tail = key_of(pod).name.rpartition("-")
    return int(tail) if head == runtime_name(set_name) and tail.isdecimal() else None


def _partitions(seen: ObservedSet, reports: tuple[NodeStatus, ...]) -> tuple[Partition, ...]:
    unmounted = {r.partition: r.message for r in reports if not r.mounted}
    found = ((ordinal(pod, seen.key.name), pod) for pod in seen.pods)
    return tuple(
        _partition(index, pod, unmounted) for index, pod in sorted(_numbered(found), key=lambda item: item[0])
    )


def _numbered(found: Iterable[tuple[int | None, Object]]) -> Iterable[tuple[int, Object]]:
    return ((index, pod) for index, pod in found if index is not None)


def _partition(index: int, pod: Object, unmounted: dict[int, str]) -> Partition:
    node = str(spec_of(pod).get("nodeName") or "")
    if index in unmounted:
        return Partition(index, node, False, unmounted[index] or "the agent reports no mount")
    if is_pod_ready(pod):
        return Partition(index, node, bool(node))
    return Partition(index, node, False, _trouble(pod))


def _trouble(pod: Object) -> str:
    """Why a pod is not ready, in Kubernetes' own words."""
    status = status_of(pod)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'Waiting')}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unscheduled')}: {condition.get('message', '')}".rstrip(": ")
    return ""


def _is_settled(stateful_set: Object | None) -> bool:
    """The StatefulSet controller has no pod more or less than asked for."""
    if stateful_set is None:
        return False
    status = status_of(stateful_set)
    wanted = int(spec_of(stateful_set).get("replicas", 1))
    return int(status.get("replicas", 0)) == wanted == int(status.get("readyReplicas", 0))


def _placed(seen: ObservedSet, partitions: tuple[Partition, ...]) -> frozenset[int]:
    label = node_label(seen.key.namespace, seen.key.name)
    labelled = {key_of(node).name: labels_of(node).get(label) for node in seen.nodes}
    return frozenset(p.index for p in partitions if p.node and labelled.get(p.node) == str(p.index))
