"""Pure builders of child manifests. The user's template is copied, never changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from job_controller.core import names
from job_controller.core.environment import container_env
from job_controller.core.feature import Shape
from job_controller.core.job import Job, Manifest, Role
from job_controller.core.manifests import child_metadata
from job_controller.core.model import Observed, Options
from job_controller.core.pods import PodId
from job_controller.core.restart_policy import restart_policy
from paddlewheel.contracts.crds import Network


@dataclass(frozen=True)
class Frame:
    """The inputs that all pods of one job share.

    Args:
        port: the base port.
        shapes: what the features of the job add to each pod.
    """

    job: Job
    port: int
    options: Options
    shapes: tuple[Shape, ...] = ()

    @property
    def network(self) -> Network:
        return self.job.network


def frame_of(seen: Observed, port: int, options: Options) -> Frame:
    """The frame with all features that apply to the job."""
    shapes = (feature.pod_shape(seen, options) for feature in seen.features)
    return Frame(seen.job, port, options, tuple(shape for shape in shapes if shape))


def render_config_map(job: Job, data: Mapping[str, str]) -> Manifest:
    """The environment of all pods."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, job.key.name, {names.LABEL_NAME: job.key.name}),
        "data": dict(data),
    }


def render_service(job: Job, pod: PodId, port: int) -> Manifest:
    """The headless Service that gives a pod its name, also before the pod is ready."""
    name = job.pod_name(pod)
    ports = [{"name": f"p-{k}", "port": port + k, "protocol": "TCP"} for k in range(names.PORTS_PER_POD)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(job, name, {names.LABEL_NAME: name}),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_NAME: name},
            "ports": ports,
        },
    }


def render_pod(frame: Frame, role: Role, index: int) -> Manifest:
    """Pod `index` of a role: the user's template, network and environment, and what features add."""
    job, place = frame.job, PodId(role.name, index)
    spec: Manifest = copy.deepcopy(dict(role.template.get("spec") or {}))
    spec["restartPolicy"] = restart_policy(job, role)
    _keep_last_words(spec)
    _fit_container(frame, place, spec["containers"][0])
    _fit_network(frame, place, spec)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": _pod_metadata(job, role, place), "spec": spec}
    for shape in frame.shapes:
        shape(role, place, pod)
    return pod


def _pod_metadata(job: Job, role: Role, pod: PodId) -> Manifest:
    given = role.template.get("metadata") or {}
    name = job.pod_name(pod)
    ours = {names.LABEL_NAME: name, names.LABEL_TYPE: pod.role}
    metadata = child_metadata(job, name, {**(given.get("labels") or {}), **ours})
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
