"""Where a pod would best run: worker i beside partition i of its data set."""

from __future__ import annotations

from typing import Any

from job_controller.domain.model import Job, SampleSet
from job_controller.domain.pods import PodId
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.dataset_names import node_label

_WEIGHT = 100


def preferred_node(job: Job, pod: PodId, sample_set: SampleSet | None) -> dict[str, Any] | None:
    """A preferred scheduling term: a preference only, so that a full node never stops the job."""
    ref = job.sample_set
    if ref is None or sample_set is None or pod.role != WORKER or pod.ordinal >= sample_set.partitions:
        return None
    expression = {
        "key": node_label(ref.namespace, ref.name),
        "operator": "In",
        "values": [str(pod.ordinal)],
    }
    return {"weight": _WEIGHT, "preference": {"matchExpressions": [expression]}}
