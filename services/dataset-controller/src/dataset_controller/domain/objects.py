"""Reading raw Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.keys import Key

Object = Mapping[str, Any]


def key_of(obj: Object) -> Key:
    """The object's address."""
    meta = obj["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def uid_of(obj: Object) -> str:
    """`metadata.uid`, "" when unset."""
    return str(obj["metadata"].get("uid", ""))


def version_of(obj: Object) -> str:
    """`metadata.resourceVersion`, "" when unset."""
    return str(obj["metadata"].get("resourceVersion", ""))


def generation_of(obj: Object) -> int:
    """`metadata.generation`."""
    return int(obj["metadata"].get("generation", 0))


def labels_of(obj: Object) -> Mapping[str, str]:
    """`metadata.labels`."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> Mapping[str, str]:
    """`metadata.annotations`."""
    return obj["metadata"].get("annotations") or {}


def deleted_at(obj: Object) -> str:
    """`metadata.deletionTimestamp`, "" when the object is to stay."""
    return str(obj["metadata"].get("deletionTimestamp") or "")


def spec_of(obj: Object) -> Mapping[str, Any]:
    """`spec`, {} when absent."""
    return obj.get("spec") or {}


def status_of(obj: Object) -> Mapping[str, Any]:
    """`status`, {} when absent."""
    return obj.get("status") or {}


def is_owned(obj: Object, owner_uid: str) -> bool:
    """The owner of this uid controls the object."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == owner_uid for owner in owners)


def is_pod_ready(pod: Object) -> bool:
    """Its condition Ready is True and it is not about to go."""
    conditions = status_of(pod).get("conditions") or ()
    return not deleted_at(pod) and any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in conditions
    )


def reference(obj: Object, field: str, namespace: str) -> Key | None:
    """A SecretReference at `spec.<field>`; its namespace is by default the object's own."""
    node: Any = spec_of(obj)
    for part in field.split("."):
        node = (node or {}).get(part)
    if not node or not node.get("name"):
        return None
    return Key(node.get("namespace") or namespace, node["name"])


def merge_patch(old: Any, new: Any) -> dict[str, Any]:
    """The JSON merge patch (RFC 7396) that makes `new` of `old`; {} when they are equal."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name in old and old[name] == value:
            continue
        both = isinstance(old.get(name), Mapping) and isinstance(value, Mapping)
        patch[name] = merge_patch(old[name], value) if both else value
    return patch
