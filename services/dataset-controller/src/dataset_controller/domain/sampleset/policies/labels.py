"""Node labels: the node holds partition i. Two labels, ours and the contract's, and a third that stays.

Ours, `paddlepaddle.org/juicefs-<namespace>.<set>=<i>`, is exact. The contract's, without the namespace, is
set too unless the node carries it for a set of the same name in another namespace. Both are there only while
the set is mounted. `paddlepaddle.org/home-<namespace>.<set>=<i>` brings a pod that is replaced back to its
cache, and to what it has not uploaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dataset_controller.domain import names
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.policies.staging import is_answer_due, writes_left
from dataset_controller.domain.sampleset.runtime import Partition, Runtime
from paddlewheel.contracts.dataset_names import (
    LABEL_DOMAIN,
    home_label,
    node_label,
    runtime_pod_name,
    set_label,
)
from paddlewheel.contracts.objects import Object, key_of, labels_of
from paddlewheel.operator.domain.plan import Patch

Labels = dict[str, str | None]
PREFIX = f"{LABEL_DOMAIN}/juicefs-"
HOME_PREFIX = f"{LABEL_DOMAIN}/home-"


def decide_labels(
    owner: SetIdentity,
    nodes: tuple[Object, ...],
    partitions: tuple[Partition, ...],
    count: int,
    is_home: Callable[[str], bool] = lambda _: False,
) -> tuple[Patch, ...]:
    """Label the nodes of ready partitions and no others: where the mount is gone, new pods must not go.

    Those that run there already stay: a volume's node affinity counts only when a pod is placed.

    Args:
        count: wanted partitions; 0 removes every label.
        is_home: whether a partition that is not ready on this node may come back.
    """
    held = {p.node: p for p in partitions if p.node and p.ready and p.index < count}
    patches = []
    for node in nodes:
        name = key_of(node).name
        if change := _change(owner, labels_of(node), held.get(name), is_home(name)):
            patches.append(Patch(names.NODE, key_of(node), {"metadata": {"labels": change}}))
    return tuple(patches)


def follow_mounts(seen: ObservedSet, runtime: Runtime, count: int) -> tuple[Patch, ...]:
    """Labels of a set that is to have `count` partitions, by what its pods and agents say."""
    is_home = homes(seen, runtime, count)
    return decide_labels(seen.sample_set.identity, seen.nodes, runtime.partitions, count, is_home)


def homes(seen: ObservedSet, runtime: Runtime, count: int) -> Callable[[str], bool]:
    """All that were, until every partition has one, and agents have reported; then those with writes that
    only a pod there uploads."""
    if is_answer_due(seen) or not runtime.is_complete(count):
        return lambda _: True
    left = writes_left(seen).nodes
    return lambda node: node in left


def _change(
    owner: SetIdentity, labels: Mapping[str, str], partition: Partition | None, is_home: bool
) -> Labels:
    mine, home = node_label(owner.namespace, owner.name), home_label(owner.namespace, owner.name)
    if partition is None:
        no_home: Labels = {} if is_home or home not in labels else {home: None}
        return no_home | (_removal(owner, labels) if mine in labels else {})
    wanted = {mine: str(partition.index), home: str(partition.index)}
    if not _is_others(owner, labels):
        wanted[set_label(owner.name)] = runtime_pod_name(owner.name, partition.index)
    return {name: value for name, value in wanted.items() if labels.get(name) != value}


def _removal(owner: SetIdentity, labels: Mapping[str, str]) -> Labels:
    public = set_label(owner.name)
    removed: Labels = {node_label(owner.namespace, owner.name): None}
    if public in labels and not _is_others(owner, labels):
        removed[public] = None
    return removed


def _is_others(owner: SetIdentity, labels: Mapping[str, str]) -> bool:
    """The contract's label is that of a set of this name in another namespace, on the same node."""
    mine, public = node_label(owner.namespace, owner.name), set_label(owner.name)
    rivals = [
        name
        for name in labels
        if name.startswith(PREFIX) and name.endswith(f".{owner.name}") and name not in (mine, public)
    ]
    if not rivals or public not in labels:
        return False
    return labels[public] in {
        runtime_pod_name(owner.name, int(labels[n])) for n in rivals if labels[n].isdecimal()
    }
