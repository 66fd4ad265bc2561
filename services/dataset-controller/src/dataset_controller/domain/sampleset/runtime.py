"""The observed runtime, reduced to what decisions need: partitions, placement, reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dataset_controller.domain.sampleset.model import Children, ObservedSet, RuntimePod
from dataset_controller.timing import REPORT_TIMEOUT_SECONDS
from paddlewheel.contracts.crds.limits import PARTITIONS
from paddlewheel.contracts.dataset_names import node_label
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.objects import Object, key_of, labels_of, spec_of, status_of
from paddlewheel.contracts.reasons import Reason

_BEARABLE = frozenset({Reason.STORE_UNREACHABLE, Reason.CACHE_DISK_FULL, Reason.CACHE_DISK_FAILED})
"""What ails a mounted partition, and leaves what is cached, or what is in the store, to be read."""


@dataclass(frozen=True)
class Partition:
    """One runtime pod. `ready` means mounted, both by its readiness probe and by its own report."""

    index: int
    node: str
    ready: bool
    trouble: str = ""


@dataclass(frozen=True)
class Runtime:
    """State of one set's volume and pods.

    Args:
        replicas: those that the StatefulSet asks for, -1 without one.
        settled: the StatefulSet has exactly the pods it asks for, all ready.
        placed: partitions whose node carries their label.
        reports: those that have not expired.
    """

    bound: bool
    replicas: int
    settled: bool
    partitions: tuple[Partition, ...]
    placed: frozenset[int]
    reports: tuple[NodeStatus, ...]

    @property
    def ailing(self) -> NodeStatus | None:
        """The report that says what is wrong on its node: the first that stops jobs, else the first."""
        ill = [r for r in self.reports if r.ailment]
        return min(ill, key=lambda r: (not is_serious(r), r.partition), default=None)

    def ready_below(self, count: int) -> int:
        """How many of the partitions 0 .. count-1 are ready."""
        return sum(p.ready for p in self.partitions if p.index < count)

    @property
    def mounted(self) -> bool:
        """At least one partition is ready."""
        return any(p.ready for p in self.partitions)

    @property
    def first_trouble(self) -> str:
        """Of the first partition that has one, "" when none has."""
        found = next((p for p in self.partitions if not p.ready and p.trouble), None)
        return f"partition {found.index}: {found.trouble}" if found else ""

    def nodes_of(self, count: int) -> tuple[str, ...]:
        """The nodes of the partitions 0 .. count-1, () while they are not complete."""
        if not self.is_complete(count):
            return ()
        return tuple(p.node for p in sorted(self.partitions, key=lambda p: p.index))

    def is_complete(self, count: int) -> bool:
        """The claim is bound, and exactly the partitions 0 .. count-1 run: ready, with nothing serious, on
        labelled nodes."""
        nodes = {p.node for p in self.partitions}
        return (
            self.bound
            and self.settled
            and self.replicas == count
            and self.ready_below(count) == count == len(self.partitions)
            and len(nodes) == count
            and self.placed >= set(range(count))
            and not any(is_serious(r) for r in self.reports if r.partition < count)
        )


def runtime_of(seen: ObservedSet, now: datetime) -> Runtime:
    """Reduce the observation."""
    reports = tuple(r for r in seen.reports if is_fresh(r, now))
    partitions = _partitions(seen.pods, reports)
    stateful_set = seen.children.stateful_set
    return Runtime(
        bound=_is_bound(seen.children),
        replicas=-1 if stateful_set is None else int(spec_of(stateful_set).get("replicas", 1)),
        settled=_is_settled(stateful_set),
        partitions=partitions,
        placed=_placed(seen, partitions),
        reports=reports,
    )


def _is_bound(children: Children) -> bool:
    """To a volume that is known: one that somebody else gave its name may be bound to the claim as well."""
    is_known = children.volume is not None and children.claim is not None
    return is_known and status_of(children.claim or {}).get("phase") == "Bound"


def wanted_partitions(seen: ObservedSet) -> int:
    """Of a spec that cannot be read, those that it asked for last."""
    spec = seen.sample_set.spec
    return spec.partitions if spec else int(seen.status.runtime.get("specReplicas") or 0)


def held_partitions(seen: ObservedSet, runtime: Runtime) -> int:
    """The number of partitions of the StatefulSet, or of the last one, by the recorded figures."""
    if runtime.replicas >= 0:
        return runtime.replicas
    rows = seen.status.cache.get("nodes") or ()
    return min(PARTITIONS, max((int(row.get("partition") or 0) + 1 for row in rows), default=0))


def startable(seen: ObservedSet, count: int) -> int:
    """How many of `count` runtime pods there may be now: one, until it has mounted. An agent that finds the
    database empty formats it, and two at once would make two volumes, one in the place of the other.

    It holds up nobody: all pods have one template, so while the first finds no node, none would.
    """
    stateful_set = seen.children.stateful_set
    started = 0 if stateful_set is None else int(spec_of(stateful_set).get("replicas", 1))
    return count if _has_volume(seen) else min(count, max(1, started))


def _has_volume(seen: ObservedSet) -> bool:
    """It has been mounted: a pod is ready, or a report, however old, says so."""
    has_mounted = any(report.mounted or report.volume_id for report in seen.reports)
    return has_mounted or any(pod.is_ready for pod in seen.pods)


def is_fresh(report: NodeStatus, now: datetime) -> bool:
    """The agent has reported lately. Of a report from the future, after the clock was set back, nobody can
    say so."""
    return _is_recent(report.updated_at, now)


def is_freshly_measured(report: NodeStatus, now: datetime) -> bool:
    """The agent has looked lately for what is not uploaded: a disk may be slower than its reports."""
    return is_fresh(report, now) and _is_recent(measured_at(report), now)


def measured_at(report: NodeStatus) -> datetime | None:
    """When the agent began to look for what is not uploaded."""
    return _before(report, report.staged_age)


def size_measured_at(report: NodeStatus) -> datetime | None:
    """When the size of the set in this report was current. The report of an older agent does not have its
    age."""
    return _before(report, report.size_age)


def cache_measured_at(report: NodeStatus) -> datetime | None:
    """When the agent began to look what is cached, by this service's clock: those of nodes may be wrong. None
    when there is no such figure, and for an agent of an older release, which does not say how old it is."""
    return _before(report, report.cached_age) if report.cached_age else None


def _before(report: NodeStatus, age: int) -> datetime | None:
    """The time of a figure of this age, in seconds."""
    return report.updated_at and report.updated_at - timedelta(seconds=age)


def _is_recent(at: datetime | None, now: datetime) -> bool:
    return at is not None and abs((now - at).total_seconds()) <= REPORT_TIMEOUT_SECONDS


def is_serious(report: NodeStatus) -> bool:
    """Jobs cannot read there: the mount or its database is down."""
    return bool(report.ailment) and not (report.mounted and report.ailment in _BEARABLE)


def _partitions(pods: tuple[RuntimePod, ...], reports: tuple[NodeStatus, ...]) -> tuple[Partition, ...]:
    unmounted = {r.partition: r.message for r in reports if not r.mounted}
    return tuple(_partition(pod, unmounted) for pod in sorted(pods, key=lambda pod: pod.index))


def _partition(pod: RuntimePod, unmounted: dict[int, str]) -> Partition:
    if pod.index in unmounted:
        trouble = unmounted[pod.index] or "the agent reports no mount"
        return Partition(pod.index, pod.node, False, trouble)
    return Partition(pod.index, pod.node, pod.is_ready and bool(pod.node), pod.trouble)


def _is_settled(stateful_set: Object | None) -> bool:
    if stateful_set is None:
        return False
    status = status_of(stateful_set)
    wanted = int(spec_of(stateful_set).get("replicas", 1))
    return int(status.get("replicas", 0)) == wanted == int(status.get("readyReplicas", 0))


def _placed(seen: ObservedSet, partitions: tuple[Partition, ...]) -> frozenset[int]:
    label = node_label(seen.sample_set.key.namespace, seen.sample_set.key.name)
    labelled = {key_of(node).name: labels_of(node).get(label) for node in seen.nodes}
    return frozenset(p.index for p in partitions if p.node and labelled.get(p.node) == str(p.index))
