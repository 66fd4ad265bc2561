"""Pure builders of child manifests. The user's template is copied, never changed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from job_controller.core import names
from job_controller.core.environment import container_env
from job_controller.core.model import Flavor, Job, Manifest, Options, Priority, Role, SampleSet
from job_controller.core.pods import PodId
from job_controller.core.restart_policy import restart_policy
from job_controller.features.dataset.placement import data_node, preferred_nodes, required_node
from job_controller.features.gang.choice import Gang
from job_controller.features.gang.resources import least_resources
from job_controller.features.kueue.rules import priority_fields, workload_digest, workload_spec
from job_controller.features.start_gate.question import gate_address
from job_controller.features.start_gate.release import awaited_names, waits_for_names, waits_for_release
from job_controller.timing import GATE_FALLBACK_TIMEOUT_SECONDS
from paddlewheel.contracts.crds import Network
from paddlewheel.contracts.crds.paddlejob import GangKind, SchedulingPolicy
from paddlewheel.contracts.dataset_names import claim_name
from paddlewheel.contracts.job_names import kept_logs_name

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Frame:
    """The inputs that all pods of one job share.

    Args:
        port: the base port.
        gang: the kind that new pods take part in.
    """

    job: Job
    port: int
    options: Options
    sample_set: SampleSet | None = None
    gang: GangKind = GangKind.NONE
    flavors: Mapping[str, Sequence[Flavor]] = field(default_factory=dict)
    """Kueue's, by role."""
    may_fall_back: bool = True
    """A gate without an answer may let its pod start."""

    @property
    def network(self) -> Network:
        return self.job.network


def render_config_map(job: Job, data: Mapping[str, str]) -> Manifest:
    """The environment of all pods."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, job.key.name, {names.LABEL_NAME: job.key.name}),
        "data": dict(data),
    }


def render_kept_logs(job: Job, data: Mapping[str, str]) -> Manifest:
    """The last lines of pods that are deleted with `cleanPodPolicy`, by pod; goes with the job."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, kept_logs_name(job.key.name), {}),
        "data": dict(data),
    }


def render_service(job: Job, pod: PodId, port: int) -> Manifest:
    """The headless Service that gives a pod its name, also before the pod is ready."""
    name = job.pod_name(pod)
    ports = [{"name": f"p-{k}", "port": port + k, "protocol": "TCP"} for k in range(names.PORTS_PER_POD)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, name, {names.LABEL_NAME: name}),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_NAME: name},
            "ports": ports,
        },
    }


def render_pod_group(job: Job, gang: Gang) -> Manifest:
    """The pods that are scheduled all together or not at all."""
    is_native = gang.kind is GangKind.NATIVE
    native = {"schedulingPolicy": {"gang": {"minCount": gang.least}}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2" if is_native else "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": _metadata(job, job.key.name, {}),
        "spec": native if is_native else volcano_spec(job, gang),
    }


def render_workload(job: Job, priority: Priority | None) -> Manifest:
    """The Workload: the pods that Kueue counts."""
    metadata = _metadata(job, names.workload_name(job.key.name), {})
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {**metadata, "annotations": {names.ANNOTATION_TEMPLATE: workload_digest(job)}},
        "spec": workload_spec(job) | priority_fields(priority),
    }


def volcano_spec(job: Job, gang: Gang) -> Manifest:
    """The spec of a PodGroup of Volcano; without a queue it is put into the default one."""
    policy = job.spec.scheduling_policy or SchedulingPolicy()
    named = {"queue": policy.queue, "priorityClassName": policy.priority_class}
    given = {field: name for field, name in named.items() if name}
    return {"minMember": gang.least, "minResources": least_resources(job), **given}


def render_pod(frame: Frame, role: Role, index: int) -> Manifest:
    """Pod `index` of a role: the user's template plus network, environment, data set and gate."""
    job, pod = frame.job, PodId(role.name, index)
    spec: Manifest = copy.deepcopy(dict(role.template.get("spec") or {}))
    spec["restartPolicy"] = restart_policy(job, role)
    _keep_last_words(spec)
    _fit_container(frame, pod, spec["containers"][0])
    _fit_network(frame, pod, spec)
    _mount_data(frame, spec)
    _place(frame, pod, spec)
    _fit_flavors(frame.flavors.get(role.name, ()), spec)
    _hold_back(frame, pod, spec)
    metadata = _pod_metadata(job, role, pod)
    if node := data_node(job, pod, frame.sample_set):
        metadata["annotations"][names.ANNOTATION_DATA_NODE] = node
    if waits_for_names(job, frame.options):
        metadata["annotations"][names.ANNOTATION_WAITS_FOR] = awaited_names(job, pod)
    _join_gang(frame, role, metadata, spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _metadata(job: Job, name: str, labels: dict[str, str]) -> Manifest:
    return {
        "name": name,
        "namespace": job.key.namespace,
        "labels": {**labels, names.LABEL_JOB: job.key.name},
        "ownerReferences": [_owner(job)],
    }


def _owner(job: Job) -> Manifest:
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod_metadata(job: Job, role: Role, pod: PodId) -> Manifest:
    given = role.template.get("metadata") or {}
    name = job.pod_name(pod)
    ours = {names.LABEL_NAME: name, names.LABEL_TYPE: pod.role}
    metadata = _metadata(job, name, {**(given.get("labels") or {}), **ours})
    users = {k: v for k, v in (given.get("annotations") or {}).items() if k not in names.OWN_ANNOTATIONS}
    metadata["annotations"] = {**users, **_own_annotations(job, role)}
    if given.get("finalizers"):
        metadata["finalizers"] = list(given["finalizers"])
    return metadata


def _own_annotations(job: Job, role: Role) -> dict[str, str]:
    own = {names.ANNOTATION_ROLE: role.name, names.ANNOTATION_TEMPLATE: job.digests[role.name]}
    if job.status.epoch:
        own[names.ANNOTATION_EPOCH] = str(job.status.epoch)
    if job.restart_request:
        own[names.ANNOTATION_RESTART] = job.restart_request
    return own


def _fit_container(frame: Frame, pod: PodId, container: Manifest) -> None:
    own = list(container.get("env") or ())
    container["env"] = container_env(frame.job, pod, frame.port, frame.options, own)
    if not frame.job.elastic:
        ours = {"configMapRef": {"name": frame.job.key.name}}
        # The later of two sources with one name wins: ours, as with the original operator.
        container["envFrom"] = [*(container.get("envFrom") or ()), ours]
    if frame.network is Network.SERVICE:
        _add_port(container, frame.port)


def _keep_last_words(spec: Manifest) -> None:
    """So that what a failed container wrote last reaches the job's status without reading logs."""
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _add_port(container: Manifest, port: int) -> None:
    ports = list(container.get("ports") or ())
    if all(p.get("containerPort") != port for p in ports):
        ports.append({"containerPort": port})
    container["ports"] = ports


def _fit_network(frame: Frame, pod: PodId, spec: Manifest) -> None:
    if frame.network is Network.HOST:
        spec["hostNetwork"] = True
        # Without it a pod on the host's network asks the node's DNS and finds no Service.
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if frame.network is Network.SERVICE:
        name = frame.job.pod_name(pod)
        spec["hostname"] = spec["subdomain"] = name


def _mount_data(frame: Frame, spec: Manifest) -> None:
    ref = frame.job.spec.sample_set_ref
    if ref is None:
        return
    volume = names.volume_name(ref.name)
    claim = {"name": volume, "persistentVolumeClaim": {"claimName": claim_name(ref.name)}}
    mount = {"name": volume, "mountPath": ref.mount_path, "mountPropagation": "HostToContainer"}
    _append_unless(spec, "volumes", claim, "name")
    _append_unless(spec["containers"][0], "volumeMounts", mount, "mountPath")


def _append_unless(holder: Manifest, field: str, item: Manifest, identity: str) -> None:
    """Add to a list unless the user's own entry already has the same identity."""
    items: list[dict[str, Any]] = list(holder.get(field) or ())
    if all(i.get(identity) != item[identity] for i in items):
        items.append(item)
    holder[field] = items


def _place(frame: Frame, pod: PodId, spec: Manifest) -> None:
    required = required_node(frame.job, pod, frame.sample_set)
    terms = [] if required else preferred_nodes(frame.job, pod, frame.sample_set)
    if required is None and not terms:
        return
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    if terms:
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), *terms]
    if required:
        node[_REQUIRED] = _with_expression(node.get(_REQUIRED) or {}, required)
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _fit_flavors(flavors: Iterable[Flavor], spec: Manifest) -> None:
    """So that the pod runs where its quota is."""
    for flavor in flavors:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **flavor.node_labels}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(dict, flavor.tolerations)]


def _with_expression(selector: Manifest, expression: Manifest) -> Manifest:
    """The user's own terms are alternatives, so each of them gets it."""
    own = selector.get("nodeSelectorTerms") or [{}]
    terms = [{**t, "matchExpressions": [*(t.get("matchExpressions") or ()), expression]} for t in own]
    return {"nodeSelectorTerms": terms}


def _join_gang(frame: Frame, role: Role, metadata: Manifest, spec: Manifest) -> None:
    job = frame.job
    if frame.gang is GangKind.NATIVE:
        spec["schedulingGroup"] = {"podGroupName": job.key.name}
    if frame.gang is not GangKind.VOLCANO:
        return
    spec["schedulerName"] = names.VOLCANO_SCHEDULER
    policy = job.spec.scheduling_policy
    metadata["annotations"] |= {
        names.ANNOTATION_GROUP: job.key.name,
        names.VOLCANO_TASK: role.name,
        names.VOLCANO_JOB: job.key.name,
        names.VOLCANO_VERSION: "0",
        names.VOLCANO_QUEUE: policy.queue if policy else "",
    }


def _hold_back(frame: Frame, pod: PodId, spec: Manifest) -> None:
    """Add the last init container, which waits until the pod can reach the others."""
    options, job = frame.options, frame.job
    if waits_for_names(job, options):
        container = _file_gate(options, spec, "--resolve-all", names.NAMES_FILE, names.ANNOTATION_WAITS_FOR)
    elif not waits_for_release(job, options):
        return
    elif options.gate_url and _finds_services(spec):
        container = _asking_gate(frame, pod, spec)
    else:
        container = _file_gate(options, spec, "--file", names.RELEASED_FILE, names.ANNOTATION_RELEASED)
    spec["initContainers"] = [*(spec.get("initContainers") or ()), container]


def _finds_services(spec: Manifest) -> bool:
    """The pod resolves names of Services. On the host's network, ClusterFirst means the node's own DNS."""
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))


def _asking_gate(frame: Frame, pod: PodId, spec: Manifest) -> Manifest:
    """Asks this service, which costs no write for each pod."""
    container = _gate_container(frame.options.gate_image, spec)
    container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    address = gate_address(frame.options.gate_url, frame.job, pod)
    container["command"] = ["/gate", "--ask", f"{address}&ip=$(POD_IP)"]
    if frame.may_fall_back and frame.job.trains(pod):
        # Then its kubelet waits for the ConfigMap. A worker beyond the present world has only its gate.
        container["command"] += ["--fallback", f"{GATE_FALLBACK_TIMEOUT_SECONDS:g}s"]
    return container


def _file_gate(options: Options, spec: Manifest, option: str, file: str, annotation: str) -> Manifest:
    container = _gate_container(options.gate_image, spec)
    container["command"] = ["/gate", option, f"{names.GATE_FOLDER}/{file}"]
    container["volumeMounts"] = [{"name": names.GATE_VOLUME, "mountPath": names.GATE_FOLDER}]
    _append_unless(spec, "volumes", _gate_volume(file, annotation), "name")
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
