"""Workloads, and where the pods that Kueue has admitted run."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Job, Manifest, Role
from job_controller.core.manifests import child_metadata
from job_controller.core.model import Observed
from job_controller.core.parts import Priority
from job_controller.core.pods import PodId
from job_controller.features.kueue.rules import flavors_of, priority_fields, workload_digest, workload_spec


def render_workload(job: Job, priority: Priority | None) -> Manifest:
    """The Workload: the pods that Kueue counts."""
    metadata = child_metadata(job, names.workload_name(job.key.name), {})
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {**metadata, "annotations": {names.ANNOTATION_TEMPLATE: workload_digest(job)}},
        "spec": workload_spec(job) | priority_fields(priority),
    }


def pod_shape(seen: Observed) -> Shape:
    """Lets new pods run where their quota is."""
    flavors = flavors_of(seen)

    def shape(role: Role, _: PodId, pod: Manifest) -> None:
        spec = pod["spec"]
        for flavor in flavors.get(role.name, ()):
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **flavor.node_labels}
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(dict, flavor.tolerations)]

    return shape
