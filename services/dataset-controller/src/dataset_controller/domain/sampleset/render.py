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
    CREATED_BY,
    CREDENTIALS,
    CSI_DRIVER,
    MANAGED_LABELS,
    MOUNT_ROOT,
    OWNER_ANNOTATION,
    RUNTIME_LABELS,
    RUNTIME_PORT,
    SECRETS_DIR,
    SET_ANNOTATION,
    SET_LABEL,
    STATE_DIR,
    STORAGE_CLASS,
    TEMPLATE_ANNOTATION,
)
from dataset_controller.domain.paths import CacheDirectory
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset.model import BusFiles, RuntimeConfig, SetSpec
from dataset_controller.timing import RUNTIME_TERMINATION_GRACE_SECONDS
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN, TOKEN_TIMEOUT_SECONDS
from paddlewheel.contracts.crds.options import CLIENT_NAMES
from paddlewheel.contracts.dataset_names import (
    claim_name,
    home_label,
    node_label,
    pv_name,
    runtime_service_name,
    set_label,
    set_reference,
    volume_secret_name,
)
from paddlewheel.contracts.keys import Key
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
FREE_SPACE = "free-space-ratio"
"""The mount option that keeps a share of a cache's disk free."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def mount_path(uid: str) -> str:
    """The path of the mount on the set's nodes: in a small file system at `view`, which exists only with the
    mount.

    An agent mounts one level below the directory that it shares, so that the next agent can unmount it.
    """
    return f"{mount_parent(uid)}/view/data"


def mount_parent(uid: str) -> str:
    """The directory that the set's agents share with their nodes; the mounts of other sets are outside."""
    return f"{MOUNT_ROOT}/{uid}"


def volume(owner: SetIdentity, spec: SetSpec, driver_secret: Key | None, claim_uid: str) -> Manifest:
    """PersistentVolume: by the JuiceFS CSI driver where it is installed, else the path that agents mount.

    Args:
        driver_secret: the Secret of the CSI driver; None without one.
    """
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
            **(_csi_source(owner, spec, driver_secret) if driver_secret else _agent_source(owner)),
        },
    }


def _csi_source(owner: SetIdentity, spec: SetSpec, driver_secret: Key) -> Manifest:
    """The published contract has the options in the attributes. The driver reads both places, but only
    `mountOptions` when it makes a mount pod again; it then finds the volume by its handle."""
    secret = {"name": driver_secret.name, "namespace": driver_secret.namespace}
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
        "metadata": {
            "name": claim_name(owner.name),
            "namespace": owner.namespace,
            "labels": _child_labels(owner),
            "annotations": dict(CREATED_BY),
            "ownerReferences": [_owner_reference(owner)],
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": CAPACITY}},
            "storageClassName": STORAGE_CLASS,
            "volumeName": volume_name or pv_name(owner.namespace, owner.name),
            "selector": {"matchLabels": _labels(owner)},
        },
    }


def secret(owner: SetIdentity, runtime: Key, values: Mapping[str, str]) -> Manifest:
    """The runtime's Secret: file name -> value."""
    return _secret(owner, runtime, values)


def driver_secret_key(runtime: Key) -> Key:
    """The Secret of the CSI driver for a new volume."""
    return Key(runtime.namespace, volume_secret_name(runtime.name))


def volume_secret_key(found: Mapping[str, Any] | None, runtime: Key) -> Key:
    """The Secret of the CSI driver: the one that an existing volume has, which cannot be changed."""
    named = ((((found or {}).get("spec") or {}).get("csi")) or {}).get("nodePublishSecretRef") or {}
    return Key(named["namespace"], named["name"]) if named else driver_secret_key(runtime)


def volume_secret(owner: SetIdentity, key: Key, engine: Mapping[str, str]) -> Manifest:
    """The CSI driver's Secret."""
    return _secret(owner, key, engine)


def _secret(owner: SetIdentity, key: Key, values: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _runtime_meta(owner, key),
        "type": "Opaque",
        "data": encode(values),
    }


def encode(values: Mapping[str, str]) -> dict[str, str]:
    """A Secret's `data`."""
    return {name: base64.b64encode(value.encode()).decode() for name, value in sorted(values.items())}


def service(owner: SetIdentity, runtime: Key) -> Manifest:
    """Headless Service of the runtime pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _runtime_meta(owner, Key(runtime.namespace, runtime_service_name(runtime.name))),
        "spec": {
            "clusterIP": "None",
            "selector": _pod_selector(owner, runtime),
            "ports": [
                {"name": "service", "port": RUNTIME_PORT, "targetPort": RUNTIME_PORT, "protocol": "TCP"}
            ],
        },
    }


def stateful_set(
    owner: SetIdentity, runtime: Key, spec: SetSpec, config: RuntimeConfig, replicas: int
) -> Manifest:
    """StatefulSet: a runtime pod for each partition, each on a node of its own.

    The pods do not wait for each other: one that finds no node, or cannot mount, would block all after it.
    Only the first pod starts alone, see `startable`.
    """
    template, meta = pod_template(owner, runtime, spec, config), _runtime_meta(owner, runtime)
    meta["annotations"][TEMPLATE_ANNOTATION] = template_digest(template)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": ONE_BY_ONE,
            "serviceName": runtime_service_name(runtime.name),
            "selector": {"matchLabels": _pod_selector(owner, runtime)},
            "template": template,
        },
    }


def pod_template(owner: SetIdentity, runtime: Key, spec: SetSpec, config: RuntimeConfig) -> Manifest:
    """The template of the runtime pods."""
    return {
        "metadata": {
            "labels": {**RUNTIME_LABELS, **_set_labels(owner), **_pod_selector(owner, runtime)},
            "annotations": _runtime_annotations(owner),
        },
        "spec": _pod(owner, runtime, spec, config),
    }


def template_digest(template: Manifest) -> str:
    """The digest of the rendered template: the API server adds defaults to the stored one."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]


def _pod(owner: SetIdentity, runtime: Key, spec: SetSpec, config: RuntimeConfig) -> Manifest:
    affinity = {
        "podAntiAffinity": _one_per_node(owner, runtime),
        "nodeAffinity": _at_home(owner, spec.node_affinity or {}),
    }
    return {
        # Agents do not use the Kubernetes API, so they get no credentials and no address of it.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"serviceAccountName": config.service_account} if config.service_account else {}),
        **({"priorityClassName": config.priority_class} if config.priority_class else {}),
        **({"nodeSelector": dict(config.node_selector)} if config.node_selector else {}),
        "terminationGracePeriodSeconds": _grace_seconds(spec),
        "affinity": affinity,
        "tolerations": [*config.tolerations, *spec.tolerations],
        "containers": [_container(owner, spec, config)],
        "volumes": [
            _host_path("mnt", mount_parent(owner.uid)),
            {"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": STATE_LIMIT}},
            {"name": "secrets", "secret": {"secretName": runtime.name, "defaultMode": 0o400}},
            *([_bus_volume(sources)] if (sources := _bus_sources(config.bus)) else ()),
            *(_host_path(volume_name("cache", root), root) for root in _roots(spec)),
            *map(_source_volume, config.places.local_sources),
        ],
    }


def _flush_seconds(spec: SetSpec) -> int:
    """The time to upload staged writes of pods, with writeback."""
    return UPLOAD_SECONDS if spec.is_writeback else 0


def _grace_seconds(spec: SetSpec) -> int:
    """Its last word is that nothing is left on the node: without it, a set waits for the next agent there."""
    last = UPLOAD_SECONDS + UNMOUNT_SECONDS + LAST_WORD_SECONDS if spec.is_writeback else 0
    return RUNTIME_TERMINATION_GRACE_SECONDS + last


def _bus_volume(sources: list[Manifest]) -> Manifest:
    return {"name": "bus", "projected": {"sources": sources, "defaultMode": 0o400}}


def _bus_sources(bus: BusFiles) -> list[Manifest]:
    """The token is bound to the pod, renewed by the kubelet, and not accepted by the API server."""
    authority = {"name": bus.authority, "items": [{"key": AUTHORITY, "path": AUTHORITY}]}
    token = {"path": TOKEN, "audience": AUDIENCE, "expirationSeconds": TOKEN_TIMEOUT_SECONDS}
    credentials = {"name": bus.credentials, "items": [{"key": CREDENTIALS, "path": CREDENTIALS}]}
    return [
        *([{"configMap": authority}] if bus.authority else ()),
        *([{"serviceAccountToken": token}] if bus.tokens else ()),
        *([{"secret": credentials}] if bus.credentials else ()),
    ]


def _one_per_node(owner: SetIdentity, runtime: Key) -> Manifest:
    selector = {"matchLabels": _pod_selector(owner, runtime)}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _at_home(owner: SetIdentity, affinity: Mapping[str, Any]) -> Manifest:
    """Prefers the nodes that have caches of the set. A pod finds its own node free: the others have other
    pods."""
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
            *([BUS_MOUNT] if _bus_sources(config.bus) else ()),
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
        "MOUNT_OPTIONS": json.dumps({FREE_SPACE: config.free_space_ratio} | dict(spec.mount_options)),
        "SECRETS_DIR": SECRETS_DIR,
        "FLUSH_WAIT": str(_flush_seconds(spec)),
        "STATE_DIR": STATE_DIR,
        "HTTP_PORT": str(RUNTIME_PORT),
        **({"NATS_TLS_DIR": BUS_DIR} if config.bus.authority else {}),
        **({"NATS_TOKEN_FILE": f"{BUS_DIR}/{TOKEN}"} if config.bus.tokens else {}),
        **({"NATS_CREDS_FILE": f"{BUS_DIR}/{CREDENTIALS}"} if config.bus.credentials else {}),
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
    """A missing directory is no empty source: the pod waits for it."""
    return {"name": volume_name("source", directory), "hostPath": {"path": directory, "type": "Directory"}}


def _cache_mount(directory: CacheDirectory) -> Manifest:
    """The kubelet makes and opens a `subPath` without following symbolic links out of the root, and the pod
    sees nothing else of the root."""
    below = directory.path.removeprefix(directory.root).lstrip("/")
    return {"name": volume_name("cache", directory.root), "mountPath": directory.path, "subPath": below}


def _source_mount(directory: str) -> Manifest:
    """The pod also gets later mounts of the operator. Kubernetes has no recursive read-only mounts with
    propagation; the agent reads through a read-only mount of its own and refuses sources with mounts in
    them."""
    return {
        "name": volume_name("source", directory),
        "mountPath": directory,
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }


def _labels(owner: SetIdentity) -> dict[str, str]:
    """A claim finds its volume by these labels, and a StatefulSet its pods: they never change."""
    return {set_label(owner.name): "true"}


def _set_labels(owner: SetIdentity) -> dict[str, str]:
    return {SET_LABEL: set_reference(owner.namespace, owner.name)}


def _child_labels(owner: SetIdentity) -> dict[str, str]:
    return {**MANAGED_LABELS, **_set_labels(owner), **_labels(owner)}


def _pod_selector(owner: SetIdentity, runtime: Key) -> dict[str, str]:
    return {**_labels(owner), "name": runtime.name}


def _runtime_meta(owner: SetIdentity, key: Key) -> Manifest:
    """The metadata of an object in the namespace of the release, where a set cannot be an owner."""
    return {
        "name": key.name,
        "namespace": key.namespace,
        "labels": _child_labels(owner),
        "annotations": _runtime_annotations(owner),
    }


def _runtime_annotations(owner: SetIdentity) -> dict[str, str]:
    return {**CREATED_BY, SET_ANNOTATION: f"{owner.namespace}/{owner.name}", OWNER_ANNOTATION: owner.uid}


def _owner_reference(owner: SetIdentity) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "SampleSet",
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
