"""The init container of a pod that waits until the pod can reach the others."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Manifest, Role
from job_controller.core.model import Observed, Options
from job_controller.core.pods import PodId
from job_controller.features.start_gate.question import gate_address
from job_controller.features.start_gate.rules import (
    finds_services,
    has_gate,
    may_fall_back,
    resolves_before_fallback,
)
from job_controller.timing import GATE_FALLBACK_TIMEOUT_SECONDS
from paddlewheel.contracts.crds.paddlejob import ENDPOINT_VARIABLES


def pod_shape(seen: Observed, options: Options) -> Shape | None:
    """Adds the gate as the last init container."""
    if not has_gate(seen.job, options):
        return None

    def shape(_: Role, place: PodId, pod: Manifest) -> None:
        spec = pod["spec"]
        spec["initContainers"] = [*(spec.get("initContainers") or ()), _gate(seen, options, place, spec)]

    return shape


def _gate(seen: Observed, options: Options, pod: PodId, spec: Manifest) -> Manifest:
    container = _gate_container(options.gate_image, spec)
    container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    url = options.gate_url if finds_services(spec) else seen.gate_url or options.gate_url
    container["command"] = ["/gate", "--ask", f"{gate_address(url, seen.job, pod)}&ip=$(POD_IP)"]
    if may_fall_back(seen, pod):
        container["command"] += ["--fallback", f"{GATE_FALLBACK_TIMEOUT_SECONDS:g}s"]
        if resolves_before_fallback(seen):
            endpoints = {"name": seen.job.key.name, "key": ENDPOINT_VARIABLES[pod.role][0]}
            container["env"].append({"name": "ENDPOINTS", "valueFrom": {"configMapKeyRef": endpoints}})
            container["command"] += ["--resolve", "$(ENDPOINTS)"]
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
