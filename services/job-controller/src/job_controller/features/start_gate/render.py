"""The init container of a pod that waits until the pod can reach the others."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Manifest, Role
from job_controller.core.manifests import append_unless
from job_controller.core.model import Observed, Options
from job_controller.core.pods import PodId
from job_controller.features.start_gate.question import gate_address
from job_controller.features.start_gate.release import awaited_names, waits_for_names, waits_for_release
from job_controller.features.start_gate.rules import may_fall_back
from job_controller.timing import GATE_FALLBACK_TIMEOUT_SECONDS


def pod_shape(seen: Observed, options: Options) -> Shape:
    """Adds the gate as the last init container."""

    def shape(_: Role, place: PodId, pod: Manifest) -> None:
        _hold_back(seen, options, place, pod["spec"])
        if waits_for_names(seen.job, options):
            pod["metadata"]["annotations"][names.ANNOTATION_WAITS_FOR] = awaited_names(seen.job, place)

    return shape


def _hold_back(seen: Observed, options: Options, pod: PodId, spec: Manifest) -> None:
    job = seen.job
    if waits_for_names(job, options):
        container = _file_gate(options, spec, "--resolve-all", names.NAMES_FILE, names.ANNOTATION_WAITS_FOR)
    elif not waits_for_release(job, options):
        return
    elif options.gate_url and _finds_services(spec):
        container = _asking_gate(seen, options, pod, spec)
    else:
        container = _file_gate(options, spec, "--file", names.RELEASED_FILE, names.ANNOTATION_RELEASED)
    spec["initContainers"] = [*(spec.get("initContainers") or ()), container]


def _finds_services(spec: Manifest) -> bool:
    """The pod resolves names of Services. On the host's network, ClusterFirst means the node's own DNS."""
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))


def _asking_gate(seen: Observed, options: Options, pod: PodId, spec: Manifest) -> Manifest:
    """Asks this service, which costs no write for each pod."""
    container = _gate_container(options.gate_image, spec)
    container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    address = gate_address(options.gate_url, seen.job, pod)
    container["command"] = ["/gate", "--ask", f"{address}&ip=$(POD_IP)"]
    if may_fall_back(seen) and seen.job.trains(pod):
        # Then its kubelet waits for the ConfigMap. A worker beyond the present world has only its gate.
        container["command"] += ["--fallback", f"{GATE_FALLBACK_TIMEOUT_SECONDS:g}s"]
    return container


def _file_gate(options: Options, spec: Manifest, option: str, file: str, annotation: str) -> Manifest:
    container = _gate_container(options.gate_image, spec)
    container["command"] = ["/gate", option, f"{names.GATE_FOLDER}/{file}"]
    container["volumeMounts"] = [{"name": names.GATE_VOLUME, "mountPath": names.GATE_FOLDER}]
    append_unless(spec, "volumes", _gate_volume(file, annotation), "name")
    return container


_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Pod Security `restricted` requires this of every container."""
_COPIED_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def _gate_container(image: str, spec: Manifest) -> Manifest:
    return {
        "name": names.GATE_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": _resources_of_first(spec),
        "securityContext": _RESTRICTED | _non_root(spec),
    }


def _resources_of_first(spec: Manifest) -> Manifest:
    """The requests and limits of the container that trains, which starts after the gate has ended.

    Quotas and limit ranges admit both or neither, and the pod requests no more and keeps its QoS class.
    """
    given = spec["containers"][0].get("resources") or {}
    copied = {
        field: {
            name: amount for name, amount in (given.get(field) or {}).items() if name in _COPIED_RESOURCES
        }
        for field in ("requests", "limits")
    }
    return {field: amounts for field, amounts in copied.items() if amounts}


def _non_root(spec: Manifest) -> Manifest:
    """The template may say this of its containers instead of the pod. The user is that of the pod, or else
    that of the image, which is not root."""
    is_root = (spec.get("securityContext") or {}).get("runAsUser") == 0
    return {} if is_root else {"runAsNonRoot": True}


def _gate_volume(file: str, annotation: str) -> Manifest:
    """The annotation as a file, so that what the pod waits for can change while it waits."""
    item = {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": names.GATE_VOLUME, "downwardAPI": {"items": [item]}}
