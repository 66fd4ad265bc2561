"""The data set in pods: its volume, and the nodes where it is cached."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Job, Manifest, Role
from job_controller.core.manifests import append_unless
from job_controller.core.model import Observed
from job_controller.core.parts import SampleSet
from job_controller.core.pods import PodId
from job_controller.features.dataset.placement import data_node, preferred_nodes, required_node
from paddlewheel.contracts.dataset_names import claim_name

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_shape(seen: Observed) -> Shape:
    """Mounts the data set, and prefers or requires the node of the pod's partition."""
    job, sample_set = seen.job, seen.sample_set

    def shape(_: Role, place: PodId, pod: Manifest) -> None:
        _mount_data(job, pod["spec"])
        _place(job, place, sample_set, pod["spec"])
        if node := data_node(job, place, sample_set):
            pod["metadata"]["annotations"][names.ANNOTATION_DATA_NODE] = node

    return shape


def _mount_data(job: Job, spec: Manifest) -> None:
    ref = job.spec.sample_set_ref
    if ref is None:
        return
    volume = names.volume_name(ref.name)
    claim = {"name": volume, "persistentVolumeClaim": {"claimName": claim_name(ref.name)}}
    mount = {"name": volume, "mountPath": ref.mount_path, "mountPropagation": "HostToContainer"}
    append_unless(spec, "volumes", claim, "name")
    append_unless(spec["containers"][0], "volumeMounts", mount, "mountPath")


def _place(job: Job, pod: PodId, sample_set: SampleSet | None, spec: Manifest) -> None:
    required = required_node(job, pod, sample_set)
    terms = [] if required else preferred_nodes(job, pod, sample_set)
    if required is None and not terms:
        return
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    if terms:
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), *terms]
    if required:
        node[_REQUIRED] = _with_expression(node.get(_REQUIRED) or {}, required)
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _with_expression(selector: Manifest, expression: Manifest) -> Manifest:
    """The user's own terms are alternatives, so each of them gets it."""
    own = selector.get("nodeSelectorTerms") or [{}]
    terms = [{**t, "matchExpressions": [*(t.get("matchExpressions") or ()), expression]} for t in own]
    return {"nodeSelectorTerms": terms}
