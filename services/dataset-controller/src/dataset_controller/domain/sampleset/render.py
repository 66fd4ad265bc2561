"""A SampleSet's children as manifests: volume, claim, Secret, Service, StatefulSet."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dataset_controller.domain.names import (
    API_VERSION,
    AUTHORITY,
    BUS_DIR,
    BUS_FILES,
    CREATED_BY,
    CSI_DRIVER,
    MANAGED_LABELS,
    MOUNT_ROOT,
    OWNER_ANNOTATION,
    RUNTIME_LABELS,
    RUNTIME_PORT,
    SECRETS_DIR,
    SET_LABEL,
    STATE_DIR,
    STORAGE_CLASS,
    TEMPLATE_ANNOTATION,
    bus_key,
)
from dataset_controller.domain.paths import CacheDirectory
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset.model import RuntimeConfig, SetSpec
from dataset_controller.timing import RUNTIME_TERMINATION_GRACE_SECONDS
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN, TOKEN_SECONDS
from paddlewheel.contracts.crds.options import CLIENT_NAMES
from paddlewheel.contracts.dataset_names import (
    claim_name,
    home_label,
    node_label,
    pv_name,
    runtime_name,
    runtime_service_name,
    set_label,
    volume_secret_name,
)
from paddlewheel.contracts.staged_writes import LAST_WORD_SECONDS, UNMOUNT_SECONDS, UPLOAD_SECONDS

Manifest = dict[str, Any]
CAPACITY = "10Pi"
BUS_MOUNT = {"name": "bus", "mountPath": BUS_DIR, "readOnly": True}
PREFIX = "CACHE_RUNTIME_"
CACHE_DIRECTORIES = f"{PREFIX}CACHE_DIRS"
"""Settings of runtime pods, in their environment."""
ONE_BY_ONE = {"type": "RollingUpdate"}
"""The next pod is replaced when the one before has mounted, also with the policy Parallel. Pods that use the
data have it again with the mount, and what is cached stays on the node."""
STATE_LIMIT = "256Mi"
"""Memory that a pod's own files may take, among them the root directory of copies. What a client writes there
by mistake fails then, and the node's disk keeps its room."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def mount_path(uid: str) -> str:
    """Where the set is mounted on its nodes: in a small file system at `view`, which is there with it only.

    What an agent mounts one level below the directory that it shares, the next one can take away again.
    """
    return f"{mount_parent(uid)}/view/data"


def mount_parent(uid: str) -> str:
    """The directory that the set's agents share with their nodes; the mounts of other sets are outside."""
    return f"{MOUNT_ROOT}/{uid}"


def volume(owner: SetIdentity, spec: SetSpec, has_csi: bool, claim_uid: str) -> Manifest:
    """PersistentVolume: by the JuiceFS CSI driver where it is installed, else the path that agents mount."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": pv_name(owner.namespace, owner.name),
            "labels": _child_labels(owner),
            "annotations": {**CREATED_BY, OWNER_ANNOTATION: owner.uid},
        },
        "spec": {
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": owner.namespace,
                "name": claim_name(owner.name),
                "uid": claim_uid,
            },
            **(_csi_source(owner, spec) if has_csi else _agent_source(owner)),
        },
    }


def _csi_source(owner: SetIdentity, spec: SetSpec) -> Manifest:
    """The options are in the attributes by the published contract. The driver takes them from both places,
    but from `mountOptions` alone when it makes a mount pod again, and finds the volume by its handle then."""
    secret = {"name": volume_secret_name(owner.name), "namespace": owner.namespace}
    options = csi_options(spec)
    return {
        "mountOptions": options,
        "csi": {
            "driver": CSI_DRIVER,
            "fsType": "juicefs",
            "volumeHandle": pv_name(owner.namespace, owner.name),
            "volumeAttributes": {"mountOptions": ",".join(options)},
            "nodePublishSecretRef": secret,
        },
    }


def csi_options(spec: SetSpec) -> list[str]:
    """Mount options as the contract writes them: booleans as bare words, sorted. The driver passes them to
    the client, so they have the client's names, without dashes."""
    items = {CLIENT_NAMES.get(name, name): value for name, value in spec.mount_options} | {
        "cache-dir": ":".join(spec.cache.paths),
        "cache-size": str(spec.cache.size_mib),
    }
    return [name if value == "true" else f"{name}={value}" for name, value in sorted(items.items())]


def _agent_source(owner: SetIdentity) -> Manifest:
    """The directory exists only while the set is mounted there: the kubelet lets pods wait for it, instead of
    having it made as a plain directory of the node."""
    on_our_nodes = {"key": node_label(owner.namespace, owner.name), "operator": "Exists"}
    return {
        "hostPath": {"path": mount_path(owner.uid), "type": "Directory"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_our_nodes]}]}},
    }


def claim(owner: SetIdentity, volume_name: str = "") -> Manifest:
    """PersistentVolumeClaim, bound to its volume by name; "" = the name that `volume` gives."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _meta(owner, claim_name(owner.name)),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": CAPACITY}},
            "storageClassName": STORAGE_CLASS,
            "volumeName": volume_name or pv_name(owner.namespace, owner.name),
            "selector": {"matchLabels": _labels(owner)},
        },
    }


def secret(owner: SetIdentity, values: Mapping[str, str]) -> Manifest:
    """The runtime's Secret: file name -> value."""
    return _secret(owner, runtime_name(owner.name), values)


def volume_secret(owner: SetIdentity, engine: Mapping[str, str]) -> Manifest:
    """The CSI driver's Secret."""
    return _secret(owner, volume_secret_name(owner.name), engine)


def _secret(owner: SetIdentity, name: str, values: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(owner, name),
        "type": "Opaque",
        "data": encode(values),
    }


def encode(values: Mapping[str, str]) -> dict[str, str]:
    """A Secret's `data`."""
    return {name: base64.b64encode(value.encode()).decode() for name, value in sorted(values.items())}


def service(owner: SetIdentity) -> Manifest:
    """Headless Service of the runtime pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(owner, runtime_service_name(owner.name)),
        "spec": {
            "clusterIP": "None",
            "selector": _pod_selector(owner),
            "ports": [
                {"name": "service", "port": RUNTIME_PORT, "targetPort": RUNTIME_PORT, "protocol": "TCP"}
            ],
        },
    }


def stateful_set(owner: SetIdentity, spec: SetSpec, config: RuntimeConfig, replicas: int) -> Manifest:
    """StatefulSet: a runtime pod for each partition, each on a node of its own. None waits for another: one
    that finds no node, or does not mount, would hold up all after it. The first is alone, see `startable`."""
    template, meta = pod_template(owner, spec, config), _meta(owner, runtime_name(owner.name))
    meta["annotations"][TEMPLATE_ANNOTATION] = template_digest(template)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": ONE_BY_ONE,
            "serviceName": runtime_service_name(owner.name),
            "selector": {"matchLabels": _pod_selector(owner)},
            "template": template,
        },
    }


def pod_template(owner: SetIdentity, spec: SetSpec, config: RuntimeConfig) -> Manifest:
    """Of the runtime pods."""
    return {
        "metadata": {
            "labels": {**RUNTIME_LABELS, SET_LABEL: owner.name, **_pod_selector(owner)},
            "annotations": CREATED_BY,
        },
        "spec": _pod(owner, spec, config),
    }


def template_digest(template: Manifest) -> str:
    """Of what was rendered: the API server adds its defaults to what it stores."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]


def _pod(owner: SetIdentity, spec: SetSpec, config: RuntimeConfig) -> Manifest:
    affinity = {
        "podAntiAffinity": _one_per_node(owner),
        "nodeAffinity": _at_home(owner, spec.node_affinity or {}),
    }
    return {
        # Agents do not use the Kubernetes API: they get no credentials for it and no address.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # No longer than needed: a namespace is looked at again after half of its pods' longest period.
        "terminationGracePeriodSeconds": _grace_seconds(spec),
        "affinity": affinity,
        "tolerations": list(spec.tolerations),
        "containers": [_container(owner, spec, config)],
        "volumes": [
            _host_path("mnt", mount_parent(owner.uid)),
            {"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": STATE_LIMIT}},
            {"name": "secrets", "secret": {"secretName": runtime_name(owner.name), "defaultMode": 0o400}},
            *([_bus_volume(owner, config)] if config.has_bus_certificate else ()),
            *(_host_path(volume_name("cache", root), root) for root in _roots(spec)),
            *map(_source_volume, config.places.local_sources),
        ],
    }


def _flush_seconds(spec: SetSpec) -> int:
    """Time to upload what pods have written, where that happens later than they were told."""
    return UPLOAD_SECONDS if spec.is_writeback else 0


def _grace_seconds(spec: SetSpec) -> int:
    """Its last word is that nothing is left on the node: without it, a set waits for the next agent there."""
    last = UPLOAD_SECONDS + UNMOUNT_SECONDS + LAST_WORD_SECONDS if spec.is_writeback else 0
    return RUNTIME_TERMINATION_GRACE_SECONDS + last


def _bus_volume(owner: SetIdentity, config: RuntimeConfig) -> Manifest:
    """A mounted Secret is updated in place: a new certificate reaches the pods without a restart."""
    if config.has_bus_token:
        return _bus_token_volume(owner)
    items = [{"key": bus_key(name), "path": name} for name in BUS_FILES]
    secret = {"secretName": runtime_name(owner.name), "items": items, "defaultMode": 0o400}
    return {"name": "bus", "secret": secret}


def _bus_token_volume(owner: SetIdentity) -> Manifest:
    """The token is bound to the pod, renewed by the kubelet, and worth nothing to the API server."""
    authority = {"name": runtime_name(owner.name), "items": [{"key": bus_key(AUTHORITY), "path": AUTHORITY}]}
    token = {"path": TOKEN, "audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS}
    sources = [{"secret": authority}, {"serviceAccountToken": token}]
    return {"name": "bus", "projected": {"sources": sources, "defaultMode": 0o400}}


def _one_per_node(owner: SetIdentity) -> Manifest:
    term = {"labelSelector": {"matchLabels": _pod_selector(owner)}, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _at_home(owner: SetIdentity, affinity: Mapping[str, Any]) -> Manifest:
    """Rather where the set's caches are than elsewhere. Of these nodes all but its own have another pod."""
    is_home = {"key": home_label(owner.namespace, owner.name), "operator": "Exists"}
    home = {"weight": 100, "preference": {"matchExpressions": [is_home]}}
    return {**affinity, _PREFERRED: [*(affinity.get(_PREFERRED) or ()), home]}


def _container(owner: SetIdentity, spec: SetSpec, config: RuntimeConfig) -> Manifest:
    return {
        "name": "runtime",
        "image": config.image,
        "imagePullPolicy": config.pull_policy,
        "securityContext": {"privileged": True},
        "env": _environment(owner, spec, config),
        "ports": [{"name": "service", "containerPort": RUNTIME_PORT, "protocol": "TCP"}],
        "resources": config.resources,
        "readinessProbe": _probe("/readyz", period=2, failures=3),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "volumeMounts": [
            {"name": "mnt", "mountPath": mount_parent(owner.uid), "mountPropagation": "Bidirectional"},
            {"name": "state", "mountPath": STATE_DIR},
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            *([BUS_MOUNT] if config.has_bus_certificate else ()),
            *map(_cache_mount, spec.cache.directories),
            *map(_source_mount, config.places.local_sources),
        ],
    }


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    get = {"path": path, "port": RUNTIME_PORT}
    return {"httpGet": get, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}


def _environment(owner: SetIdentity, spec: SetSpec, config: RuntimeConfig) -> list[Manifest]:
    values = {
        **config.settings,
        "NATS_URL": config.nats_url,
        "SET_NAMESPACE": owner.namespace,
        "SET_NAME": owner.name,
        "SET_UID": owner.uid,
        "MOUNT_PATH": mount_path(owner.uid),
        CACHE_DIRECTORIES.removeprefix(PREFIX): ":".join(spec.cache.paths),
        "CACHE_ROOTS": json.dumps(_roots(spec)),
        "LOCAL_SOURCES": json.dumps(config.places.local_sources),
        "CACHE_SIZE_MIB": str(spec.cache.size_mib),
        "MOUNT_OPTIONS": json.dumps(dict(spec.mount_options)),
        "SECRETS_DIR": SECRETS_DIR,
        "FLUSH_WAIT": str(_flush_seconds(spec)),
        "STATE_DIR": STATE_DIR,
        "HTTP_PORT": str(RUNTIME_PORT),
        **({"NATS_TLS_DIR": BUS_DIR} if config.has_bus_certificate else {}),
        **({"NATS_TOKEN_FILE": f"{BUS_DIR}/{TOKEN}"} if config.has_bus_token else {}),
    }
    fields = {"POD_NAME": "metadata.name", "NODE_NAME": "spec.nodeName"}
    return [
        *({"name": f"{PREFIX}{name}", "value": value} for name, value in values.items()),
        *(
            {
                "name": f"{PREFIX}{name}",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
            }
            for name, path in fields.items()
        ),
    ]


def volume_name(prefix: str, directory: str) -> str:
    """A valid volume name for any path, also one with `_`, `.`, capitals or many characters."""
    return f"{prefix}-{hashlib.sha256(directory.encode()).hexdigest()[:12]}"


def _roots(spec: SetSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys(directory.root for directory in spec.cache.directories))


def _host_path(name: str, directory: str) -> Manifest:
    return {"name": name, "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}


def _source_volume(directory: str) -> Manifest:
    """A directory that a node lacks is no empty source: the pod waits for it."""
    return {"name": volume_name("source", directory), "hostPath": {"path": directory, "type": "Directory"}}


def _cache_mount(directory: CacheDirectory) -> Manifest:
    """The kubelet makes and opens a `subPath` without following symbolic links out of the root, and the pod
    sees nothing else of the root."""
    below = directory.path.removeprefix(directory.root).lstrip("/")
    return {"name": volume_name("cache", directory.root), "mountPath": directory.path, "subPath": below}


def _source_mount(directory: str) -> Manifest:
    """What the operator mounts there later is seen too. Kubernetes has no recursive read-only together with
    propagation; the agent reads through a read-only mount of its own and refuses what has mounts in it."""
    return {
        "name": volume_name("source", directory),
        "mountPath": directory,
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }


def _labels(owner: SetIdentity) -> dict[str, str]:
    """By these a claim finds its volume and the StatefulSet its pods: they never change."""
    return {set_label(owner.name): "true"}


def _child_labels(owner: SetIdentity) -> dict[str, str]:
    return {**MANAGED_LABELS, SET_LABEL: owner.name, **_labels(owner)}


def _pod_selector(owner: SetIdentity) -> dict[str, str]:
    return {**_labels(owner), "name": runtime_name(owner.name)}


def _meta(owner: SetIdentity, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": _child_labels(owner),
        "annotations": dict(CREATED_BY),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "SampleSet",
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
