"""The best nodes for a worker: worker i runs beside partition i of its data set, by the cached bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from job_controller.core.job import Job
from job_controller.core.parts import SampleSet
from job_controller.core.pods import PodId
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.dataset_names import node_label

Expression = dict[str, Any]
_OWN, _CACHED, _OTHER, _STEP = 60, 40, 20, 10
"""Weights: the worker's own partition, its gain when it is the fullest, the most for another partition, and
the step of all. The own one is always far ahead: figures are seconds old, and what it reads is cached."""
_OTHERS = 10
"""Partitions of other workers that are named, the fullest ones: each pod carries the list."""


def preferred_nodes(job: Job, pod: PodId, sample_set: SampleSet | None) -> list[dict[str, Any]]:
    """Scheduling terms: the worker's own partition first, then the others by what is cached there."""
    if sample_set is None or not _has_place(job, pod, sample_set):
        return []
    weights: defaultdict[int, list[int]] = defaultdict(list)
    weights[_OWN + _rounded(_CACHED * _share(sample_set, pod.ordinal))].append(pod.ordinal)
    others = [partition for partition in sample_set.fullest if partition != pod.ordinal]
    for partition in others[:_OTHERS]:
        weights[_rounded(_OTHER * _share(sample_set, partition))].append(partition)
    return [_term(job, weight, held) for weight, held in sorted(weights.items(), reverse=True) if weight]


def required_node(job: Job, pod: PodId, sample_set: SampleSet | None) -> Expression | None:
    """The node of the worker's partition, or any node of the set for further workers. None for other jobs."""
    ref = job.spec.sample_set_ref
    if ref is None or not ref.is_required or pod.role != WORKER:
        return None
    if sample_set is not None and _has_place(job, pod, sample_set):
        return _held(job, (pod.ordinal,))
    return {"key": _label(job), "operator": "Exists"}


def data_node(job: Job, pod: PodId, sample_set: SampleSet | None) -> str:
    """Name of the node of the worker's partition, "" when it has none, or it is not known."""
    if sample_set is None or not _has_place(job, pod, sample_set):
        return ""
    return sample_set.nodes.get(pod.ordinal, "")


def _has_place(job: Job, pod: PodId, sample_set: SampleSet) -> bool:
    return job.sample_set is not None and pod.role == WORKER and pod.ordinal < sample_set.partitions


def _share(sample_set: SampleSet, partition: int) -> float:
    """The share of what the fullest node has cached. A partition that has not reported counts as full."""
    largest = max((sample_set.cached[partition] for partition in sample_set.fullest[:1]), default=0)
    return sample_set.cached.get(partition, largest) / largest if largest else 0.0


def _rounded(weight: float) -> int:
    return round(weight / _STEP) * _STEP


def _term(job: Job, weight: int, partitions: Iterable[int]) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": [_held(job, partitions)]}}


def _held(job: Job, partitions: Iterable[int]) -> Expression:
    return {"key": _label(job), "operator": "In", "values": [str(partition) for partition in partitions]}


def _label(job: Job) -> str:
    ref = job.sample_set
    return node_label(ref.namespace, ref.name) if ref else ""
