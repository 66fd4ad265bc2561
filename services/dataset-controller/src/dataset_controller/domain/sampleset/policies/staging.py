"""Writes that are on a node only (writeback): acknowledged to a pod, and lost with the node's cache.

What is known to be staged where is decided here. The last report of an agent counts, however old, when it
says that there is something: what a lost node has is not in the store either. Where pods write to the cache
first, or did once, silence is not nothing: a partition that was mounted, as the API server knows, may have
some until its agent reports that there is none; before it leaves, the agent has to have said so just now.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dataset_controller.domain.names import DISCARD_ANNOTATION, Cond
from dataset_controller.domain.sampleset.model import ObservedSet, SampleSet
from dataset_controller.domain.sampleset.runtime import is_freshly_measured, measured_at, wanted_partitions
from dataset_controller.timing import LAST_WRITES_GRACE_SECONDS
from paddlewheel.contracts.dataset_names import home_label
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.objects import annotations_of, key_of, labels_of, spec_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.sizes import iec
from paddlewheel.contracts.staged_writes import left_on_node

_UNMEASURED = "an amount that its agent cannot measure"
_UNMEASURED_THERE = "an amount that nobody has measured"
_UNREPORTED = "an amount that no agent has reported"
_OUTDATED = "an amount that its agent has not reported lately"
_IN_USE_THEN = "an amount that its agent has not reported since the last user has gone"
_NO_PARTITION = -1
_NAMES_MAX = 400
"""Characters of names of nodes in a command that a condition's message has room for."""
_ALL_NAMES = "{range .status.cacheStatus.nodes[*]}{.node},{end}{range .status.nodesWithWrites[*]}{@},{end}"
"""The names of the nodes that the set is or was on, from its status."""


def staged_writes(
    seen: ObservedSet, now: datetime, is_leaving: Callable[[int], bool] = lambda _: True
) -> str:
    """What to wait for before partitions leave, "" when there is nothing or the user gives it up.

    Of a set that was found free only what is certain counts: its agents end, and what they all had was
    measured after the last user had gone.
    """
    is_free = seen.status.holds(Cond.FREE)
    if not seen.are_records_known:
        return "" if is_free else _waits_for_the_bus(seen, is_leaving)
    reports = [r for r in seen.reports if is_leaving(r.partition)]
    here, left = _here(seen, reports), _left(seen, reports)
    if is_free:
        here, left = _certain(here), _certain(left)
    else:
        here += (each for each in _unanswered(seen, now) if is_leaving(each.partition))
        # Without a report nobody knows which partition may tell of them.
        forgotten = _forgotten(seen, _left(seen))
        left += (each for each in forgotten if is_leaving(each.partition) or not seen.reports)
    found = here + left
    if kept := _not_given_up(seen, found):
        remedy = _remedy(seen, _not_given_up(seen, left), found)
        return f"waits until what pods have written is uploaded: {_list(kept)}; {remedy}"
    # What is only recorded as a message has no names: any name gives it up.
    is_answered = is_free or seen.reports or seen.status.nodes_with_writes or _given_up(seen)
    return "" if is_answered else _recorded(seen)


def _waits_for_the_bus(seen: ObservedSet, is_leaving: Callable[[int], bool]) -> str:
    """Until the reports are known, everybody may have some, unless all nodes that are known are named."""
    waits = "waits for the bus: what agents have reported is not known yet"
    may_have = [e for e in _possible(seen) if e.partition == _NO_PARTITION or is_leaving(e.partition)]
    if not may_have:
        return waits if seen.status.was_mounted else ""
    return f"{waits}; to lose it: {_give_up(seen, may_have)}" if _not_given_up(seen, may_have) else ""


@dataclass(frozen=True)
class WritesLeft:
    """Writes on nodes that no partition is on any more.

    Args:
        message: what they are, and what to do; "" when there are none. What is recorded of them stays until
            agents have answered.
        nodes: their names.
        are_given_up: all of them, by the user.
    """

    message: str
    nodes: frozenset[str]
    are_given_up: bool = False


def writes_left(seen: ObservedSet) -> WritesLeft:
    """What pods have written, and nobody uploads."""
    told = _left(seen)
    found = [*told, *_forgotten(seen, told)]
    nodes, kept = _nodes_of(found), _not_given_up(seen, found)
    lost = _list([each for each in found if each not in kept])
    if lost and not kept:
        message = f"given up, and in no store: {lost}, where no runtime pod is any more"
        return WritesLeft(message, nodes, are_given_up=True)
    is_recorded = seen.status.reason_of(Cond.STAGED_WRITES) == Reason.STAGED_WRITES
    if not told and is_answer_due(seen) and is_recorded:
        return WritesLeft(_recorded(seen), nodes)
    what = f"{_list(kept)}, and given up: {lost}" if lost else _list(kept)
    message = (
        f"no store has what pods have written: {what}, where no runtime pod is any more; let one run there"
        " again, which uploads it; once the set is deleted or made smaller, to lose it:"
        f" {_give_up(seen, found)}"
    )
    return WritesLeft(message if found else "", nodes)


def end_of_giving_up(seen: ObservedSet) -> dict[str, None]:
    """Annotations to remove: what was given up for a set to go or to become smaller is so no longer than
    that takes. A node may come back, and pods write to it anew."""
    is_over = DISCARD_ANNOTATION in annotations_of(seen.obj) and not _loses_partitions(seen)
    return {DISCARD_ANNOTATION: None} if is_over else {}


def is_answer_due(seen: ObservedSet) -> bool:
    """Agents that may know of writes have not reported: the bus has lost what they had."""
    return (
        not seen.are_records_known or bool(_unreported(seen)) or (bool(_recorded(seen)) and not seen.reports)
    )


def partitions_to_upload(seen: ObservedSet, now: datetime) -> int:
    """How many there have to be, so that all is uploaded: each that has some, or may have, is among them, and
    there is one more for each node that they have left, which it prefers by its label."""
    here = [*_here(seen, seen.reports), *_unanswered(seen, now)]
    count = max((each.partition + 1 for each in here), default=0)
    labelled = {key_of(node).name for node in seen.nodes} - {pod.node for pod in seen.pods}
    left = writes_left(seen).nodes - _given_up(seen)
    return max(count, wanted_partitions(seen)) + len(left & labelled)


@dataclass(frozen=True)
class _Writes:
    """On one node, by the word of a partition. `unknown`: why the size is not known."""

    partition: int
    node: str
    size: int = 0
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self._amount} on node {self.node}"

    @property
    def _amount(self) -> str:
        known = iec(self.size)
        if not self.unknown:
            return known
        return f"at least {known}" if self.size else self.unknown


def _nodes_of(found: Iterable[_Writes]) -> frozenset[str]:
    return frozenset(each.node for each in found)


def _certain(found: Iterable[_Writes]) -> list[_Writes]:
    return [each for each in found if each.size]


def _here(seen: ObservedSet, reports: Iterable[NodeStatus]) -> list[_Writes]:
    """On the nodes that these partitions are on."""
    gone = _gone(seen)
    return _kept(seen, (_writes(report) for report in reports if report.partition not in gone))


def _writes(report: NodeStatus) -> _Writes:
    unknown = _UNMEASURED if report.staged_unknown else ""
    return _Writes(report.partition, report.node or str(report.partition), report.staged_bytes, unknown)


def _gone(seen: ObservedSet) -> frozenset[int]:
    """Partitions that are not on the node of their last report: the pod is on another, or there is none and
    is to be none. The agents of a set that is free only end: where they were, nothing was to be uploaded."""
    if seen.status.holds(Cond.FREE):
        return frozenset()
    count, at = _partitions(seen), _pods_at(seen)
    moved = (r for r in seen.reports if at.get(r.partition, r.node if r.partition < count else "") != r.node)
    return frozenset(report.partition for report in moved)


def _left(seen: ObservedSet, reports: Iterable[NodeStatus] | None = None) -> list[_Writes]:
    """On nodes that these partitions, or all, have left."""
    return _kept(seen, _elsewhere(seen, seen.reports if reports is None else reports))


def _forgotten(seen: ObservedSet, left: Iterable[_Writes]) -> list[_Writes]:
    """On nodes that had some when that was recorded, and of which no report tells: the bus has lost it. A
    report from there settles it; one of an agent that was never there does not, nor one of any age.

    Args:
        left: what reports tell of nodes that partitions have left.
    """
    if not seen.status.nodes_with_writes:
        return []
    new = [report for report in seen.reports if report.partition not in seen.replayed]
    told = {report.node for report in new}
    told |= {each.node for report in new for each in report.staged_elsewhere}
    told |= {each.node for each in (*_here(seen, seen.reports), *left)}
    lost = (node for node in seen.status.nodes_with_writes if node not in told)
    return _kept(seen, [_Writes(_NO_PARTITION, node, unknown=_UNREPORTED) for node in lost])


def _elsewhere(seen: ObservedSet, reports: Iterable[NodeStatus]) -> Iterator[_Writes]:
    """On nodes that these partitions have left, the last one by the rule for the next agent, that may be long
    in coming. Where another partition is mounted now, it reports them itself."""
    held, gone = _held(seen), _gone(seen)
    for report in reports:
        last = left_on_node(report) if report.partition in gone else None
        for each in (*([last] if last else ()), *report.staged_elsewhere):
            if each.node not in held:
                unknown = _UNMEASURED_THERE if each.staged_unknown else ""
                yield _Writes(report.partition, each.node, each.staged_bytes, unknown)


def _held(seen: ObservedSet) -> frozenset[str]:
    """Nodes where a partition is mounted. The last report of one whose pod has gone, or is not ready, says no
    more what its node has."""
    at = {pod.index: pod.node for pod in seen.pods if pod.is_ready}
    return frozenset(r.node for r in seen.reports if r.mounted and at.get(r.partition) == r.node)


def _kept(seen: ObservedSet, writes: Iterable[_Writes]) -> list[_Writes]:
    """What an agent cannot measure counts where there may be some: a set that is writeback no more may have
    left it. A node is settled when its agent reports none."""
    may_be = is_or_was_writeback(seen.sample_set)
    return [each for each in writes if each.size or (may_be and each.unknown)]


def _unanswered(seen: ObservedSet, now: datetime) -> list[_Writes]:
    """Of partitions that were mounted, whose agents have not said by a fresh report that there is nothing."""
    return [*_unreported(seen), *_outdated(seen, now)]


def _unreported(seen: ObservedSet) -> list[_Writes]:
    """Nothing is known of them but where they were."""
    reported = {report.partition for report in seen.reports}
    return [
        _Writes(i, node, unknown=_UNREPORTED) for i, node in _mounted_on(seen).items() if i not in reported
    ]


def _outdated(seen: ObservedSet, now: datetime) -> list[_Writes]:
    """Pods may have written since. Of one that has been scaled away, and whose pod has gone, the last report
    says what it has left."""
    mounted, at, count = _mounted_on(seen), _pods_at(seen), _partitions(seen)
    return [
        _Writes(r.partition, at.get(r.partition, r.node), unknown=why)
        for r in seen.reports
        if r.partition in mounted and (r.partition < count or r.partition in at)
        if (why := _why_outdated(seen, r, now))
        if not r.staged_bytes and not r.staged_unknown
    ]


def _why_outdated(seen: ObservedSet, report: NodeStatus, now: datetime) -> str:
    """The last word of an agent that has unmounted and ended stays true, but where a driver mounts by itself.
    So a namespace can go, whose pods all end at once. The last user of a set that is being deleted may have
    written until it had gone."""
    is_manned = report.partition in _pods_at(seen)
    if not (report.mounted or is_manned or seen.mounts_by_csi):
        return ""
    if not is_freshly_measured(report, now) or report.partition in seen.replayed:
        return _OUTDATED
    at, since = measured_at(report), seen.unused_since
    return (
        _IN_USE_THEN
        if since is not None and at is not None and at < since + timedelta(seconds=LAST_WRITES_GRACE_SECONDS)
        else ""
    )


def _possible(seen: ObservedSet) -> list[_Writes]:
    """On every node that the set is or was on, by what the API server keeps."""
    left = [(_NO_PARTITION, node) for node in seen.status.nodes_with_writes]
    places = (*_in_figures(seen), *_labelled(seen), *_pods_at(seen).items(), *left)
    return [_Writes(partition, node, unknown=_UNREPORTED) for partition, node in places if node]


def _mounted_on(seen: ObservedSet) -> dict[int, str]:
    """The last known node of each partition that has been mounted, by what the API server keeps: the recorded
    figures, and the labels without which no pod comes to use the set. Empty where pods write to the store."""
    is_relevant = is_or_was_writeback(seen.sample_set)
    return dict([*_in_figures(seen), *_labelled(seen)]) if is_relevant else {}


def _in_figures(seen: ObservedSet) -> list[tuple[int, str]]:
    rows = (row for row in seen.status.cache.get("nodes") or () if row.get("mounted"))
    return [(int(row.get("partition") or 0), str(row.get("node") or "")) for row in rows]


def _labelled(seen: ObservedSet) -> list[tuple[int, str]]:
    key = seen.sample_set.key
    label = home_label(key.namespace, key.name)
    labelled = ((labels_of(node).get(label, ""), key_of(node).name) for node in seen.nodes)
    return [(int(index), node) for index, node in labelled if index.isdecimal()]


def _pods_at(seen: ObservedSet) -> dict[int, str]:
    """The node of each partition that has a pod, ready or not."""
    return {pod.index: pod.node for pod in seen.pods if pod.node}


def _partitions(seen: ObservedSet) -> int:
    """Those that are to be: wanted, or not scaled away yet."""
    runtime = seen.children.stateful_set
    return max(wanted_partitions(seen), 0 if runtime is None else int(spec_of(runtime).get("replicas", 1)))


def _recorded(seen: ObservedSet) -> str:
    """Message of the condition that tells of writes on nodes that partitions have left."""
    found = seen.status.condition(Cond.STAGED_WRITES)
    is_told = found is not None and found.status == "True" and is_or_was_writeback(seen.sample_set)
    return found.message if found is not None and is_told else ""


def is_or_was_writeback(own: SampleSet) -> bool:
    """Pods write to the cache of their node first, or did once."""
    return own.status.was_writeback or (own.spec is not None and own.spec.is_writeback)


def _loses_partitions(seen: ObservedSet) -> bool:
    """The set is being deleted, or made smaller."""
    return bool(seen.sample_set.deleted_at) or _partitions(seen) > wanted_partitions(seen)


def _given_up(seen: ObservedSet) -> frozenset[str]:
    """Nodes whose writes the user gives up."""
    if not _loses_partitions(seen):
        return frozenset()
    named = annotations_of(seen.obj).get(DISCARD_ANNOTATION, "").split(",")
    return frozenset(filter(None, map(str.strip, named)))


def _not_given_up(seen: ObservedSet, writes: Iterable[_Writes]) -> list[_Writes]:
    given_up = _given_up(seen)
    return [each for each in writes if each.node not in given_up]


def _list(writes: Sequence[_Writes]) -> str:
    return ", ".join(map(str, writes[:3])) + (" and others" if len(writes) > 3 else "")


def _remedy(seen: ObservedSet, left: Sequence[_Writes], found: Iterable[_Writes]) -> str:
    """Where there is a pod, its agent uploads them by itself."""
    command = _give_up(seen, found)
    if not left:
        return f"to lose it: {command}"
    return f"let a runtime pod run on {left[0].node} again, which uploads it, or lose it: {command}"


def _give_up(seen: ObservedSet, writes: Iterable[_Writes]) -> str:
    """The command, with the nodes that are given up already: its value takes the place of the one before."""
    key, nodes = seen.sample_set.key, ",".join(sorted(_nodes_of(writes)))
    if len(nodes) > _NAMES_MAX:
        template = shlex.quote(_ALL_NAMES)
        nodes = f'"$(kubectl -n {key.namespace} get sampleset {key.name} -o jsonpath={template})"'
    named = f"{DISCARD_ANNOTATION}={nodes}"
    return f"kubectl -n {key.namespace} annotate --overwrite sampleset {key.name} {named}"
