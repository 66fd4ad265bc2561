"""Reading raw objects: keys, owners, selectors' fields."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Object, Resource


def key_of(obj: Object) -> Key:
    """The object's own address."""
    meta = obj["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def uid_of(obj: Object) -> str:
    """`metadata.uid`, "" when unset."""
    return str(obj["metadata"].get("uid", ""))


def version_of(obj: Object) -> str:
    """`metadata.resourceVersion`, "" when unset."""
    return str(obj["metadata"].get("resourceVersion", ""))


def generation_of(obj: Object) -> int:
    """`metadata.generation`, 0 when unset."""
    return int(obj["metadata"].get("generation", 0))


def labels_of(obj: Object) -> dict[str, str]:
    """`metadata.labels`."""
    return obj["metadata"].get("labels") or {}


def is_deleting(obj: Object) -> bool:
    """Deletion was asked for and finalizers or a grace period hold it."""
    return "deletionTimestamp" in obj["metadata"]


def controller_of(obj: Object) -> dict[str, Any] | None:
    """The owner reference with `controller: true`."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(obj: Object) -> list[str]:
    """An informer's index function: the uid of the controlling owner."""
    owner = controller_of(obj)
    return [str(owner["uid"])] if owner else []


def owner_reference(owner: Object, resource: Resource) -> dict[str, Any]:
    """For `metadata.ownerReferences` of a child that `owner` controls."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
