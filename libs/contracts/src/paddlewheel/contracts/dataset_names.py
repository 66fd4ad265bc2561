"""The names of a data set's node labels, claim, volume and runtime objects.

All names are functions of the set's namespace and name. A set's name has at most `SET_NAME_MAX` characters,
so that its Service, its pods' host names and the revision label of its StatefulSet have at most 63.
"""

from __future__ import annotations

import hashlib

LABEL_DOMAIN = "paddlepaddle.org"
SET_NAME_MAX = 44
_LABEL_NAME_MAX = 63
"""Characters of a label's name or value, at most."""


def node_label(namespace: str, set_name: str) -> str:
    """The label key of nodes on which the set is mounted. The value is the index of the partition (`0`, `1`
    ...).

    If the key would be too long for a label, a hash replaces the namespace.
    """
    return _of_namespace("juicefs", namespace, set_name)


def home_label(namespace: str, set_name: str) -> str:
    """The label key of nodes that have a cache of the set, mounted or not.

    Runtime pods prefer these nodes.
    """
    return _of_namespace("home", namespace, set_name)


def _of_namespace(prefix: str, namespace: str, set_name: str) -> str:
    name = f"{prefix}-{namespace}.{set_name}"
    if len(name) > _LABEL_NAME_MAX:
        digest = hashlib.sha256(namespace.encode()).hexdigest()[:10]
        name = f"{prefix}-{digest}.{_short(set_name)}"
    return f"{LABEL_DOMAIN}/{name}"


def set_label(set_name: str) -> str:
    """The label key of the original operator, without a namespace.

    Its value is `true` on child objects, and the name of the runtime pod on nodes.
    """
    return f"{LABEL_DOMAIN}/juicefs-{set_name}"


def claim_name(set_name: str) -> str:
    """The name of the PersistentVolumeClaim in the set's namespace, and of the volume in pods."""
    return set_name


def pv_name(namespace: str, set_name: str) -> str:
    """The name of the PersistentVolume. The CSI driver labels its mount pods with it.

    The name is `<namespace>.<set>`; neither part contains a dot, so it is unique. If it would be too long for
    a label's value, it is `ns.<hash of the namespace>.<set>`.
    """
    name = f"{namespace}.{set_name}"
    if len(name) <= _LABEL_NAME_MAX:
        return name
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:10]
    return f"ns.{digest}.{set_name}"


def set_reference(namespace: str, set_name: str) -> str:
    """The value of the label `paddlepaddle.org/sampleset` on the runtime's objects: `<namespace>.<set>`.

    If it would have more than 63 characters, it is `ns.<hash of the namespace>.<set>`.
    """
    return pv_name(namespace, set_name)


def runtime_name(namespace: str, set_name: str, home: str) -> str:
    """The name of the runtime's StatefulSet and Secret, which are in the namespace of the release.

    Pod i is `<name>-<i>`. For a set in the release's namespace, the name is that of the original operator,
    `<set>-runtime`. For other sets it is `<set>-<namespace>-<digest>-runtime`, with `<set>-<namespace>` cut
    to 33 characters.

    Args:
        namespace: namespace of the set.
        set_name: name of the set.
        home: namespace of the release.
    """
    if namespace == home:
        return contract_runtime_name(set_name)
    digest = hashlib.sha256(f"{namespace}/{set_name}".encode()).hexdigest()[:10]
    return contract_runtime_name(f"{f'{set_name}-{namespace}'[: SET_NAME_MAX - 11].rstrip('-')}-{digest}")


def contract_runtime_name(set_name: str) -> str:
    """The name that the original operator gives the runtime's StatefulSet and Secret."""
    return f"{set_name}-runtime"


def volume_secret_name(runtime: str) -> str:
    """The name of the Secret with which the JuiceFS CSI driver mounts the volume.

    Args:
        runtime: the result of `runtime_name`.
    """
    return f"{runtime}-volume"


def runtime_service_name(runtime: str) -> str:
    """The name of the runtime pods' headless Service.

    Args:
        runtime: the result of `runtime_name`.
    """
    return f"{runtime}-service"


def runtime_pod_name(set_name: str, partition: int) -> str:
    """The name of a runtime pod in the original operator, which is the value of a node's label
    `set_label`."""
    return f"{contract_runtime_name(set_name)}-{partition}"


def _short(set_name: str) -> str:
    if len(set_name) <= SET_NAME_MAX:
        return set_name
    digest = hashlib.sha256(set_name.encode()).hexdigest()[:10]
    return f"{set_name[: SET_NAME_MAX - 11].rstrip('-.')}-{digest}"
