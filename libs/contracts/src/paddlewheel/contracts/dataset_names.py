"""Names that services share about data sets: node labels, claims, volumes, the runtime's objects.

Pure functions of namespace and set name. A set's name has at most `SET_NAME_MAX` characters, so that its
StatefulSet's revision label, its Service and its pods' host names all stay within Kubernetes' 63.
"""

from __future__ import annotations

import hashlib

LABEL_DOMAIN = "paddlepaddle.org"
SET_NAME_MAX = 44
_LABEL_NAME_MAX = 63
"""Of a label's name, and of its value."""


def node_label(namespace: str, set_name: str) -> str:
    """Label key of the nodes that hold the set; its value is the partition's index (`0`, `1` ...).

    The namespace is hashed when the readable form is longer than a label may be.
    """
    return _of_namespace("juicefs", namespace, set_name)


def home_label(namespace: str, set_name: str) -> str:
    """Label key of the nodes that have the set's cache, mounted or not: runtime pods prefer them."""
    return _of_namespace("home", namespace, set_name)


def _of_namespace(prefix: str, namespace: str, set_name: str) -> str:
    name = f"{prefix}-{namespace}.{set_name}"
    if len(name) > _LABEL_NAME_MAX:
        digest = hashlib.sha256(namespace.encode()).hexdigest()[:10]
        name = f"{prefix}-{digest}.{_short(set_name)}"
    return f"{LABEL_DOMAIN}/{name}"


def set_label(set_name: str) -> str:
    """The published contract's label key, without namespace: on children `true`, on nodes a pod's name."""
    return f"{LABEL_DOMAIN}/juicefs-{set_name}"


def claim_name(set_name: str) -> str:
    """The PersistentVolumeClaim in the set's namespace; also the volume's name in pods."""
    return set_name


def pv_name(namespace: str, set_name: str) -> str:
    """The cluster-wide PersistentVolume, also for the CSI driver, which labels its mount pods with it.

    Neither part contains a dot, so no two sets share a name. One that is longer than a label's value may be
    has the namespace hashed, and two dots.
    """
    name = f"{namespace}.{set_name}"
    if len(name) <= _LABEL_NAME_MAX:
        return name
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:10]
    return f"ns.{digest}.{set_name}"


def set_reference(namespace: str, set_name: str) -> str:
    """The value of the label `paddlepaddle.org/sampleset` on the runtime's objects: `<namespace>.<set>`.

    One that would be longer than 63 characters is `ns.<digest of the namespace>.<set>`.
    """
    return pv_name(namespace, set_name)


def runtime_name(namespace: str, set_name: str, home: str) -> str:
    """The runtime's StatefulSet and Secret in the namespace of the release, `home`; pod i is `<name>-<i>`.

    A set of that namespace has the published contract's name, `<set>-runtime`. Others are
    `<set>-<namespace>-<digest>-runtime`; set and namespace together have 33 characters at most.
    """
    if namespace == home:
        return contract_runtime_name(set_name)
    digest = hashlib.sha256(f"{namespace}/{set_name}".encode()).hexdigest()[:10]
    return contract_runtime_name(f"{f'{set_name}-{namespace}'[: SET_NAME_MAX - 11].rstrip('-')}-{digest}")


def contract_runtime_name(set_name: str) -> str:
    """The runtime's StatefulSet and Secret as the published contract names them, in the set's namespace."""
    return f"{set_name}-runtime"


def volume_secret_name(runtime: str) -> str:
    """The Secret that the JuiceFS CSI driver mounts the volume with, by the name of the runtime."""
    return f"{runtime}-volume"


def runtime_service_name(runtime: str) -> str:
    """The headless Service of the runtime pods, by the name of the runtime."""
    return f"{runtime}-service"


def runtime_pod_name(set_name: str, partition: int) -> str:
    """The runtime pod as the published contract names it: the value of a node's label `set_label`."""
    return f"{contract_runtime_name(set_name)}-{partition}"


def _short(set_name: str) -> str:
    if len(set_name) <= SET_NAME_MAX:
        return set_name
    digest = hashlib.sha256(set_name.encode()).hexdigest()[:10]
    return f"{set_name[: SET_NAME_MAX - 11].rstrip('-.')}-{digest}"
